//! What goes wrong, and how often it did.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::chance::strikes;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    MessageLost,
    MessageLate,
    MessageDoubled,
    BellLost,
    BellLate,
    BellDoubled,
    Refused,
    Unsure,
    Partition,
    Crash,
    Pause,
    Shutdown,
    Eviction,
    Amnesia,
    ClockStep,
    Cancelled,
}

pub(super) const KINDS: [(Fault, &str); 16] = [
    (Fault::MessageLost, "message lost"),
    (Fault::MessageLate, "message late"),
    (Fault::MessageDoubled, "message doubled"),
    (Fault::BellLost, "bell lost"),
    (Fault::BellLate, "bell late"),
    (Fault::BellDoubled, "bell doubled"),
    (Fault::Refused, "refused"),
    (Fault::Unsure, "part of the engine silent"),
    (Fault::Partition, "partition"),
    (Fault::Crash, "client crashed"),
    (Fault::Pause, "client paused"),
    (Fault::Shutdown, "client shut down"),
    (Fault::Eviction, "eviction"),
    (Fault::Amnesia, "engine forgot everything"),
    (Fault::ClockStep, "engine's clock stepped back"),
    (Fault::Cancelled, "future dropped"),
];

/// How many faults of each kind, in the order of [`KINDS`].
pub(super) type Counts = [u64; KINDS.len()];

/// The faults of one world.
#[derive(Debug, Default)]
pub(super) struct Faults {
    counts: [AtomicU64; KINDS.len()],
    /// Nothing goes wrong any more.
    fair: AtomicBool,
}

impl Faults {
    pub(super) fn count(&self, fault: Fault) {
        self.counts[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a fault that happens so often in a thousand times happens now.
    pub(super) fn strikes(&self, fault: Fault, per_mille: u64) -> bool {
        let struck = per_mille > 0 && !self.is_fair() && strikes(per_mille);
        if struck {
            self.count(fault);
        }
        struck
    }

    pub(super) fn end(&self) {
        self.fair.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_fair(&self) -> bool {
        self.fair.load(Ordering::Relaxed)
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}
