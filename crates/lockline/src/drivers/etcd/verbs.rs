//! Joining, leaving, looking.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tonic::Status;

use super::Inner;
use super::books::Record;
use super::error::no_such_lease;
use super::lease::{Lease, seconds_for};
use super::place::{Card, Keys, Seen, ticket};
use super::proto::{Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp};
use super::standing::{Found, first_question, judge, question, stands_behind, whole_line};
use crate::drivers::quiet::QuietLines;
use crate::drivers::under_way::UnderWay;
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Bell, Claim, ClaimId, Mode, News, Place, Standing};
use crate::name::Name;
use crate::sync::locked;
use crate::time::{BootClock, Time};

/// How often a step is begun anew because others were faster, or a lease turned out to be gone.
pub(super) const TRIES: usize = 16;

impl Inner {
    /// Does something to a claim when its turn comes, and to its end.
    pub(super) fn in_turn<T: Send + 'static>(
        &self,
        id: ClaimId,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> UnderWay<Result<T>> {
        let mut turn = self.turns.next(id);
        UnderWay::new(&self.runtime, async move {
            turn.comes().await;
            work.await
        })
    }

    pub(super) async fn join(self: &Arc<Self>, claim: &Claim, wait: bool) -> Result<Standing> {
        locked(&self.books).enter(claim);
        let (inner, id, claim) = (self.clone(), claim.id, claim.clone());
        let work = async move {
            let joined = inner.join_in_turn(&claim, wait).await;
            if matches!(joined, Ok(Standing::Out) | Err(_)) && inner.is_untouched(claim.id) {
                inner.forget(claim.id);
            }
            joined
        };
        self.in_turn(id, work).await
    }

    async fn join_in_turn(self: &Arc<Self>, claim: &Claim, wait: bool) -> Result<Standing> {
        self.drop_if_lapsed(claim.id, "join").await?;
        self.drop_lapsed(&claim.name).await;
        // A leave may have come before.
        locked(&self.books).enter(claim);
        if let Some(identity) = claim.identity.clone() {
            return self.join_shared(claim, &identity, wait).await;
        }
        for _ in 0..TRIES {
            let lease = self.lease_of(claim).await?;
            let key = self.layout.key(&claim.name, lease.id);
            locked(&self.books).stands_on(claim.id, key.clone(), lease);
            let began = BootClock.now();
            let enough = lease.lives_until() >= began + claim.lease;
            let asked = (!enough).then(|| self.keep_alives.send(lease.id));
            let sent = asked.as_ref().map_or(began, |asked| asked.sent);
            self.is_unsure(claim.id, true);
            let step = if wait {
                self.stand(claim, &key, lease).await
            } else {
                self.squeeze(claim, &key, lease).await
            };
            let kept = match asked {
                Some(asked) => self.kept(asked).await,
                None => Ok(true),
            };
            match (step, kept) {
                (Err(status), _) if no_such_lease(&status) => self.drop_lease(claim.id),
                (Err(status), _) => return Err(self.fail("join", &status, true)),
                (Ok(_), Ok(false)) => self.drop_lease(claim.id),
                (Ok(_), Err(status)) => return Err(self.fail("join", &status, true)),
                (Ok(standing), Ok(true)) => {
                    self.is_unsure(claim.id, false);
                    // Also an evicted one that still stands there.
                    if !matches!(standing, Standing::Out) || self.has_place(claim.id) {
                        self.extended(claim.id, sent, claim.lease, (!enough).then_some(sent));
                    }
                    return Ok(standing);
                }
            }
        }
        Err(self.too_busy("join", &claim.name))
    }

    pub(super) fn too_busy(&self, operation: &'static str, name: &Name) -> Error {
        Error::new(ErrorKind::Unknown, operation, "others changed the line as often as it was read")
            .about(name)
            .at(&self.wire.address)
    }

    fn has_place(&self, id: ClaimId) -> bool {
        locked(&self.books).get(id).is_some_and(|record| record.ticket.is_some())
    }

    /// Nothing of it is in the store, nor on its way there: it was refused, or a try that found the line busy.
    fn is_untouched(&self, id: ClaimId) -> bool {
        locked(&self.books).get(id).is_some_and(|record| record.ticket.is_none() && !record.unsure)
    }

