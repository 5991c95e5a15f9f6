//! Renewing many places at once, and the one renewal of a fixed lease.

use std::sync::Arc;

use tonic::Status;

use super::Inner;
use super::books::SharedPlace;
use super::lease::{Asked, Lease, seconds_for};
use super::place::{Keys, Seen};
use super::proto::{Compare, PutRequest, RangeResponse, RequestOp};
use super::standing::{cheap_question, judge_cheaply};
use super::store::MOST_OPERATIONS;
use crate::error::Result;
use crate::line::{Claim, Place, Standing};
use crate::sync::locked;
use crate::time::BootClock;

/// A claim as its renewal finds it.
struct Asking {
    claim: Claim,
    key: Vec<u8>,
    shared: Option<SharedPlace>,
    revision: i64,
    lease: Lease,
    is_in: bool,
    waits_for: Option<Keys>,
    fixed: bool,
    /// The end of the hold is set, and its key hangs on what it ends with.
    hung: bool,
    /// The renewal is for the place that it has: a renewal for another one extends nothing.
    its_own: bool,
}

impl Inner {
    fn asking(&self, place: &Place) -> Option<Asking> {
        let mut books = locked(&self.books);
        let record =
            books.get(place.id).filter(|record| !record.lapsed && record.claim.name == place.name)?;
        // A deadline that has passed without the reaper having looked: it has lapsed.
        if record.deadline.is_some_and(|deadline| deadline <= BootClock.now()) {
            return None;
        }
        let revision = record.ticket?;
        Some(Asking {
            claim: record.claim.clone(),
            key: record.key.clone(),
            shared: record.shared.clone(),
            revision,
            lease: record.fixed.map(|(lease, _)| lease).or(record.lease)?,
            is_in: record.is_in,
            waits_for: record.waits_for.clone(),
            fixed: record.fixed.is_some(),
            hung: record.hung,
            its_own: place.ticket.is_none_or(|ticket| super::place::revision(ticket) == revision),
        })
    }

