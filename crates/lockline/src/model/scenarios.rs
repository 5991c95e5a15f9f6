//! The settings that are checked: who wants what, and how many faults of each kind may happen.

use std::time::Duration;

use crate::line::Mode;

/// The model's unit of time. The margin of a lease of some ticks is a little over 2 ms, so a clock that loses
/// [`DRIFT`] in a lease is within what the margin promises to bear.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// How much a slow clock loses in one slow tick.
pub(super) const DRIFT: Duration = Duration::from_millis(2);

/// What one client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wants {
    pub(super) mode: Mode,
    pub(super) lease_ticks: u32,
    /// `false`: a `try`.
    pub(super) wait: bool,
    /// The fixed lease that its final renewal asks for.
    pub(super) fixed: Option<u32>,
}

impl Wants {
    const fn new(mode: Mode) -> Wants {
        Wants { mode, lease_ticks: 2, wait: true, fixed: None }
    }

    /// The lease that a request asks for.
    pub(super) fn asks(&self, last: bool) -> Duration {
        let ticks = if last { self.fixed.unwrap_or(self.lease_ticks) } else { self.lease_ticks };
        TICK * ticks
    }
}

/// One setting, small enough to be checked to its last state.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) clients: Vec<Wants>,
    /// How long the world lasts. Everything that happens within it is explored.
    pub(super) ticks: u16,
    /// In all: claims with an id of their own, joins asked again, renewals.
    pub(super) attempts: u8,
    pub(super) retries: u8,
    pub(super) looks: u8,
    /// In all: verbs of a stranger, which only sweep the line; messages that arrive twice, places evicted, restarts, steps of the engine's clock, slow ticks.
    pub(super) sweeps: u8,
    pub(super) duplicates: u8,
    pub(super) evictions: u8,
    pub(super) restarts: u8,
    pub(super) steps_back: u8,
    pub(super) step_ticks: u32,
    pub(super) slow_ticks: u8,
    /// `false` where an engine that forgets *and* whose clock is behind by more than the guard may give older tokens:
    /// the limit that `Fencing::ClockBounded` names.
    pub(super) tokens_rise: bool,
    /// In all: releases and cancellations, which are a client's free choice at any time. Clearing up after a loss is
    /// always possible.
    pub(super) leaves: u8,
}

impl Scenario {
    fn new(name: &'static str, clients: &[Wants]) -> Scenario {
        Scenario {
            name,
            clients: clients.to_vec(),
            ticks: 4,
            attempts: clients.len() as u8,
            retries: 0,
            looks: 0,
            sweeps: 0,
            duplicates: 0,
            evictions: 0,
            restarts: 0,
            steps_back: 0,
            step_ticks: 1,
            slow_ticks: 0,
            tokens_rise: true,
            leaves: 1,
        }
    }

    pub(super) fn longest_lease(&self) -> Duration {
        let asked = |wants: &Wants| wants.asks(false).max(wants.asks(true));
        self.clients.iter().map(asked).max().unwrap_or_default()
    }

    pub(super) fn longest_lease_ticks(&self) -> u16 {
        (self.longest_lease().as_millis() / TICK.as_millis()) as u16
    }
}

const X: Wants = Wants::new(Mode::Exclusive);
const READ: Wants = Wants::new(Mode::Shared);

const fn permits(count: u32, limit: u32) -> Wants {
    Wants::new(Mode::Permits { count, limit })
}

pub(super) fn asked_again() -> Scenario {
    Scenario { retries: 1, ticks: 3, ..Scenario::new("two writers, a join asked again", &[X, X]) }
}

pub(super) fn renewals() -> Scenario {
    Scenario { looks: 2, ticks: 5, ..Scenario::new("two writers, renewals", &[X, X]) }
}

pub(super) fn swept() -> Scenario {
    Scenario { looks: 1, sweeps: 2, ..Scenario::new("two writers, a line that others sweep", &[X, X]) }
}

pub(super) fn twice() -> Scenario {
    Scenario { duplicates: 1, ..Scenario::new("two writers, a message arrives twice", &[X, X]) }
}

pub(super) fn anew() -> Scenario {
    Scenario { attempts: 3, ticks: 3, ..Scenario::new("two writers, one claims anew", &[X, X]) }
}

/// A bell for a place that lapsed comes late, when the same id stands on another one.
pub(super) fn asked_again_late() -> Scenario {
    let name = "two writers, one claims anew, the other asks again";
    Scenario { attempts: 3, retries: 1, ticks: 2, ..Scenario::new(name, &[X, X]) }
}

/// A late copy of a join makes a second place for its id, and its claimant looks at it.
pub(super) fn second_place() -> Scenario {
    Scenario {
        duplicates: 1,
        looks: 1,
        ticks: 3,
        ..Scenario::new("two writers, a second place for one id", &[X, X])
    }
}