    pub(super) fn is_unsure(&self, id: ClaimId, unsure: bool) {
        if let Some(record) = locked(&self.books).get(id) {
            record.unsure = unsure;
        }
    }

    /// The lease is gone, and nothing that is still on its way can make a key on it.
    fn drop_lease(&self, id: ClaimId) {
        let mut books = locked(&self.books);
        books.has_ticket(id, None);
        if let Some(record) = books.get(id) {
            (record.lease, record.unsure, record.is_in) = (None, false, false);
        }
    }

    /// Notes that a place was extended by a request sent at `sent`; `kept` tells when the server's lease was begun anew.
    pub(super) fn extended(&self, id: ClaimId, sent: Time, lease: Duration, kept: Option<Time>) {
        if locked(&self.books).extended(id, sent, lease, kept) {
            self.reaper.notify_one();
        }
    }

    /// The lease that a claim has, an idle one, or a new one.
    async fn lease_of(&self, claim: &Claim) -> Result<Lease> {
        let seconds = seconds_for(claim.lease);
        {
            let mut books = locked(&self.books);
            if let Some(lease) = books.get(claim.id).and_then(|record| record.lease) {
                return Ok(lease);
            }
            if let Some(lease) = books.idle.take(seconds, BootClock.now()) {
                return Ok(lease);
            }
        }
        self.grant(seconds).await.map_err(|status| self.fail("join", &status, false))
    }

    /// Makes a place at the end of the line, or finds it there.
    ///
    /// If this process has a place there already, that one is asked for instead of the line: as long as it stands, the new
    /// one waits, and a server that has to read a whole line for each who joins is slow when a thousand do.
    async fn stand(&self, claim: &Claim, key: &[u8], lease: Lease) -> std::result::Result<Standing, Status> {
        let line = self.layout.line(&claim.name);
        let known_as = QuietLines::key(&claim.name);
        if claim.mode == Mode::Exclusive && self.quiet.has(known_as) {
            if let Some(standing) = self.stand_alone(claim, key, lease, &line).await? {
                return Ok(standing);
            }
            self.quiet.note(known_as, false);
        }
        let witness = match claim.mode {
            Mode::Exclusive => locked(&self.books).last_before(&claim.name, i64::MAX, claim.id),
            Mode::Shared | Mode::Permits { .. } => None,
        };
        let mut success = vec![self.put(claim, key, lease)];
        match &witness {
            Some(witness) => {
                let one = RangeRequest { keys_only: true, ..Keys::one(witness.clone()).read() };
                success.extend([one.into(), RangeRequest { count_only: true, ..line.read() }.into()]);
            }
            None => success.push(first_question(&line, claim.mode).into()),
        }
        let failure = vec![Keys::one(key.to_vec()).read().into()];
        let mut answer = self.txn(vec![Compare::created_at(key, 0)], success, failure).await?;
        if !answer.succeeded {
            return self.found_again(claim, &line, answer.range(0).kvs.pop().map(Seen::new)).await;
        }
        let revision = answer.revision();
        let found = match witness {
            Some(witness) if answer.range(1).kvs.iter().any(|kv| kv.create_revision < revision) => {
                let ahead = u32::try_from(answer.range(2).count - 1).unwrap_or_default().max(1);
                // Others of this process may stand between by now: only the one right before it is to wake it.
                let nearest = locked(&self.books).last_before(&claim.name, revision, claim.id);
                Found::Waits { ahead, on: Keys::one(nearest.unwrap_or(witness)) }
            }
            Some(_) => Found::Unclear,
            None => judge(&line, claim.mode, revision, answer.range(1), false),
        };
        // Whoever shares it may be in beside others.
        self.quiet.note(known_as, found == Found::In && claim.mode == Mode::Exclusive);
        self.settle(claim, &line, revision, found).await
    }

    /// Makes a place in a line that is probably empty: nothing has to be read then. `None` if it is not, or the place is there
    /// already; nothing was done.
    async fn stand_alone(
        &self,
        claim: &Claim,
        key: &[u8],
        lease: Lease,
        line: &Keys,
    ) -> std::result::Result<Option<Standing>, Status> {
        let empty = Compare::empty(&line.key, &line.end);
        let answer = self.txn(vec![empty], vec![self.put(claim, key, lease)], Vec::new()).await?;
        Ok(answer.succeeded.then(|| self.stands(claim, answer.revision(), Found::In)))
    }

