//! An engine that is up, but lets nobody in yet.

use std::fmt;
use std::time::Duration;

/// A lock that nobody gets yet, although its engine is up and nobody may hold it: the engine may have forgotten holders
/// whose leases still run. Those who wait keep their places, and get in when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Shut {
    /// How long nobody gets in from now on.
    pub opens_in: Duration,
    /// What happened to the engine.
    pub reason: ShutReason,
    /// How long ago that was, if it is known.
    pub ago: Option<Duration>,
}

/// Why nobody gets in yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShutReason {
    /// It was started a short while ago, and may have had locks before.
    Restarted,
    /// A copy took over from the one that had the locks, and may lack some.
    TookOver,
    /// It is not the one that was there before.
    Replaced,
}

impl ShutReason {
    /// The word used for this reason in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            ShutReason::Restarted => "restarted",
            ShutReason::TookOver => "took_over",
            ShutReason::Replaced => "replaced",
        }
    }
}

impl Shut {
    /// Shut for so long.
    pub fn new(opens_in: Duration, reason: ShutReason) -> Shut {
        Shut { opens_in, reason, ago: None }
    }

    /// When it happened.
    #[must_use]
    pub fn since(self, ago: Option<Duration>) -> Shut {
        Shut { ago, ..self }
    }

    /// As a sentence about an engine: `redis restarted 3s ago; locks are granted again in 7s`.
    pub fn about(&self, engine: &str) -> String {
        let what = match self.reason {
            ShutReason::Restarted => "restarted",
            ShutReason::TookOver => "has another primary, which may lack locks",
            ShutReason::Replaced => "is another server than before",
        };
        let ago = self.ago.map(|ago| format!(" {}s ago", ago.as_secs())).unwrap_or_default();
        format!("{engine} {what}{ago}; locks are granted again in {}s", self.seconds())
    }

    /// Whole seconds until it is over, rounded up: whoever comes back then is not too early.
    fn seconds(&self) -> u128 {
        self.opens_in.as_millis().div_ceil(1000)
    }
}

impl fmt::Display for Shut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.about("the engine"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_told_in_whole_seconds() {
        let shut = Shut::new(Duration::from_millis(6_100), ShutReason::Restarted);
        let shut = shut.since(Some(Duration::from_millis(3_900)));
        assert_eq!(shut.about("redis"), "redis restarted 3s ago; locks are granted again in 7s");
        let shut = Shut::new(Duration::from_secs(10), ShutReason::TookOver);
        assert_eq!(
            shut.to_string(),
            "the engine has another primary, which may lack locks; locks are granted again in 10s"
        );
    }
}
