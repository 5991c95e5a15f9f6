//! What the server does for what it answers, as every answer to a join or a renewal says it: an operator can change it at any time.

use std::sync::atomic::{AtomicU8, Ordering};

use super::config::{Failover, PostgresConfig};
use crate::driver::{Exclusion, Fencing, Guarantees};

/// As durability.sql writes it: a power loss may take back what was answered.
const LOSES: u8 = b'0';
/// A synchronous standby keeps it, too.
const STANDBY: u8 = b'2';

/// The last that was heard of it.
#[derive(Debug)]
pub(super) struct Durability(AtomicU8);

impl Default for Durability {
    fn default() -> Durability {
        Durability(AtomicU8::new(LOSES))
    }
}

impl Durability {
    /// Notes what an answer says.
    pub(super) fn note(&self, text: &str) {
        if let Some(level) = text.bytes().next() {
            self.0.store(level, Ordering::Relaxed);
        }
    }

    /// What a lock can promise now.
    pub(super) fn guarantees(&self, config: (Failover, usize)) -> Guarantees {
        let exclusion = match (config, self.0.load(Ordering::Relaxed)) {
            (_, LOSES) => Exclusion::Probable,
            ((Failover::Synchronous, _), STANDBY) => Exclusion::NoForwardStepOverFailover,
            ((Failover::None, 1), _) => Exclusion::NoForwardStep,
            // What took over may not have what was answered.
            _ => Exclusion::Probable,
        };
        let fencing = if exclusion == Exclusion::Probable { Fencing::ClockBounded } else { Fencing::Always };
        Guarantees { fencing, exclusion }
    }
}

impl PostgresConfig {
    /// What it says of a failover, and how many servers it names.
    pub(super) fn failover(&self) -> (Failover, usize) {
        (self.failover, self.hosts.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_says_no_more_than_what_the_settings_keep() {
        let rows = |level: &str| {
            let durability = Durability::default();
            durability.note(level);
            let all = [(Failover::None, 1), (Failover::None, 2), (Failover::Synchronous, 1)];
            all.map(|config| durability.guarantees(config).exclusion)
        };
        let probable = Exclusion::Probable;
        assert_eq!(rows("0"), [probable; 3]);
        assert_eq!(rows("1"), [Exclusion::NoForwardStep, probable, probable]);
        assert_eq!(rows("2"), [Exclusion::NoForwardStep, probable, Exclusion::NoForwardStepOverFailover]);
        let durability = Durability::default();
        assert_eq!(durability.guarantees((Failover::Synchronous, 2)).fencing, Fencing::ClockBounded);
        durability.note("2");
        assert_eq!(durability.guarantees((Failover::Synchronous, 2)).fencing, Fencing::Always);
        assert_eq!(durability.guarantees((Failover::Asynchronous, 1)).exclusion, probable);
    }
}
