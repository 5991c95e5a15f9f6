//! The guard: what one holds while one holds a lock.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::{Fencing, Guarantees};
use crate::error::{Error, Lost, Result};
use crate::fence::Fence;
use crate::hold::grip::{Grip, any_lost};
use crate::line::Mode;

/// A lock that is held: a mutex, a read or write side, permits, several locks at once, or a leadership.
///
/// Dropping it releases the lock in the background; [`release`](Guard::release) waits until the engine knows.
///
/// A guard is valid until it says that it is lost: [`lost`](Guard::lost) tells at the latest when its lease, counted
/// from before the last renewal was sent, could have ended, without any network. **A lost guard never comes back.**
/// What the lock protects should be stopped then, and what it writes should carry [`fence`](Guard::fence).
#[must_use = "the lock is released as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct Guard {
    first: Arc<Grip>,
    /// The others, in name order, when several locks are held at once.
    rest: Vec<Arc<Grip>>,
}

impl Guard {
    pub(crate) fn one(grip: Arc<Grip>) -> Guard {
        Guard { first: grip, rest: Vec::new() }
    }

    /// `None` if there are none.
    pub(crate) fn many(mut grips: Vec<Arc<Grip>>) -> Option<Guard> {
        if grips.is_empty() {
            return None;
        }
        let first = grips.remove(0);
        Some(Guard { first, rest: grips })
    }

    fn grips(&self) -> impl Iterator<Item = &Arc<Grip>> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// The lock's name; of several, the first in order.
    pub fn name(&self) -> &str {
        self.user_name(&self.first)
    }

    fn user_name<'a>(&self, grip: &'a Grip) -> &'a str {
        let name = grip.name().as_str();
        name.strip_prefix(grip.client().settings.prefix.as_str()).unwrap_or(name)
    }

    /// The fencing token of this grant. Hand it to whatever the lock protects, so that it can refuse an older one.
    ///
    /// Tokens are comparable among holders of *one* name. A guard on several locks has one for each: this is the
    /// first name's; [`fences`](Guard::fences) has them all.
    ///
    /// Where the engine gives no tokens ([`Fencing::None`]) it is [`Fence::NONE`], which every [`Gate`](crate::fence::Gate)
    /// refuses. A program that relies on tokens demands them when it connects: [`Builder::require`](crate::Builder::require).
    pub fn fence(&self) -> Fence {
        fence_of(&self.first)
    }

    /// The name and the fencing token of each lock held, in name order.
    pub fn fences(&self) -> impl Iterator<Item = (&str, Fence)> {
        self.grips().map(|grip| (self.user_name(grip), fence_of(grip)))
    }

    /// What this lock's engine can promise now. An operator may weaken it while the lock is held: a client that relies on
    /// a row demands it ([`Builder::require`](crate::Builder::require)), and loses the lock then.
    pub fn guarantees(&self) -> Guarantees {
        self.first.client().driver.guarantees()
    }

    /// How many replicas had acknowledged the grant, or its last renewal, when it was answered; of several locks, the
    /// fewest. `None` if the engine was not asked to wait for any.
    pub fn replicas(&self) -> Option<u32> {
        self.grips().map(|grip| grip.replicas()).min().flatten()
    }

    /// For how much longer the guard is certainly valid if nothing is heard from the engine any more; zero once lost.
    pub fn remaining(&self) -> Duration {
        self.grips().map(|grip| grip.remaining()).min().unwrap_or_default()
    }

    /// Whether the lock is still held, looked at now, without any network.
    pub fn is_valid(&self) -> bool {
        self.loss().is_none()
    }

    /// Why the lock is lost, if it is: the same look as [`is_valid`](Guard::is_valid).
    pub fn loss(&self) -> Option<Lost> {
        self.grips().find_map(|grip| grip.loss().map(|reason| Lost { name: grip.name().clone(), reason }))
    }

    /// Waits until the lock is lost (of several: any of them), and says why. A lock that is kept is waited for without end.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; it may be called again.
    ///
    /// ```
    /// # async fn work() {}
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockline::Result<()> {
    /// # let locks = lockline::Locks::memory();
    /// let guard = locks.mutex("shard/3").lock().await?;
    /// tokio::select! {
    ///     lost = guard.lost() => eprintln!("stopping: {lost}"),
    ///     () = work() => {}
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) -> Lost {
        if self.rest.is_empty() { self.first.lost().await } else { any_lost(self.grips()).await }
    }

    /// Runs a future for as long as the lock is held. If the lock is lost first, the future is dropped.
    ///
    /// # Errors
    /// [`Lost`], with the reason.
    ///
    /// # Cancel safety
    /// Dropping it drops the future it runs; the lock stays held by the guard.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        tokio::select! {
            biased;
            lost = self.lost() => Err(lost),
            output = work => Ok(output),
        }
    }

    /// Releases the lock and waits until the engine knows. A reentrant guard that is not the owner's last one only counts
    /// down.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lock had been lost: what was done last may have been done
    /// without protection. Otherwise the engine could not be reached or told; the lock then ends with its lease.
    ///
    /// # Cancel safety
    /// Dropping the future does not keep the lock: the release goes on in the background.
    pub async fn release(self) -> Result<()> {
        let mut failed: Option<Error> = None;
        // Last taken, first released; every one is tried, and the first failure reported.
        for grip in self.rest.into_iter().rev().chain(std::iter::once(self.first)) {
            if let Err(error) = Grip::release(grip).await {
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

fn fence_of(grip: &Grip) -> Fence {
    if grip.client().driver.guarantees().fencing == Fencing::None {
        return Fence::NONE;
    }
    Fence::new(grip.ticket().get(), grip.mode() == Mode::Exclusive)
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("fences", &self.fences().collect::<Vec<_>>())
            .field("valid", &self.is_valid())
            .finish()
    }
}
