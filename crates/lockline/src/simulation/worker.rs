//! Somebody who works with locks: asks in one of the ways there are, holds, looks, changes its mind.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::time::sleep;

use super::arena::{Arena, Hold, PERMITS, Visit};
use super::chance::{below, strikes};
use super::engine::Engine;
use super::faults::{Fault, Faults};
use super::host::Host;
use super::network::Way;
use crate::line::Ticket;
use crate::time::Time;
use crate::{ErrorKind, Guard, Locks, LossReason, Owner, Result};

/// The locks of a world. The first few are mutexes; a world uses some of them.
pub(super) const LOCKS: [&str; 8] =
    ["mutex a", "mutex b", "mutex c", "mutex d", "mutex e", "mutex f", "read-write", "permits"];
pub(super) const MUTEXES: usize = 6;

/// In fair weather, from the engine's grant to the guard: some messages to and fro. Who misses a bell is much later.
const HANDOFF: Duration = Duration::from_millis(40);

/// What all workers of a host share.
pub(super) struct Worker {
    pub(super) host: Host,
    pub(super) way: Arc<Way>,
    pub(super) locks: Locks,
    pub(super) owner: Owner,
    pub(super) engine: Arc<Engine>,
    pub(super) lease: Duration,
    pub(super) arena: Arc<Arena>,
    pub(super) faults: Arc<Faults>,
    pub(super) over: Arc<AtomicBool>,
    /// How many of the mutexes are used.
    pub(super) mutexes: usize,
    /// How long it holds at most, usually, in thousandths of a lease.
    pub(super) stay: u64,
    /// How often, in a thousand turns, it takes a lock only to let it go again.
    pub(super) haste: u64,
}

/// What somebody asks for, and how.
struct Wish {
    lock: &'static str,
    hold: Hold,
    by_owner: bool,
    manner: Manner,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Plain,
    Try,
    TryFor,
    Fixed,
    Capped,
    /// Together with another one.
    All(&'static str),
}

impl Worker {
    pub(super) async fn work(self) {
        while !self.over.load(Ordering::Relaxed) {
            let wish = self.wishes();
            let got = self.get(&wish).await;
            self.arena.note(
                self.host.true_time(),
                &[self.host.number() as u64, u64::from(matches!(got, Ok(Some(_))))],
            );
            match got {
                Ok(Some(guard)) => self.hold(&wish, guard).await,
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::Closed => return,
                // An eviction, or an engine that did not answer for a lease.
                Err(_) => sleep(self.part_of_a_lease(200)).await,
            }
            if strikes(if self.haste > 0 { 100 } else { 400 }) {
                sleep(Duration::from_millis(1) + self.part_of_a_lease(self.stay / 4)).await;
            }
        }
    }

    fn part_of_a_lease(&self, most_per_mille: u64) -> Duration {
        self.lease.mul_f64(below(most_per_mille) as f64 / 1_000.0)
    }

    fn wishes(&self) -> Wish {
        let mutex = |number: u64| LOCKS[number as usize % self.mutexes];
        let by_owner = strikes(150);
        let (lock, hold) = match below(10) {
            0 => (LOCKS[MUTEXES], Hold::Alone),
            1 => (LOCKS[MUTEXES], Hold::Shared),
            2 if strikes(300) => (LOCKS[MUTEXES + 1], Hold::Alone),
            2 => (LOCKS[MUTEXES + 1], Hold::Permit),
            _ => (mutex(below(64)), Hold::Alone),
        };
        let is_mutex = LOCKS[..MUTEXES].contains(&lock);
        let manner = match (below(16), hold) {
            (0, _) => Manner::Try,
            (1, Hold::Alone | Hold::Shared) => Manner::TryFor,
            (2, Hold::Alone) if !by_owner => Manner::Fixed,
            (3, Hold::Alone) if !by_owner => Manner::Capped,
            (4, Hold::Alone) if is_mutex => Manner::All(mutex(below(64))),
            _ => Manner::Plain,
        };
        Wish { lock, hold, by_owner: by_owner && is_mutex && !matches!(manner, Manner::All(_)), manner }
    }

    /// Asks; sometimes it changes its mind and drops the future, after some time or after some polls.
    async fn get(&self, wish: &Wish) -> Result<Option<Guard>> {
        let asking = self.ask(wish);
        if self.faults.is_fair() {
            return asking.await;
        }
        let dropped = match below(24) {
            0 => tokio::time::timeout(self.part_of_a_lease(1_500), asking).await.ok(),
            1 => at_most(below(12), asking).await,
            _ => return asking.await,
        };
        dropped.unwrap_or_else(|| {
            self.faults.count(Fault::Cancelled);
            Ok(None)
        })
    }

    async fn ask(&self, wish: &Wish) -> Result<Option<Guard>> {
        let wait = self.part_of_a_lease(1_500);
        let (lock, permits) = (wish.lock, PERMITS as u32);
        let mutex = if wish.by_owner { self.owner.mutex(lock) } else { self.locks.mutex(lock) };
        match (wish.hold, wish.manner) {
            (_, Manner::All(other)) => self.locks.all([lock, other]).lock().await.map(Some),
            (Hold::Alone, Manner::Try) => mutex.try_lock().await,
            (Hold::Alone, Manner::TryFor) => mutex.try_lock_for(wait).await,
            (Hold::Alone, Manner::Fixed) => mutex.lease(self.lease / 2).fixed().lock().await.map(Some),
            (Hold::Alone, Manner::Capped) => mutex.max_hold(self.lease).lock().await.map(Some),
            (Hold::Alone, Manner::Plain) => mutex.lock().await.map(Some),
            (Hold::Shared, Manner::Try) => self.locks.rwlock(lock).try_read().await,
            (Hold::Shared, Manner::TryFor) => self.locks.rwlock(lock).try_read_for(wait).await,
            (Hold::Shared, _) => self.locks.rwlock(lock).read().await.map(Some),
            (Hold::Permit, Manner::Try) => self.locks.semaphore(lock, permits).try_acquire().await,
            (Hold::Permit, _) => self.locks.semaphore(lock, permits).acquire().await.map(Some),
        }
    }