    fn put(&self, claim: &Claim, key: &[u8], lease: Lease) -> RequestOp {
        let value = Card::of(claim, &self.process).encode();
        PutRequest { key: key.to_vec(), value, lease: lease.id, ..PutRequest::default() }.into()
    }

    /// A place that was there before: an earlier answer got lost.
    async fn found_again(
        &self,
        claim: &Claim,
        line: &Keys,
        place: Option<Seen>,
    ) -> std::result::Result<Standing, Status> {
        let Some(place) = place else { return Err(Status::aborted("the place went while it was looked at")) };
        let revision = place.kv.create_revision;
        if place.card.is_some_and(|card| card.closed) {
            locked(&self.books).has_ticket(claim.id, Some(revision));
            return Ok(Standing::Out);
        }
        let answer = self.range(question(line, claim.mode, revision)).await?;
        let found = judge(line, claim.mode, revision, answer, false);
        self.settle(claim, line, revision, found).await
    }

    /// Reads on if what was read is not enough.
    pub(super) async fn settle(
        &self,
        claim: &Claim,
        line: &Keys,
        revision: i64,
        found: Found,
    ) -> std::result::Result<Standing, Status> {
        let found = match found {
            Found::Unclear => self.ask_clearly(claim, line, revision).await?,
            clear => clear,
        };
        Ok(self.stands(claim, revision, found))
    }

    async fn ask_clearly(
        &self,
        claim: &Claim,
        line: &Keys,
        revision: i64,
    ) -> std::result::Result<Found, Status> {
        let answer = self.range(question(line, claim.mode, revision)).await?;
        match judge(line, claim.mode, revision, answer, false) {
            Found::Unclear => {
                let answer = self.range(whole_line(line, revision)).await?;
                Ok(judge(line, claim.mode, revision, answer, true))
            }
            clear => Ok(clear),
        }
    }

    /// Makes a place only if it is in at once. On a free lock that is one step; beside others that it fits with, what was
    /// read must still be so when it is written.
    async fn squeeze(
        &self,
        claim: &Claim,
        key: &[u8],
        lease: Lease,
    ) -> std::result::Result<Standing, Status> {
        let line = self.layout.line(&claim.name);
        let mut unchanged = Compare::empty(&line.key, &line.end);
        for _ in 0..TRIES {
            let put = self.put(claim, key, lease);
            let mut answer = self
                .txn(vec![unchanged, Compare::created_at(key, 0)], vec![put], vec![line.in_order().into()])
                .await?;
            let revision = answer.revision();
            if answer.succeeded {
                return Ok(self.stands(claim, revision, Found::In));
            }
            let mut places = Seen::all(&line, answer.range(0).kvs);
            if let Some(at) = places.iter().position(|place| place.kv.key == key) {
                let own = places.swap_remove(at);
                return self.found_again(claim, &line, Some(own)).await;
            }
            if stands_behind(&line, claim.mode, &places) != Found::In {
                return Ok(Standing::Out);
            }
            unchanged = Compare::none_since(&line.key, &line.end, revision);
        }
        Err(Status::aborted("others changed the line as often as it was read"))
    }

    pub(super) async fn leave(self: &Arc<Self>, place: &Place) -> Result<()> {
        // What this process did not make it cannot have in the store.
        let known = |record: &mut Record| record.claim.name == place.name;
        if !locked(&self.books).get(place.id).is_some_and(known) {
            return Ok(());
        }
        let (inner, id) = (self.clone(), place.id);
        self.in_turn(id, async move { inner.take_away(id, "leave").await }).await
    }

    /// Takes a claim out of the store and the books.
    pub(super) async fn take_away(self: &Arc<Self>, id: ClaimId, operation: &'static str) -> Result<()> {
        let gone = {
            let mut books = locked(&self.books);
            let Some(record) = books.get(id) else { return Ok(()) };
            Gone::of(record)
        };
        let done = match &gone.shared {
            Some(shared) => self.delete_hold(&gone, shared).await,
            None => self.delete_place(&gone).await,
        };
        self.unsure(operation, done)?;
        let free = locked(&self.books).remove(id);
        self.keep_idle(free, gone.unsure);
        self.went(&gone.name, gone.place_key());
        Ok(())
    }

