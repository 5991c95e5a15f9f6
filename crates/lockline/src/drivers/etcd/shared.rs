//! Places that several processes of one identity stand on.
//!
//! The place is an ordinary key of the line, with a name that all of them can compute, on a lease that each of them keeps
//! alive. Each hold is a key of its own beside the line, on a lease of its own. Whoever takes the last hold away takes the
//! place away in the same step; if they all die, the leases do it.

use std::sync::Arc;
use std::time::Duration;

use tonic::Status;

use super::Inner;
use super::books::SharedPlace;
use super::error::no_such_lease;
use super::lease::seconds_for;
use super::place::{Card, Keys, Seen};
use super::proto::{Compare, PutRequest, RequestOp};
use super::standing::{Found, first_question, judge, question, stands_behind, whole_line};
use super::verbs::{Gone, TRIES, delete_op};
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, Standing};
use crate::sync::locked;
use crate::time::BootClock;

impl Inner {
    pub(super) async fn join_shared(
        self: &Arc<Self>,
        claim: &Claim,
        identity: &str,
        wait: bool,
    ) -> Result<Standing> {
        let mut after = 0;
        for _ in 0..TRIES {
            let place = self.layout.shared_key(&claim.name, identity, after);
            let read = self.range(Keys::one(place.clone()).read()).await;
            let found = self.unsure("join", read)?.kvs.pop().map(Seen::new);
            let step = match found {
                None => self.make_shared(claim, &place, wait).await,
                Some(seen) if seen.card.as_ref().is_some_and(|card| card.closed) => {
                    if locked(&self.books).on_place(&claim.name, seen.kv.create_revision).contains(&claim.id)
                    {
                        return Ok(Standing::Out);
                    }
                    after = seen.kv.create_revision;
                    continue;
                }
                Some(seen) if seen.mode() != claim.mode => return Err(self.would_wait_for_itself(claim)),
                Some(seen) => self.enter_shared(claim, &seen, wait).await,
            };
            match step {
                Ok(Some(standing)) => return Ok(standing),
                Ok(None) => {}
                Err(status) if no_such_lease(&status) => {}
                Err(status) => return Err(self.fail("join", &status, true)),
            }
        }
        Err(self.too_busy("join", &claim.name))
    }

    fn would_wait_for_itself(&self, claim: &Claim) -> Error {
        let message = "this owner already stands in the line in another mode and would wait for itself";
        Error::new(ErrorKind::Deadlock, "join", message)
            .hint("release what the owner has on this name first")
            .about(&claim.name)
            .at(&self.wire.address)
    }

    /// The first hold makes the place. `None`: something changed meanwhile.
    async fn make_shared(
        &self,
        claim: &Claim,
        place: &[u8],
        wait: bool,
    ) -> std::result::Result<Option<Standing>, Status> {
        let line = self.layout.line(&claim.name);
        let mut compare = vec![Compare::created_at(place, 0)];
        if !wait {
            let read = self.range(line.in_order()).await?;
            let revision = read.header.map_or(0, |header| header.revision);
            if stands_behind(&line, claim.mode, &Seen::all(&line, read.kvs)) != Found::In {
                return Ok(Some(Standing::Out));
            }
            compare.push(Compare::none_since(&line.key, &line.end, revision));
        }
        let sent = BootClock.now();
        let (own, common) =
            (self.grant(seconds_for(claim.lease)).await?, self.grant(seconds_for(claim.lease)).await?);
        let hold = self.layout.hold(place, own.id);
        let shared = SharedPlace { key: place.to_vec(), lease: common.id };
        self.stands_on_shared(claim, &hold, own, shared);
        let holds = self.layout.holds(place);
        compare.push(Compare::empty(&holds.key, &holds.end));
        let puts = vec![
            self.put_card(claim, place, common.id),
            self.put_card(claim, &hold, own.id),
            first_question(&line, claim.mode).into(),
        ];
        // Holds of a place that is gone belong to nobody: their owners have lost it.
        let mut answer = self.txn(compare, puts, vec![Keys::one(place.to_vec()).read().into()]).await?;
        if !answer.succeeded {
            if answer.range(0).kvs.is_empty() {
                self.delete(&holds).await?;
            }
            return Ok(None);
        }
        let revision = answer.revision();
        let found = judge(&line, claim.mode, revision, answer.range(2), false);
        let standing = self.settle(claim, &line, revision, found).await?;
        self.is_unsure(claim.id, false);
        self.extended(claim.id, sent, claim.lease, None);
        Ok(Some(standing))
    }

    /// A further hold on the place, or the same one again.
    async fn enter_shared(
        &self,
        claim: &Claim,
        seen: &Seen,
        wait: bool,
    ) -> std::result::Result<Option<Standing>, Status> {
        let line = self.layout.line(&claim.name);
        let (place, revision) = (&seen.kv.key, seen.kv.create_revision);
        let known =
            locked(&self.books).get(claim.id).and_then(|record| record.lease.zip(record.shared.clone()));
        let known = known.filter(|(_, shared)| shared.key == *place).map(|(own, _)| own);
        let read = self.range(whole_line(&line, revision)).await?;
        let found = judge(&line, claim.mode, revision, read, true);
        if !wait && found != Found::In && known.is_none() {
            return Ok(Some(Standing::Out));
        }
        let sent = BootClock.now();
        let Some(common) = self.common_lease(seen, claim.lease).await? else { return Ok(None) };
        let own = match known {
            Some(own) if self.keep_alive(own.id).await? => own,
            _ => self.grant(seconds_for(claim.lease)).await?,
        };
        let hold = self.layout.hold(place, own.id);
        self.stands_on_shared(claim, &hold, own, SharedPlace { key: place.clone(), lease: common });
        // Still the same place, kept alive by the lease that was begun anew.
        let compare = vec![Compare::created_at(place, revision), Compare::on_lease(place, common)];
        let answer = self.txn(compare, vec![self.put_card(claim, &hold, own.id)], Vec::new()).await?;
        if !answer.succeeded {
            return Ok(None);
        }
        let standing = self.stands(claim, revision, found);
        self.is_unsure(claim.id, false);
        self.extended(claim.id, sent, claim.lease, Some(sent));
        Ok(Some(standing))
    }