    async fn hold(&self, wish: &Wish, guard: Guard) {
        let entered = self.host.true_time();
        if !guard.is_valid() {
            self.finds(wish, "got when it was lost already");
        }
        let visit = Visit { hold: wish.hold, host: self.host, by_owner: wish.by_owner };
        let guard = self.arena.enters(visit, guard);
        self.check_handoff(wish, &guard);
        let looks = if !self.faults.is_fair() && strikes(self.haste) { 0 } else { below(3) };
        for _ in 0..looks {
            // Now and then for longer than a lease, without a look.
            let most = if strikes(50) { 1_500 } else { self.stay };
            self.stay_inside(wish, &guard, self.part_of_a_lease(most)).await;
            self.arena.look(&guard);
            self.check_end(wish, &guard, entered);
        }
        if wish.by_owner && strikes(500) {
            self.enter_again(wish, &guard).await;
        }
        self.arena.leaves(&guard);
        let Some(guard) = Arc::into_inner(guard) else { return };
        match below(4) {
            // It may find that the lock was lost.
            0 | 1 => drop(guard.release().await),
            2 if !self.faults.is_fair() && at_most(below(4), guard.release()).await.is_none() => {
                self.faults.count(Fault::Cancelled);
            }
            _ => {}
        }
    }

    fn finds(&self, wish: &Wish, what: &str) {
        self.arena.finds(format!("{}: {what}", wish.lock));
    }

    /// Stays for some time, or until the lock is lost.
    async fn stay_inside(&self, wish: &Wish, guard: &Guard, time: Duration) {
        if guard.is_valid()
            && let Ok(lost) = tokio::time::timeout(time, guard.lost()).await
        {
            self.check_loss(wish, guard, lost.reason);
        }
    }

    /// A loss must be told while nobody else can be inside, or as soon as the process runs again; and one message that went
    /// astray costs nobody a lock.
    fn check_loss(&self, wish: &Wish, guard: &Guard, reason: LossReason) {
        let (now, awake_since) = (self.host.true_time(), self.host.awake_since());
        if let Some(grant) = self.engine.grant(wish.lock, Ticket::new(guard.fence().token()))
            && !matches!(wish.manner, Manner::All(_))
            && now > grant.stands_until.max(awake_since)
        {
            self.finds(wish, "a loss was told too late");
        }
        if matches!(wish.manner, Manner::Fixed | Manner::Capped) {
            return;
        }
        if self.arena.is_settled() {
            self.finds(wish, "lost in fair weather");
        }
        let good_since = self.way.good_since().max(awake_since);
        if matches!(reason, LossReason::Expired | LossReason::Unreachable)
            && now.since(good_since) > self.lease.mul_f64(1.2)
        {
            self.finds(wish, "lost for one message");
        }
    }

    /// A fixed lease and a capped hold end, on a clock that may be a little slow.
    fn check_end(&self, wish: &Wish, guard: &Guard, entered: Time) {
        let longest = match wish.manner {
            Manner::Fixed => self.lease / 2,
            Manner::Capped => self.lease,
            _ => return,
        };
        if guard.is_valid() && self.host.true_time().since(entered) > longest.mul_f64(1.01) {
            self.finds(wish, "held beyond its end");
        }
    }

    /// The owner takes what it holds once more: at once, and on the same place.
    async fn enter_again(&self, wish: &Wish, guard: &Guard) {
        let Ok(Some(again)) = self.owner.mutex(wish.lock).try_lock().await else {
            if guard.is_valid() {
                self.finds(wish, "its owner could not enter again");
            }
            return;
        };
        if !again.is_valid() {
            self.finds(wish, "got when it was lost already");
        }
        let visit = Visit { hold: wish.hold, host: self.host, by_owner: true };
        let again = self.arena.enters(visit, again);
        if guard.is_valid() && again.fence().token() != guard.fence().token() {
            self.finds(wish, "entering again was another grant");
        }
        self.arena.leaves(&again);
    }

    /// In fair weather every bell is heard. An owner may come in later to what another worker got for it, and one of several
    /// locks was got before the others.
    fn check_handoff(&self, wish: &Wish, guard: &Guard) {
        if !self.arena.is_settled() || wish.by_owner || matches!(wish.manner, Manner::All(_)) {
            return;
        }
        if let Some(grant) = self.engine.grant(wish.lock, Ticket::new(guard.fence().token()))
            && self.host.true_time().since(grant.at) > HANDOFF
        {
            self.finds(wish, "nobody was told that it is their turn");
        }
    }
}

/// Polls a future so many times at most, then drops it: so it is dropped at any of its awaits.
async fn at_most<F: Future>(polls: u64, future: F) -> Option<F::Output> {
    let mut left = polls;
    let mut future = Some(pin!(future));
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        let ready = future.as_mut().expect("polled until it is ready").as_mut().poll(context);
        match ready {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
