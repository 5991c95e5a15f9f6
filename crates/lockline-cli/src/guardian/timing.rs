//! When a command whose lock is not renewed any more is asked to end, and when it is killed: pure.

use std::time::Duration;

use lockline::time::Time;

/// How long before the end of the lock's validity the command is killed: a signal takes a moment to arrive, more so on a
/// busy machine.
const SPARE_SHORTEST: Duration = Duration::from_millis(2);
const SPARE_LONGEST: Duration = Duration::from_millis(100);
/// However long the lease, the guardian hears the latest deadline this soon.
const BEAT_LONGEST: Duration = Duration::from_secs(10);

/// The times that follow from a lease and a grace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// How long the command has between being asked and being killed.
    notice: Duration,
    spare: Duration,
    beat: Duration,
}

impl Timing {
    pub(crate) fn new(lease: Duration, grace: Duration) -> Timing {
        Timing {
            // Not more than a quarter of the lease: two failed renewals fit before it.
            notice: grace.min(lease / 4),
            spare: (lease / 50).clamp(SPARE_SHORTEST, SPARE_LONGEST),
            beat: (lease / 8).min(BEAT_LONGEST),
        }
    }

    /// How often the wrapper looks for a renewal to tell the guardian of.
    pub(crate) fn beat(&self) -> Duration {
        self.beat
    }

    /// When a wrapper that is awake asks the command to end.
    pub(crate) fn ask_at(&self, valid_until: Time) -> Time {
        self.kill_at(valid_until).minus(self.notice)
    }

    /// When the guardian does so: a little later, so that a command whose wrapper is awake is asked once.
    pub(super) fn guardian_asks_at(&self, valid_until: Time) -> Time {
        self.kill_at(valid_until).minus(self.notice / 4 * 3)
    }

    /// When it is killed, before anybody else can have the lock.
    pub(crate) fn kill_at(&self, valid_until: Time) -> Time {
        valid_until.minus(self.spare)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_asked_first_and_killed_before_the_lock_ends() {
        for lease in [100, 500, 10_000, 60_000, 86_400_000].map(Duration::from_millis) {
            for grace in [0, 1, 50, 5_000, 3_600_000].map(Duration::from_millis) {
                let timing = Timing::new(lease, grace);
                let end = Time::from_micros(1_000_000) + lease;
                let asked = timing.ask_at(end);
                assert!(asked <= timing.guardian_asks_at(end), "{lease:?} {grace:?}");
                assert!(timing.guardian_asks_at(end) <= timing.kill_at(end), "{lease:?} {grace:?}");
                assert!(timing.kill_at(end) < end, "{lease:?} {grace:?}");
                // A lease is renewed at its third: a renewal that takes no longer than that costs nobody anything.
                assert!(end.minus(lease) + lease * 2 / 3 < asked, "{lease:?} {grace:?}");
                assert!(timing.beat() < lease / 3, "{lease:?}");
            }
        }
    }
}
