//! Is there an order of single moments that explains what everybody was told? A check for linearizability after Wing and
//! Gong, in the form in which Lowe looks only when an operation returns ("just in time").
//!
//! It knows nothing of stretches and overlaps. The object is a lock with tokens: it *gives* a token larger than all before,
//! to whoever fits beside those who have it, at one moment between the asking and the answer; and it *takes back*. All ways
//! to choose these moments are followed at once; when an answer has come that none of them allows, the history is refused.
//!
//! What needs no search, and why that loses nothing:
//! - Letting go happens as early as it can. Whoever lets go earlier is in nobody's way, so an order with a later moment is
//!   one with the earlier moment, too. It can happen as soon as the guard was valid for the last time: who was killed, lost
//!   the lock or dropped its guard never said when.
//! - Askings whose outcome nobody knows (no answer, a dropped future) may have happened or not; that they did not explains
//!   everything that they could explain. A refusal is always allowed: whoever waits, or has died in line, may be its reason.

use std::collections::HashSet;

use lockline::time::Time;

use super::Hold;
use crate::history::Mode;

/// How many permits there are.
const PERMITS: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Step {
    Asks(usize),
    Answered(usize),
    LetsGo(usize),
}

/// One way in which it may have gone so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    newest: u64,
    /// Who has it.
    inside: Vec<usize>,
    /// Who was given it and has not been told yet.
    given: Vec<usize>,
}

/// The answers that no order explains. After each, the search goes on from what was answered.
pub(super) fn violations(holds: &[Hold]) -> u64 {
    let mut found = 0;
    let mut worlds = HashSet::from([World::default()]);
    let mut asking: Vec<usize> = Vec::new();
    for step in steps(holds) {
        match step {
            Step::Asks(hold) => asking.push(hold),
            Step::LetsGo(hold) => {
                worlds = worlds.into_iter().map(|world| world.without(hold)).collect();
            }
            Step::Answered(hold) => {
                let mut explained = HashSet::new();
                for world in &worlds {
                    world.give(hold, &asking, holds, &mut explained);
                }
                asking.retain(|other| *other != hold);
                if explained.is_empty() {
                    found += 1;
                    let newest = worlds.iter().map(|world| world.newest).max().unwrap_or_default();
                    let newest = newest.max(holds[hold].token);
                    explained.insert(World { newest, inside: vec![hold], given: Vec::new() });
                    // They could not be explained any more, and one mistake is enough.
                    asking.retain(|other| holds[*other].token > newest);
                }
                worlds = explained;
            }
        }
    }
    found
}

/// What happened, in order. At one moment, askings come first, then letting go, then answers: real time ordered none of
/// them, and so nobody is accused of what the clock was too coarse to tell.
fn steps(holds: &[Hold]) -> Vec<Step> {
    let mut steps: Vec<((Time, u8, u64, u8), Step)> = Vec::with_capacity(holds.len() * 3);
    for (index, hold) in holds.iter().enumerate() {
        steps.push(((hold.asked, 0, 0, 0), Step::Asks(index)));
        steps.push(((hold.from, 2, hold.token, 0), Step::Answered(index)));
        // Whose grant and last sign of life are at one moment was there, and is gone before the next.
        let end = if hold.to > hold.from { (hold.to, 1, 0, 0) } else { (hold.to, 2, hold.token, 1) };
        steps.push((end, Step::LetsGo(index)));
    }
    steps.sort_by_key(|(when, _)| *when);
    steps.into_iter().map(|(_, step)| step).collect()
}

impl World {
    fn without(mut self, hold: usize) -> World {
        self.inside.retain(|other| *other != hold);
        self
    }

    fn fits(&self, hold: &Hold, holds: &[Hold]) -> bool {
        match hold.mode {
            Mode::Exclusive => self.inside.is_empty(),
            Mode::Shared => self.inside.iter().all(|other| holds[*other].mode == Mode::Shared),
            Mode::Permit => self.inside.len() < PERMITS,
        }
    }