    /// To its end, whoever waits for it: what it grants or moves must be known here.
    pub(super) async fn renew(self: &Arc<Self>, places: &[Place]) -> Result<Vec<Standing>> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let (inner, places) = (self.clone(), places.to_vec());
        let renewed = self.runtime.spawn(async move { inner.renew_all(&places).await });
        renewed
            .await
            .unwrap_or_else(|_| self.unsure("renew", Err(Status::unavailable("the runtime was shut down"))))
    }

    async fn renew_all(&self, places: &[Place]) -> Result<Vec<Standing>> {
        let mut standings = vec![Standing::Lapsed; places.len()];
        let mut many = Vec::new();
        for (at, place) in places.iter().enumerate() {
            let Some(asking) = self.asking(place) else { continue };
            if asking.its_own && place.last && asking.is_in && !asking.hung {
                let fixed = self.fix(&asking, place).await;
                standings[at] = self.unsure("renew", fixed)?;
            } else if let (Some(shared), true) = (&asking.shared, asking.its_own && !asking.fixed) {
                let renewed =
                    self.renew_shared(&asking.claim, shared, &asking.key, asking.revision, place.lease).await;
                standings[at] = self.unsure("renew", renewed)?;
            } else {
                many.push((at, place, asking));
            }
        }
        for some in many.chunks(MOST_OPERATIONS / 2) {
            let renewed = self.renew_some(some, &mut standings).await;
            self.unsure("renew", renewed)?;
        }
        Ok(standings)
    }

    /// Keeps the leases of some places alive, and reads where they stand: one step for all.
    async fn renew_some(
        &self,
        some: &[(usize, &Place, Asking)],
        standings: &mut [Standing],
    ) -> std::result::Result<(), Status> {
        let mut kept: Vec<Option<Asked>> = Vec::new();
        let mut reads: Vec<RequestOp> = Vec::new();
        for (_, place, asking) in some {
            let longer = seconds_for(place.lease) > asking.lease.ttl.as_secs().cast_signed();
            if asking.its_own && !asking.fixed && longer {
                self.move_to(asking, self.grant(seconds_for(place.lease)).await?).await?;
            }
            kept.push(
                (asking.its_own && !asking.fixed).then(|| self.keep_alives.send(self.lease_now(asking))),
            );
            let own = asking.shared.as_ref().map_or(&asking.key, |shared| &shared.key);
            reads.push(Keys::one(own.clone()).read().into());
            let line = self.layout.line(&asking.claim.name);
            if !asking.is_in {
                let (mode, waits_for) = (asking.claim.mode, asking.waits_for.as_ref());
                reads.push(cheap_question(&line, mode, asking.revision, waits_for).into());
            }
        }
        let mut answer = self.txn(Vec::new(), reads, Vec::new()).await?;
        let mut nth = 0;
        let mut next = || {
            nth += 1;
            answer.range(nth - 1)
        };
        for ((at, place, asking), asked) in some.iter().zip(kept) {
            let sent = asked.as_ref().map(|asked| asked.sent);
            let own = next();
            let line = if asking.is_in { RangeResponse::default() } else { next() };
            let alive = match asked {
                Some(asked) => self.kept(asked).await?,
                None => true,
            };
            standings[*at] = if alive { self.standing(asking, own, line).await? } else { Standing::Lapsed };
            if let (Some(sent), Some(_)) = (sent, standings[*at].ticket()) {
                self.extended(place.id, sent, place.lease, Some(sent));
            }
        }
        Ok(())
    }

    fn lease_now(&self, asking: &Asking) -> i64 {
        let now = locked(&self.books).get(asking.claim.id).and_then(|record| record.lease);
        now.map_or(asking.lease.id, |lease| lease.id)
    }

    async fn standing(
        &self,
        asking: &Asking,
        own: RangeResponse,
        line: RangeResponse,
    ) -> std::result::Result<Standing, Status> {
        let own = own.kvs.into_iter().next().map(Seen::new);
        let Some(own) = own.filter(|own| own.kv.create_revision == asking.revision) else {
            return Ok(Standing::Lapsed);
        };
        if own.card.is_some_and(|card| card.closed) {
            return Ok(Standing::Out);
        }
        if asking.is_in {
            return Ok(Standing::In { ticket: super::place::ticket(asking.revision) });
        }
        let keys = self.layout.line(&asking.claim.name);
        let (mode, waits_for) = (asking.claim.mode, asking.waits_for.as_ref());
        let found = judge_cheaply(&keys, mode, asking.revision, waits_for, line);
        self.settle(&asking.claim, &keys, asking.revision, found).await
    }

    /// Hangs a place on another lease of the same length or longer.
    async fn move_to(&self, asking: &Asking, lease: Lease) -> std::result::Result<bool, Status> {
        self.is_unsure(asking.claim.id, true);
        let moved = self.hang_on(asking, lease).await?;
        let mut books = locked(&self.books);
        if let Some(record) = books.get(asking.claim.id) {
            record.unsure = false;
            if moved {
                record.lease = Some(lease);
            }
        }
        Ok(moved)
    }

    async fn hang_on(&self, asking: &Asking, lease: Lease) -> std::result::Result<bool, Status> {
        let put = PutRequest {
            key: asking.key.clone(),
            lease: lease.id,
            ignore_value: true,
            ..PutRequest::default()
        };
        let place = asking.shared.as_ref().map_or(&asking.key, |shared| &shared.key);
        let here = vec![Compare::created_at(place, asking.revision)];
        match self.txn(here, vec![put.into()], Vec::new()).await {
            Ok(answer) => Ok(answer.succeeded),
            // A hold that is gone from a place that is still there.
            Err(status) if status.message().contains("key not found") => Ok(false),
            Err(status) => Err(status),
        }
    }

    /// Sets the end of a hold, once: its key moves to a lease of its own, which nothing keeps alive.
    async fn fix(&self, asking: &Asking, place: &Place) -> std::result::Result<Standing, Status> {
        let sent = BootClock.now();
        if let Some(shared) = &asking.shared {
            // The common place must live as long as the longest hold on it.
            let read = self.range(Keys::one(shared.key.clone()).read()).await?;
            let seen = read.kvs.into_iter().next().map(Seen::new);
            let Some(seen) = seen.filter(|seen| seen.kv.create_revision == asking.revision) else {
                return Ok(Standing::Lapsed);
            };
            if self.common_lease(&seen, place.lease).await?.is_none() {
                return Err(Status::aborted("the shared place changed"));
            }
        }
        // Asked again after a lost answer: the same lease, and the same end.
        let known = locked(&self.books).get(place.id).and_then(|record| record.fixed);
        let (lease, end) = match known {
            Some(known) => known,
            None => (self.grant(seconds_for(place.lease)).await?, sent + place.lease),
        };
        {
            let mut books = locked(&self.books);
            let Some(record) = books.get(place.id).filter(|record| !record.lapsed) else {
                return Ok(Standing::Lapsed);
            };
            // Whatever comes of the next step: nothing extends it any more.
            record.fixed = Some((lease, end));
            record.unsure = true;
            books.lapses_at(place.id, end);
        }
        self.reaper.notify_one();
        let moved = self.hang_on(asking, lease).await?;
        if let Some(record) = locked(&self.books).get(place.id) {
            (record.unsure, record.hung) = (false, moved);
        }
        Ok(if moved {
            Standing::In { ticket: super::place::ticket(asking.revision) }
        } else {
            Standing::Lapsed
        })
    }
}
