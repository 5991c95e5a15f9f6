//! Instants and clocks. A [`Time`] is a number of microseconds on *some* clock; which clock is the business of
//! whoever made it. The pure machine in [`line`](crate::line) only ever compares times that came from one clock.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::platform;

/// A point in time: microseconds on a clock whose origin does not matter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The origin of the clock.
    pub const ZERO: Time = Time(0);

    /// The point `us` microseconds after the clock's origin.
    pub const fn from_micros(us: u64) -> Time {
        Time(us)
    }

    /// Microseconds since the clock's origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// This point, `by` earlier, stopping at the origin.
    pub fn minus(self, by: Duration) -> Time {
        Time(self.0.saturating_sub(micros(by)))
    }
}

impl std::ops::Add<Duration> for Time {
    type Output = Time;
    fn add(self, by: Duration) -> Time {
        Time(self.0.saturating_add(micros(by)))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}µs", self.0)
    }
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}

/// The clock that leases are counted on in this process.
///
/// It goes on counting while the machine sleeps (`CLOCK_BOOTTIME` on Linux); `std::time::Instant` does not on Linux and
/// macOS, so a guard that relied on it would wake from a suspend still believing in a lease that ended hours ago.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl BootClock {
    /// The present moment.
    pub fn now(self) -> Time {
        Time(micros(platform::since_boot()))
    }
}

/// Where the library reads the time: the boot clock, or tokio's, which a simulation can drive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Clock {
    #[default]
    Boot,
    #[cfg(test)]
    Tokio(tokio::time::Instant),
    #[cfg(test)]
    Simulated(crate::simulation::host::Host),
}

impl Clock {
    pub(crate) fn now(self) -> Time {
        match self {
            Clock::Boot => BootClock.now(),
            #[cfg(test)]
            Clock::Tokio(origin) => Time::from_micros(1_000_000) + origin.elapsed(),
            #[cfg(test)]
            Clock::Simulated(host) => host.now(),
        }
    }

    /// What tickets are counted on.
    pub(crate) fn wall_micros(self) -> u64 {
        match self {
            Clock::Boot => wall_micros(),
            #[cfg(test)]
            Clock::Tokio(_) | Clock::Simulated(_) => self.now().as_micros(),
        }
    }

    /// Background work of whoever lives by this clock: a simulation can stop all of it for a while.
    pub(crate) async fn runs<F: Future>(self, work: F) -> F::Output {
        #[cfg(test)]
        if let Clock::Simulated(host) = self {
            return host.runs(work).await;
        }
        work.await
    }

    /// Sleeps until `at`, in short stretches: tokio's timer stands still while the machine is suspended, and a holder
    /// that waits on it alone would learn of its loss as much later as the suspend was long.
    pub(crate) async fn sleep_until(self, at: Time) {
        const STRETCH: Duration = Duration::from_secs(1);
        loop {
            let rest = at.since(self.now());
            if rest.is_zero() {
                return;
            }
            // tokio rounds up to its millisecond; asking for a millisecond less would spin.
            tokio::time::sleep(rest.min(STRETCH)).await;
        }
    }
}

/// Microseconds of the wall clock: the floor for tickets, never used for leases.
pub(crate) fn wall_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros)
}
