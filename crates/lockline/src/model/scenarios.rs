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
    /// In all: messages that arrive twice, places evicted, restarts, steps of the engine's clock, slow ticks.
    pub(super) duplicates: u8,
    pub(super) evictions: u8,
    pub(super) restarts: u8,
    pub(super) steps_back: u8,
    pub(super) step_ticks: u32,
    pub(super) slow_ticks: u8,
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
            duplicates: 0,
            evictions: 0,
            restarts: 0,
            steps_back: 0,
            step_ticks: 1,
            slow_ticks: 0,
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

pub(super) fn probes() -> Vec<Scenario> {
    let x = Wants::new(Mode::Exclusive);
    let x2 = |name| Scenario::new(name, &[x.clone(), x.clone()]);
    vec![
        Scenario { ..x2("x2 minimal") },
        Scenario { retries: 1, ..x2("x2 retry") },
        Scenario { looks: 1, ..x2("x2 look") },
        Scenario { looks: 2, ticks: 5, ..x2("x2 look 2 ticks 5") },
        Scenario { retries: 1, looks: 1, ..x2("x2 retry look") },
        Scenario { duplicates: 1, ..x2("x2 dup") },
        Scenario { attempts: 3, ..x2("x2 attempts 3") },
        Scenario { attempts: 3, duplicates: 1, ..x2("x2 attempts 3 dup 1") },
        Scenario { ..Scenario::new("x3 minimal", &[x.clone(), x.clone(), x.clone()]) },
    ]
}