    fn stands_on_shared(&self, claim: &Claim, hold: &[u8], own: super::lease::Lease, shared: SharedPlace) {
        let mut books = locked(&self.books);
        books.stands_on(claim.id, hold.to_vec(), own);
        if let Some(record) = books.get(claim.id) {
            record.shared = Some(shared);
            record.unsure = true;
        }
    }

    fn put_card(&self, claim: &Claim, key: &[u8], lease: i64) -> RequestOp {
        let value = Card::of(claim, &self.process).encode();
        PutRequest { key: key.to_vec(), value, lease, ..PutRequest::default() }.into()
    }

    /// Begins the lease of a shared place anew; if it is too short for `lease`, gives the place a longer one. `None`: it is
    /// gone, or somebody else was faster.
    pub(super) async fn common_lease(
        &self,
        seen: &Seen,
        lease: Duration,
    ) -> std::result::Result<Option<i64>, Status> {
        let granted = self.keep_alives.answer(self.keep_alives.send(seen.kv.lease)).await?;
        if granted <= 0 {
            return Ok(None);
        }
        if granted >= seconds_for(lease) {
            return Ok(Some(seen.kv.lease));
        }
        let longer = self.grant(seconds_for(lease)).await?;
        let compare = vec![
            Compare::created_at(&seen.kv.key, seen.kv.create_revision),
            Compare::on_lease(&seen.kv.key, seen.kv.lease),
        ];
        let put = PutRequest {
            key: seen.kv.key.clone(),
            lease: longer.id,
            ignore_value: true,
            ..PutRequest::default()
        };
        let moved = self.txn(compare, vec![put.into()], Vec::new()).await?;
        Ok(moved.succeeded.then_some(longer.id))
    }

    /// Takes a hold away, and the place if it was the last. What is still on its way to the hold finds its lease gone.
    pub(super) async fn delete_hold(
        &self,
        gone: &Gone,
        shared: &SharedPlace,
    ) -> std::result::Result<(), Status> {
        for own in [gone.lease, gone.fixed].into_iter().flatten().filter(|_| gone.unsure) {
            self.revoke(own.id).await?;
        }
        let holds = self.layout.holds(&shared.key);
        let after = [gone.key.as_slice(), &[0]].concat();
        let mut last = vec![Compare::empty(&holds.key, &gone.key), Compare::empty(&after, &holds.end)];
        if let Some(ticket) = gone.ticket {
            last.push(Compare::created_at(&shared.key, ticket));
        }
        let (hold, place) = (delete_op(&gone.key), delete_op(&shared.key));
        self.txn(last, vec![hold.clone(), place], vec![hold]).await?;
        Ok(())
    }

    /// Renews a hold: its own lease, and the one of the place, whichever that is by now.
    pub(super) async fn renew_shared(
        &self,
        claim: &Claim,
        shared: &SharedPlace,
        hold: &[u8],
        revision: i64,
        lease: Duration,
    ) -> std::result::Result<Standing, Status> {
        let line = self.layout.line(&claim.name);
        let sent = BootClock.now();
        let Some(own) = locked(&self.books).get(claim.id).and_then(|record| record.lease) else {
            return Ok(Standing::Lapsed);
        };
        let mut common = shared.lease;
        for _ in 0..TRIES {
            let (asked_own, asked) = (self.keep_alives.send(own.id), self.keep_alives.send(common));
            let (kept_own, kept) = (self.kept(asked_own).await?, self.kept(asked).await?);
            let reads = vec![
                Keys::one(shared.key.clone()).read().into(),
                Keys::one(hold.to_vec()).read().into(),
                question(&line, claim.mode, revision).into(),
            ];
            let mut answer = self.txn(Vec::new(), reads, Vec::new()).await?;
            let place = answer.range(0).kvs.pop().filter(|kv| kv.create_revision == revision).map(Seen::new);
            let (Some(place), Some(_), true) = (place, answer.range(1).kvs.pop(), kept_own) else {
                return Ok(Standing::Lapsed);
            };
            if place.card.as_ref().is_some_and(|card| card.closed) {
                return Ok(Standing::Out);
            }
            if place.kv.lease != common || !kept {
                // Somebody gave it a longer one: that is the one to keep alive.
                common = place.kv.lease;
                continue;
            }
            if let Some(place) = locked(&self.books).get(claim.id).and_then(|record| record.shared.as_mut()) {
                place.lease = common;
            }
            self.extended(claim.id, sent, lease, Some(sent));
            let found = judge(&line, claim.mode, revision, answer.range(2), false);
            return self.settle(claim, &line, revision, found).await;
        }
        Err(Status::aborted("others changed the place as often as it was read"))
    }
}
