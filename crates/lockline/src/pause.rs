//! Pauses between tries, and why no two clients make the same ones.
//!
//! When an engine goes away, everybody notices in the same instant. Without chance in their pauses all clients come back in
//! the same instants, too, and the engine that just came up meets all of them at once, again and again.

use std::time::Duration;

use crate::line::ClaimId;

/// Pauses that grow from the first to the longest, each a different one for everybody.
#[derive(Clone, Debug)]
pub(crate) struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Pauses {
        Pauses { next: first, longest }
    }

    /// How long to pause now: from half to one and a half times the usual pause, which doubles with each try.
    pub(crate) fn next(&mut self) -> Duration {
        let usual = self.next;
        self.next = (usual * 2).min(self.longest);
        about(usual)
    }
}

/// From half to one and a half times as long.
pub(crate) fn about(usual: Duration) -> Duration {
    usual / 2 + any_part_of(usual)
}

/// The pauses of whoever makes a connection again.
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "redis"))]
pub(crate) const RECONNECT: Pauses = Pauses::new(Duration::from_millis(10), Duration::from_secs(1));

/// Waits a moment before a connection that was lost is made again for the first time: all clients lost theirs together.
/// Short enough for the shortest leases.
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "redis"))]
pub(crate) async fn before_reconnecting() {
    tokio::time::sleep(any_part_of(Duration::from_millis(50))).await;
}

/// A random part of a duration.
pub(crate) fn any_part_of(duration: Duration) -> Duration {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(chance() % micros.saturating_add(1).max(1))
}

/// A random number. Asked for rarely, so the operating system is asked: copies of a virtual machine differ, too; a
/// simulation decides it by its seed.
pub(crate) fn chance() -> u64 {
    ClaimId::random().as_u128() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_longest_and_differ() {
        let (first, longest) = (Duration::from_millis(10), Duration::from_millis(80));
        let mut pauses = Pauses::new(first, longest);
        for usual in [10, 20, 40, 80, 80, 80] {
            let usual = Duration::from_millis(usual);
            let pause = pauses.next();
            assert!(usual / 2 <= pause && pause <= usual * 3 / 2, "{pause:?} instead of about {usual:?}");
        }
        let mut all: Vec<_> = (0..100).map(|_| Pauses::new(longest, longest).next()).collect();
        all.sort_unstable();
        all.dedup();
        assert!(all.len() > 90, "clients that pause together come back together");
    }
}