    /// All worlds in which `hold` has been answered, reached from this one by giving it, and others who ask, the lock.
    fn give(&self, hold: usize, asking: &[usize], holds: &[Hold], explained: &mut HashSet<World>) {
        if self.given.contains(&hold) {
            let mut world = self.clone();
            world.given.retain(|other| *other != hold);
            explained.insert(world);
            return;
        }
        for &next in asking {
            let (token, wanted) = (holds[next].token, holds[hold].token);
            // Beyond the wanted token nobody can be given the wanted one any more.
            if token > self.newest && token <= wanted && self.fits(&holds[next], holds) {
                let mut world = self.clone();
                world.newest = token;
                world.inside.push(next);
                world.inside.sort_unstable();
                world.given.push(next);
                world.given.sort_unstable();
                world.give(hold, asking, holds, explained);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::hold;
    use super::*;

    use Mode::{Exclusive, Permit, Shared};

    #[test]
    fn histories_with_an_explanation_are_accepted() {
        let accepted: [&[Hold]; 6] = [
            &[hold(0, 1, 5, Exclusive, 1), hold(2, 6, 9, Exclusive, 2)],
            // At the very moment at which the other was valid for the last time.
            &[hold(0, 1, 5, Exclusive, 1), hold(2, 5, 9, Exclusive, 2)],
            // The first to be given it heard of it last: it was stopped.
            &[hold(0, 9, 10, Shared, 1), hold(1, 2, 12, Shared, 2)],
            &[hold(0, 1, 5, Permit, 1), hold(0, 2, 6, Permit, 2), hold(0, 5, 7, Permit, 3)],
            &[hold(0, 1, 1, Exclusive, 1), hold(0, 1, 1, Exclusive, 2)],
            &[hold(0, 1, 4, Shared, 1), hold(0, 3, 6, Shared, 2), hold(2, 6, 8, Exclusive, 3)],
        ];
        for history in accepted {
            assert_eq!(violations(history), 0, "{history:?}");
        }
    }

    #[test]
    fn histories_without_one_are_refused() {
        let refused: [(&str, &[Hold]); 7] = [
            ("two at once", &[hold(0, 1, 5, Exclusive, 1), hold(0, 4, 9, Exclusive, 2)]),
            ("a writer beside a reader", &[hold(0, 1, 5, Shared, 1), hold(0, 4, 9, Exclusive, 2)]),
            ("a reader beside a writer", &[hold(0, 1, 5, Exclusive, 1), hold(0, 4, 9, Shared, 2)]),
            (
                "three permits of two",
                &[hold(0, 1, 5, Permit, 1), hold(0, 2, 6, Permit, 2), hold(0, 4, 7, Permit, 3)],
            ),
            ("an older token later", &[hold(0, 1, 5, Exclusive, 2), hold(0, 6, 9, Exclusive, 1)]),
            ("a token twice", &[hold(0, 1, 5, Exclusive, 2), hold(0, 6, 9, Exclusive, 2)]),
            // Nobody overlaps: but whoever asks after an answer cannot have been given a smaller token.
            ("a reader from the past", &[hold(0, 1, 5, Shared, 2), hold(2, 3, 9, Shared, 1)]),
        ];
        for (what, history) in refused {
            assert_eq!(violations(history), 1, "{what}");
        }
    }

    #[test]
    fn one_mistake_does_not_hide_the_next() {
        let twice = [
            hold(0, 1, 5, Exclusive, 1),
            hold(0, 4, 9, Exclusive, 2),
            hold(10, 11, 15, Exclusive, 3),
            hold(12, 14, 19, Exclusive, 4),
            hold(20, 21, 25, Exclusive, 5),
        ];
        assert_eq!(violations(&twice), 2);
    }

    /// Both checkers must agree where they look at the same: mutexes with rising tokens.
    #[test]
    fn it_agrees_with_the_other_checker_on_mutexes() {
        let mut chance = fastrand::Rng::with_seed(7);
        let mut refused = 0;
        for _ in 0..5_000 {
            let mut holds: Vec<Hold> = Vec::new();
            let mut at = 0;
            for token in 1..=6 {
                let from = at + chance.u64(1..4);
                let to = from + chance.u64(1..5);
                holds.push(hold(0, from, to, Exclusive, token));
                // Now and then the next one begins too early.
                at = if chance.u8(..8) == 0 { from } else { to };
            }
            let overlaps = super::super::overlap::overlaps(&holds);
            assert_eq!(violations(&holds) > 0, overlaps > 0, "{holds:?}");
            refused += u64::from(overlaps > 0);
        }
        assert!((500..4_500).contains(&refused), "both kinds are tried: {refused}");
    }
}