    async fn delete_place(&self, gone: &Gone) -> std::result::Result<(), Status> {
        if let Some(fixed) = gone.fixed {
            self.revoke(fixed.id).await?;
        }
        match gone.lease {
            // Whatever is on its way to its key must find its lease gone.
            Some(lease) if gone.unsure => self.revoke(lease.id).await,
            Some(_) if gone.fixed.is_none() => self.delete(&Keys::one(gone.key.clone())).await,
            _ => Ok(()),
        }
    }

    fn forget(&self, id: ClaimId) {
        let free = locked(&self.books).remove(id);
        self.keep_idle(free, false);
    }

    /// The lease of a claim that is gone waits for the next one.
    fn keep_idle(&self, record: Option<Record>, revoked: bool) {
        let Some(record) = record.filter(|record| !revoked && !record.lapsed && !record.unsure) else {
            return;
        };
        if let Some(lease) = record.lease {
            // One that is not kept ends by itself.
            locked(&self.books).idle.keep(seconds_for(record.claim.lease), lease);
        }
    }

    /// Tells those of this process who waited for a place that it is gone.
    pub(super) fn went(self: &Arc<Self>, name: &Name, key: &[u8]) {
        self.look_for(&Keys::one(key.to_vec()));
        self.look_for(&self.layout.line(name));
    }

    /// Looks whether a claim that waits is in by now, and rings if so. Its own key is read again in the same step: what has
    /// no place must not hear that it is in.
    pub(super) async fn look(self: &Arc<Self>, id: ClaimId) {
        let Some((claim, revision, key)) = locked(&self.books).get(id).and_then(|record| {
            let key = record.shared.as_ref().map_or(&record.key, |shared| &shared.key).clone();
            let waits = !record.is_in && !record.lapsed;
            record.ticket.filter(|_| waits).map(|ticket| (record.claim.clone(), ticket, key))
        }) else {
            return;
        };
        let line = self.layout.line(&claim.name);
        let reads = vec![Keys::one(key).read().into(), question(&line, claim.mode, revision).into()];
        let Ok(mut answer) = self.txn(Vec::new(), reads, Vec::new()).await else { return };
        let own = answer.range(0).kvs.pop().filter(|kv| kv.create_revision == revision);
        let Some(own) = own.map(Seen::new) else { return };
        let ring = |news| self.board.ring(&claim.name, &Bell { id, ticket: ticket(revision), news });
        if own.card.is_some_and(|card| card.closed) {
            return ring(News::Out);
        }
        let found = judge(&line, claim.mode, revision, answer.range(1), false);
        // Somebody may have found it in meanwhile, and said so.
        let waited = |inner: &Inner| locked(&inner.books).get(id).is_some_and(|record| !record.is_in);
        if !waited(self) {
            return;
        }
        if let Ok(Standing::In { .. }) = self.settle(&claim, &line, revision, found).await {
            ring(News::In);
        }
    }
}

/// What has to be known of a claim to take it away.
#[derive(Debug)]
pub(super) struct Gone {
    pub(super) name: Name,
    pub(super) key: Vec<u8>,
    pub(super) shared: Option<super::books::SharedPlace>,
    pub(super) lease: Option<Lease>,
    pub(super) fixed: Option<Lease>,
    pub(super) ticket: Option<i64>,
    pub(super) unsure: bool,
}

impl Gone {
    fn of(record: &Record) -> Gone {
        Gone {
            name: record.claim.name.clone(),
            key: record.key.clone(),
            shared: record.shared.clone(),
            lease: record.lease,
            fixed: record.fixed.map(|(lease, _)| lease),
            ticket: record.ticket,
            unsure: record.unsure,
        }
    }

    fn place_key(&self) -> &[u8] {
        self.shared.as_ref().map_or(&self.key, |shared| &shared.key)
    }
}

pub(super) fn delete_op(key: &[u8]) -> RequestOp {
    DeleteRangeRequest { key: key.to_vec(), range_end: Vec::new() }.into()
}
