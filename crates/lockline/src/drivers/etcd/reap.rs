//! The end of what lapsed: the server's leases are rounded up to seconds, those of claims are not.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinSet;

use super::Inner;
use crate::error::Result;
use crate::line::ClaimId;
use crate::name::Name;
use crate::sync::locked;
use crate::time::BootClock;

/// When it is tried again to take away a place that has lapsed.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How long a join waits for what has lapsed to be taken away.
const NOT_FOR_LONG: Duration = Duration::from_millis(250);
/// How long the reaper sleeps at most while there is something to reap: a timer stands still while the machine sleeps;
/// leases do not.
const STRETCH: Duration = Duration::from_secs(1);
/// The same while there is nothing.
const IDLE: Duration = Duration::from_secs(60);

impl Inner {
    /// Takes away what has lapsed in a line, as far as this process put it there: what others put there goes with their leases.
    ///
    /// All at once, and not for long. Each has its own verbs to wait for, and a server that does not answer: a join that waited for
    /// one after the other got nowhere until the last of them had given up.
    pub(super) async fn drop_lapsed(self: &Arc<Self>, name: &Name) {
        let lapsed = locked(&self.books).lapsed(name, BootClock.now());
        if lapsed.is_empty() {
            return;
        }
        let reaping: JoinSet<()> = lapsed
            .into_iter()
            .map(|id| {
                let inner = self.clone();
                async move { inner.reap(id).await }
            })
            .collect();
        // They go on without whoever waits no longer.
        let _ = tokio::time::timeout(NOT_FOR_LONG, reaping.join_all()).await;
    }

    /// Takes away what has lapsed of a claim whose turn has come. Nothing may be done with it before: it will be taken away.
    pub(super) async fn drop_if_lapsed(self: &Arc<Self>, id: ClaimId, operation: &'static str) -> Result<()> {
        let is_lapsed = self.lapses(id) || locked(&self.books).get(id).is_some_and(|record| record.lapsed);
        if is_lapsed { self.take_away(id, operation).await } else { Ok(()) }
    }

    /// Takes away one claim that has lapsed, unless it was extended meanwhile.
    async fn reap(self: &Arc<Self>, id: ClaimId) {
        if self.lapses(id) {
            let inner = self.clone();
            // If it fails it is tried again, or the server's lease ends it.
            let _ = self.in_turn(id, async move { inner.drop_if_lapsed(id, "lapse").await }).await;
        }
    }

    /// Notes that a claim has lapsed, unless it was extended meanwhile; `true` if it has to be taken away. (The server's lease is
    /// rounded up to seconds; the claim's end is not.)
    fn lapses(&self, id: ClaimId) -> bool {
        let mut books = locked(&self.books);
        let now = BootClock.now();
        let Some(record) = books.get(id) else { return false };
        if record.deadline.is_none_or(|deadline| deadline > now) {
            return false;
        }
        // From here on nothing revives it. If it cannot be taken away now, the server's lease ends it.
        record.lapsed = true;
        if record.lease.is_none_or(|lease| lease.lives_until() + lease.ttl < now) {
            books.remove(id);
            return false;
        }
        books.lapses_at(id, now + TRY_AGAIN);
        true
    }
}

/// Takes lapsed places away for as long as the driver lives.
pub(super) async fn reap_for_ever(driver: Weak<Inner>) {
    loop {
        let (next, reaper) = {
            let Some(inner) = driver.upgrade() else { return };
            let (due, next) = locked(&inner.books).due(BootClock.now());
            for id in due {
                let inner = inner.clone();
                tokio::spawn(async move { inner.reap(id).await });
            }
            (next, inner.reaper.clone())
        };
        let rest = next.map_or(IDLE, |at| at.since(BootClock.now()).min(STRETCH));
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = reaper.notified() => {}
        }
    }
}
