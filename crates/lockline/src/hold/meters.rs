//! What operators can count. The names are part of the public interface; `docs/operations.md` explains each.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::error::LossReason;

/// The instruments of one client, looked up once: a recorder must be installed before the client is made.
#[derive(Clone)]
pub(crate) struct Meters {
    engine: &'static str,
    pub(crate) wait: Histogram,
    pub(crate) hold: Histogram,
    pub(crate) waiters: Gauge,
    pub(crate) held: Gauge,
    pub(crate) handoffs: Counter,
    pub(crate) renewals: Counter,
    pub(crate) renewal_failures: Counter,
    pub(crate) renewal_lag: Histogram,
    pub(crate) shut: Counter,
}

impl Meters {
    pub(crate) fn new(engine: &'static str) -> Meters {
        Meters {
            engine,
            wait: histogram!("lockline_wait_seconds", "engine" => engine),
            hold: histogram!("lockline_hold_seconds", "engine" => engine),
            waiters: gauge!("lockline_waiters", "engine" => engine),
            held: gauge!("lockline_held", "engine" => engine),
            handoffs: counter!("lockline_handoffs_total", "engine" => engine),
            renewals: counter!("lockline_renewals_total", "engine" => engine),
            renewal_failures: counter!("lockline_renewal_failures_total", "engine" => engine),
            renewal_lag: histogram!("lockline_renewal_lag_seconds", "engine" => engine),
            shut: counter!("lockline_shut_total", "engine" => engine),
        }
    }

    pub(crate) fn lost(&self, reason: LossReason) {
        counter!("lockline_lost_total", "engine" => self.engine, "reason" => reason.word()).increment(1);
    }

    pub(crate) fn renewal_took_place(&self, late_by: Duration) {
        self.renewals.increment(1);
        self.renewal_lag.record(late_by);
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meters").field("engine", &self.engine).finish_non_exhaustive()
    }
}
