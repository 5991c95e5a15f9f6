//! One claim of this client: what was asked for, and what is believed about it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::meters::Meters;
use super::validity::{Belief, Phase};
use crate::error::{Error, LossReason};
use crate::line::{Claim, News, Place, Standing, Ticket};
use crate::sync::locked;
use crate::time::Time;

/// A claim that this client has in some line.
#[derive(Debug)]
pub(crate) struct Spot {
    pub(crate) claim: Claim,
    belief: Mutex<Belief>,
    changed: Notify,
    /// Its lease is fixed: nothing renews it once it is in.
    fixed: AtomicBool,
    /// How many replicas have the place, plus one; 0 where none was waited for.
    replicas: AtomicU32,
    /// What the engine said when it could not be asked last, until it answers again.
    trouble: Mutex<Option<Error>>,
    meters: Arc<Meters>,
}

impl Spot {
    pub(crate) fn new(claim: Claim, meters: Arc<Meters>) -> Spot {
        Spot {
            claim,
            belief: Mutex::new(Belief::new()),
            changed: Notify::new(),
            fixed: AtomicBool::new(false),
            replicas: AtomicU32::new(0),
            trouble: Mutex::new(None),
            meters,
        }
    }

    pub(crate) fn renews(&self) -> bool {
        !self.fixed.load(Ordering::Acquire)
    }

    pub(crate) fn stop_renewing(&self) {
        self.fixed.store(true, Ordering::Release);
    }

    pub(crate) fn acknowledged(&self, replicas: u32) {
        self.replicas.store(replicas.saturating_add(1), Ordering::Release);
    }

    pub(crate) fn replicas(&self) -> Option<u32> {
        self.replicas.load(Ordering::Acquire).checked_sub(1)
    }

    /// Where the claim stands, looked at now. Whoever looks first after the lease ran out makes it known to all.
    pub(crate) fn look(&self, now: Time) -> Phase {
        self.update(now, |_| ())
    }

    pub(crate) fn answer(&self, sent: Time, now: Time, lease: Duration, standing: Standing) -> Phase {
        if standing != Standing::Unsure {
            *locked(&self.trouble) = None;
        }
        self.update(now, |belief| belief.answer(sent, now, lease, standing))
    }

    pub(crate) fn bell(&self, ticket: Ticket, news: News, now: Time) -> Phase {
        self.update(now, |belief| belief.bell(ticket, news, now, self.claim.lease))
    }

    pub(crate) fn lose(&self, now: Time, reason: LossReason) -> Phase {
        self.update(now, |belief| belief.lose(reason))
    }

    pub(crate) fn ends_at(&self, now: Time, end: Time, reason: LossReason) -> Phase {
        self.update(now, |belief| belief.ends_at(end, reason))
    }

    pub(crate) fn unreachable(&self, now: Time, error: &Error) -> Phase {
        *locked(&self.trouble) = Some(error.again().about(&self.claim.name));
        self.update(now, |belief| belief.unreachable = true)
    }

    /// Why the engine could not be asked about the claim when it was last tried, if it did not answer since.
    pub(crate) fn trouble(&self) -> Option<Error> {
        locked(&self.trouble).as_ref().map(Error::again)
    }

    fn update(&self, now: Time, change: impl FnOnce(&mut Belief)) -> Phase {
        let mut belief = locked(&self.belief);
        let before = belief.phase();
        change(&mut belief);
        let after = belief.look(now);
        drop(belief);
        if before != after && !mutant!(LookIsSilent) {
            self.changed.notify_waiters();
        }
        if let (Phase::In, Phase::Lost(reason)) = (before, after) {
            self.meters.lost(reason);
            tracing::warn!(lock = %self.claim.name, reason = reason.word(), "lost the lock: {reason}");
        }
        after
    }

    pub(crate) fn ticket(&self) -> Option<Ticket> {
        locked(&self.belief).ticket()
    }

    pub(crate) fn valid_until(&self) -> Time {
        locked(&self.belief).valid_until()
    }

    /// A future that is ready at the next change after this call, however long it takes until it is awaited.
    pub(crate) fn changed(&self) -> std::pin::Pin<Box<tokio::sync::futures::Notified<'_>>> {
        let mut changed = Box::pin(self.changed.notified());
        changed.as_mut().enable();
        changed
    }

    pub(crate) fn place(&self) -> Place {
        Place {
            name: self.claim.name.clone(),
            id: self.claim.id,
            ticket: self.ticket(),
            lease: self.claim.lease,
            last: false,
        }
    }
}