pub(super) fn slow_clock() -> Scenario {
    Scenario { slow_ticks: 1, looks: 1, ..Scenario::new("two writers, one with a slow clock", &[X, X]) }
}

pub(super) fn restart() -> Scenario {
    Scenario { restarts: 1, ..Scenario::new("two writers, a forgetful engine", &[X, X]) }
}

pub(super) fn restart_twice() -> Scenario {
    Scenario { restarts: 2, leaves: 0, ..Scenario::new("two writers, an engine that forgets twice", &[X, X]) }
}

/// A late copy of a join stands before the guard's end, for a client that still believes in the place forgotten.
pub(super) fn restart_and_twice() -> Scenario {
    let name = "two writers, a forgetful engine, a message arrives twice";
    Scenario { restarts: 1, duplicates: 1, looks: 1, ticks: 3, leaves: 0, ..Scenario::new(name, &[X, X]) }
}

/// The guard must outlast the longest lease of the name space, not the one at hand.
pub(super) fn restart_leases_differ() -> Scenario {
    let long = Wants { lease_ticks: 3, ..X };
    Scenario { restarts: 1, ..Scenario::new("a long and a short lease, a forgetful engine", &[long, X]) }
}

pub(super) fn step_back() -> Scenario {
    let name = "two writers, the engine's clock steps back a tick";
    Scenario { steps_back: 1, looks: 1, ..Scenario::new(name, &[X, X]) }
}

pub(super) fn long_step_back() -> Scenario {
    let name = "two writers, the engine's clock steps back by far";
    Scenario { steps_back: 1, step_ticks: 100, ..Scenario::new(name, &[X, X]) }
}

pub(super) fn restart_and_step_back() -> Scenario {
    let name = "two writers, a forgetful engine whose clock steps back a tick";
    Scenario { restarts: 1, steps_back: 1, leaves: 0, ..Scenario::new(name, &[X, X]) }
}

pub(super) fn restart_and_long_step_back() -> Scenario {
    let name = "two writers, a forgetful engine whose clock steps back by far";
    let tokens_rise = false;
    Scenario {
        restarts: 1,
        steps_back: 1,
        step_ticks: 100,
        leaves: 0,
        tokens_rise,
        ..Scenario::new(name, &[X, X])
    }
}

pub(super) fn eviction() -> Scenario {
    Scenario { evictions: 1, looks: 1, ..Scenario::new("two writers, one shown out", &[X, X]) }
}

pub(super) fn fixed_lease() -> Scenario {
    let fixed = Wants { fixed: Some(3), ..X };
    Scenario { looks: 2, ticks: 5, ..Scenario::new("a fixed lease and a writer", &[fixed, X]) }
}

pub(super) fn fixed_lease_twice() -> Scenario {
    let fixed = Wants { fixed: Some(1), ..X };
    let name = "a fixed lease shorter than the wait's, a message arrives twice";
    Scenario { looks: 1, duplicates: 1, leaves: 0, ticks: 3, ..Scenario::new(name, &[fixed, X]) }
}

pub(super) fn try_behind_writer() -> Scenario {
    let tries = Wants { wait: false, ..READ };
    Scenario { ticks: 2, ..Scenario::new("a reader, a writer, a reader that tries", &[READ, X, tries]) }
}

pub(super) fn three_writers() -> Scenario {
    Scenario { ticks: 2, ..Scenario::new("three writers", &[X, X, X]) }
}

pub(super) fn readers() -> Scenario {
    Scenario { ticks: 2, ..Scenario::new("two readers and a writer", &[READ, READ, X]) }
}

pub(super) fn permit_holders() -> Scenario {
    Scenario {
        ticks: 2,
        ..Scenario::new("three want one of two permits", &[permits(1, 2), permits(1, 2), permits(1, 2)])
    }
}

pub(super) fn kinds() -> Scenario {
    Scenario { ..Scenario::new("a writer and a permit on one name", &[X, permits(1, 2)]) }
}

pub(super) fn limits() -> Scenario {
    Scenario { ..Scenario::new("one of one permit, one of ten", &[permits(1, 1), permits(1, 10)]) }
}

/// Every setting, for the check that nothing is found.
pub(super) fn every() -> Vec<Scenario> {
    vec![
        asked_again(),
        renewals(),
        swept(),
        twice(),
        anew(),
        asked_again_late(),
        second_place(),
        slow_clock(),
        restart(),
        restart_twice(),
        restart_and_twice(),
        restart_leases_differ(),
        step_back(),
        long_step_back(),
        restart_and_step_back(),
        restart_and_long_step_back(),
        eviction(),
        fixed_lease(),
        fixed_lease_twice(),
        try_behind_writer(),
        three_writers(),
        readers(),
        permit_holders(),
        kinds(),
        limits(),
    ]
}
