//! The end of what lapsed: the server's leases are rounded up to seconds, those of claims are not.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Inner;
use crate::line::ClaimId;
use crate::name::Name;
use crate::sync::locked;
use crate::time::BootClock;

/// When it is tried again to take away a place that has lapsed.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How long the reaper sleeps at most while there is something to reap: a timer stands still while the machine sleeps;
/// leases do not.
const STRETCH: Duration = Duration::from_secs(1);
/// The same while there is nothing.
const IDLE: Duration = Duration::from_secs(60);

impl Inner {
    /// Takes away what has lapsed in a line, as far as this process put it there. What others put there goes with their
    /// leases.
    pub(super) async fn drop_lapsed(self: &Arc<Self>, name: &Name) {
        let lapsed = locked(&self.books).lapsed(name, BootClock.now());
        for id in lapsed {
            self.reap(id).await;
        }
    }

    /// Takes away one claim that has lapsed, unless it was extended meanwhile.
    async fn reap(self: &Arc<Self>, id: ClaimId) {
        let turn = {
            let mut books = locked(&self.books);
            let now = BootClock.now();
            let Some(record) = books.get(id) else { return };
            if record.deadline.is_none_or(|deadline| deadline > now) {
                return;
            }
            // From here on nothing revives it. If it cannot be taken away now, the server's lease ends it.
            record.lapsed = true;
            let ended = record.lease.is_none_or(|lease| lease.lives_until() + lease.ttl < now);
            if ended {
                books.remove(id);
                return;
            }
            books.lapses_at(id, now + TRY_AGAIN);
            books.turn(id)
        };
        let inner = self.clone();
        if let Some(turn) = turn {
            // The server's lease is rounded up to seconds; this one's end is not.
            let _ = self.in_turn(turn, async move { inner.take_away(id, "lapse").await }).await;
        }
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
