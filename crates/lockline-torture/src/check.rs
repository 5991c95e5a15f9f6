//! The checkers: what a history must not show.

use std::collections::HashMap;

use lockline::time::Time;

use crate::history::{Event, Kind, Mode};

/// A stretch of time in which a guard said that it was valid, at both ends.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: Time,
    to: Time,
    mode: Mode,
    token: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) acquisitions: u64,
    /// Two guards that do not fit together said at one moment that they were valid.
    pub(crate) overlaps: u64,
    /// Later exclusive grants with a smaller or equal token.
    pub(crate) fence_violations: u64,
    /// A guard that was granted before a smaller ticket of the same lock was.
    pub(crate) order_violations: u64,
    /// Looks that found a guard valid after the time at which it had said it would end, unrenewed.
    pub(crate) late_losses: u64,
}

/// Checks the histories of all processes together: they share one clock.
pub(crate) fn check(histories: &[Vec<Event>]) -> Findings {
    let mut stretches: HashMap<&str, Vec<Stretch>> = HashMap::new();
    let mut findings = Findings::default();
    for history in histories {
        let mut open: HashMap<(&str, u64), Stretch> = HashMap::new();
        for event in history {
            let key = (event.lock.as_str(), event.token);
            match event.kind {
                Kind::Got => {
                    findings.acquisitions += 1;
                    let fresh =
                        Stretch { from: event.at, to: event.at, mode: event.mode, token: event.token };
                    open.insert(key, fresh);
                }
                Kind::Valid => {
                    if let Some(stretch) = open.get_mut(&key) {
                        stretch.to = event.at;
                        findings.late_losses += u64::from(event.valid_until < event.at);
                    }
                }
                Kind::Lost | Kind::Failed => {}
            }
        }
        for ((lock, _), stretch) in open {
            stretches.entry(lock).or_default().push(stretch);
        }
    }
    for stretches in stretches.values_mut() {
        stretches.sort_by_key(|stretch| (stretch.from, stretch.token));
        findings.overlaps += overlaps(stretches);
        let (fences, order) = token_order(stretches);
        findings.fence_violations += fences;
        findings.order_violations += order;
    }
    findings
}

/// Pairs of stretches that lie at the same moment and do not fit together.
fn overlaps(stretches: &[Stretch]) -> u64 {
    let mut found = 0;
    let mut inside: Vec<Stretch> = Vec::new();
    for &stretch in stretches {
        inside.retain(|other| other.to > stretch.from);
        found += match stretch.mode {
            Mode::Permit => u64::from(inside.iter().filter(|other| other.mode == Mode::Permit).count() >= 2),
            _ => inside
                .iter()
                .filter(|other| !(other.mode == Mode::Shared && stretch.mode == Mode::Shared))
                .count() as u64,
        };
        inside.push(stretch);
    }
    found
}

/// Tokens must rise with exclusive grants; and nobody gets in before a smaller ticket, unless both are in side by side.
fn token_order(stretches: &[Stretch]) -> (u64, u64) {
    let mut newest_exclusive = 0;
    let mut newest = 0;
    let (mut fences, mut order) = (0, 0);
    for stretch in stretches {
        fences += u64::from(stretch.mode == Mode::Exclusive && stretch.token <= newest_exclusive);
        // Side by side, the clock of a process that was stopped after its grant says little about the order.
        order += u64::from(stretch.mode == Mode::Exclusive && stretch.token < newest);
        newest = newest.max(stretch.token);
        if stretch.mode == Mode::Exclusive {
            newest_exclusive = newest_exclusive.max(stretch.token);
        }
    }
    (fences, order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: u64, kind: Kind, mode: Mode, token: u64) -> Event {
        let at = Time::from_micros(at);
        Event { at, kind, lock: "l".to_owned(), mode, token, valid_until: Time::from_micros(1_000_000) }
    }

    fn hold(from: u64, to: u64, mode: Mode, token: u64) -> Vec<Event> {
        vec![event(from, Kind::Got, mode, token), event(to, Kind::Valid, mode, token)]
    }

    #[test]
    fn a_good_history_is_clean() {
        let histories =
            [hold(0, 10, Mode::Exclusive, 1), hold(10, 20, Mode::Shared, 2), hold(12, 22, Mode::Shared, 3)];
        assert_eq!(check(&histories), Findings { acquisitions: 3, ..Findings::default() });
    }

    #[test]
    fn every_kind_of_bad_history_is_found() {
        let two_writers = [hold(0, 10, Mode::Exclusive, 1), hold(5, 15, Mode::Exclusive, 2)];
        assert_eq!(check(&two_writers).overlaps, 1);
        let reader_beside_writer = [hold(0, 10, Mode::Shared, 1), hold(5, 15, Mode::Exclusive, 2)];
        assert_eq!(check(&reader_beside_writer).overlaps, 1);
        let three_permits =
            [hold(0, 10, Mode::Permit, 1), hold(1, 10, Mode::Permit, 2), hold(2, 10, Mode::Permit, 3)];
        assert_eq!(check(&three_permits).overlaps, 1);
        let old_token = [hold(0, 10, Mode::Exclusive, 2), hold(11, 12, Mode::Exclusive, 1)];
        assert_eq!((check(&old_token).fence_violations, check(&old_token).order_violations), (1, 1));
        let mut late = hold(0, 10, Mode::Exclusive, 1);
        late[1].valid_until = Time::from_micros(5);
        assert_eq!(check(&[late]).late_losses, 1);
    }
}
