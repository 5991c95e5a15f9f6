//! The checkers: what a history must not show.

mod linear;
mod order;
mod overlap;
mod progress;

use std::collections::{BTreeMap, HashMap};

use lockline::time::Time;

use crate::history::{Event, Kind, Lock, Mode};
pub(crate) use progress::{Calm, LOOK_AGAIN, Progress, around_healing, p99, progress, stuck};

/// All that the processes wrote, one history each.
pub(crate) type Histories = [Vec<Event>];

/// One hold of a lock, put together from what its process wrote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) process: usize,
    pub(crate) mode: Mode,
    pub(crate) token: u64,
    /// When it was asked for.
    pub(crate) asked: Time,
    /// When it was there.
    pub(crate) from: Time,
    /// The last moment at which its guard said that it was valid.
    pub(crate) to: Time,
    /// When the engine had said that it was let go.
    pub(crate) left: Option<Time>,
    /// By when the guard had said that it would end, and when its holder was told.
    pub(crate) lost: Option<(Time, Time)>,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) acquisitions: u64,
    /// Two guards that do not fit together said at one moment that they were valid.
    pub(crate) overlaps: u64,
    /// Grants that no order of asking, getting and letting go explains.
    pub(crate) not_linearizable: u64,
    /// Later exclusive grants with a smaller or equal token.
    pub(crate) fence_violations: u64,
    /// A guard that was granted before a smaller ticket of the same lock was.
    pub(crate) order_violations: u64,
    /// Holders who were told of a loss later than their guard had said it would end.
    pub(crate) late_losses: u64,
}

/// When processes were stopped: process, from, to.
pub(crate) type Stops = [(usize, Time, Time)];

/// Checks the histories of all processes together: they share one clock.
pub(crate) fn check(histories: &Histories, stops: &Stops) -> Findings {
    let mut findings = Findings::default();
    for holds in by_lock(histories).values() {
        findings.acquisitions += holds.len() as u64;
        findings.overlaps += overlap::overlaps(holds);
        findings.not_linearizable += linear::violations(holds);
        let (fences, order) = order::token_order(holds);
        findings.fence_violations += fences;
        findings.order_violations += order;
        findings.late_losses += order::late_losses(holds, stops);
    }
    findings
}

/// The holds of each lock, in the order in which they began.
pub(crate) fn by_lock(histories: &Histories) -> BTreeMap<Lock, Vec<Hold>> {
    let mut locks: BTreeMap<Lock, Vec<Hold>> = BTreeMap::new();
    for (process, history) in histories.iter().enumerate() {
        let mut asked: HashMap<u32, Time> = HashMap::new();
        let mut open: HashMap<u32, (Lock, Hold)> = HashMap::new();
        for event in history {
            let (ask, at) = (event.ask, event.at);
            match event.kind {
                Kind::Asks => drop(asked.insert(ask, at)),
                Kind::Refused | Kind::Unknown => drop(asked.remove(&ask)),
                Kind::Got => {
                    let hold = Hold {
                        process,
                        mode: event.mode,
                        token: event.token,
                        asked: asked.remove(&ask).unwrap_or(at),
                        from: at,
                        to: at,
                        left: None,
                        lost: None,
                    };
                    open.insert(ask, (event.lock, hold));
                }
                Kind::Valid | Kind::Leaves => {
                    if let Some((_, hold)) = open.get_mut(&ask) {
                        hold.to = at;
                    }
                }
                Kind::Left => {
                    if let Some((_, hold)) = open.get_mut(&ask) {
                        hold.left = Some(at);
                    }
                }
                Kind::Lost => {
                    if let Some((_, hold)) = open.get_mut(&ask) {
                        hold.lost = Some((event.valid_until, at));
                    }
                }
            }
        }
        for (lock, hold) in open.into_values() {
            locks.entry(lock).or_default().push(hold);
        }
    }
    for holds in locks.values_mut() {
        holds.sort_by_key(|hold| (hold.from, hold.token));
    }
    locks
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn hold(asked: u64, from: u64, to: u64, mode: Mode, token: u64) -> Hold {
        let time = Time::from_micros;
        let (asked, from, to) = (time(asked), time(from), time(to));
        Hold { process: 0, mode, token, asked, from, to, left: None, lost: None }
    }

    #[test]
    fn holds_are_put_together_from_what_processes_wrote() {
        let event = |at, kind, ask| Event {
            at: Time::from_micros(at),
            kind,
            ask,
            lock: Lock(0),
            mode: Mode::Exclusive,
            token: u64::from(ask) + 1,
            valid_until: Time::from_micros(100),
        };
        let history = vec![
            event(1, Kind::Asks, 0),
            event(2, Kind::Got, 0),
            event(3, Kind::Asks, 1),
            event(4, Kind::Leaves, 0),
            event(5, Kind::Left, 0),
            event(6, Kind::Refused, 1),
            event(7, Kind::Asks, 2),
            event(8, Kind::Got, 2),
            event(9, Kind::Valid, 2),
            event(10, Kind::Lost, 2),
        ];
        let locks = by_lock(&[history]);
        let holds: Vec<_> = locks[&Lock(0)]
            .iter()
            .map(|hold| (hold.asked, hold.from, hold.to, hold.left, hold.lost))
            .collect();
        let time = Time::from_micros;
        assert_eq!(
            holds,
            [
                (time(1), time(2), time(4), Some(time(5)), None),
                (time(7), time(8), time(9), None, Some((time(100), time(10)))),
            ]
        );
        assert_eq!(check(&[Vec::new()], &[]), Findings::default());
    }
}
