//! Counting who has a lock in a layout without lines: at how many nodes a claim stands. Pure.

use std::time::Duration;

use super::super::foreign::{Found, Seen};
use super::tally::majority;
use crate::line::Ticket;

/// What the nodes said about one claim.
#[derive(Clone, Debug)]
pub(super) struct Hands {
    nodes: usize,
    ticket: Ticket,
    is_in: usize,
    evicted: usize,
    no_lock: usize,
    /// Nodes where it surely is not in, those above included.
    against: usize,
    silent: usize,
    /// Somebody else holds it somewhere; until when at least, if that has an end.
    busy: bool,
    rest: Option<Duration>,
}

impl Hands {
    pub(super) fn new(nodes: usize) -> Hands {
        Hands {
            nodes,
            ticket: Ticket::ZERO,
            is_in: 0,
            evicted: 0,
            no_lock: 0,
            against: 0,
            silent: 0,
            busy: false,
            rest: None,
        }
    }

    pub(super) fn note(&mut self, found: Found) {
        match found {
            Found::In(ticket) => {
                self.ticket = ticket;
                self.is_in += 1;
                return;
            }
            Found::Unsure => return self.silence(),
            Found::Evicted => self.evicted += 1,
            Found::NoLock | Found::Fair => self.no_lock += 1,
            Found::Busy(rest) => {
                let shorter = rest.filter(|rest| self.rest.is_none_or(|known| *rest < known));
                (self.busy, self.rest) = (true, shorter.or(self.rest));
            }
            Found::Free => {}
        }
        self.against += 1;
    }

    /// A node failed.
    pub(super) fn silence(&mut self) {
        self.silent += 1;
    }

    /// Nobody waits any longer for those who have not answered.
    pub(super) fn close(&mut self) {
        self.silent += self.missing();
    }

    fn missing(&self) -> usize {
        self.nodes - self.is_in - self.against - self.silent
    }

    /// Whether some node may have the claim.
    pub(super) fn may_stand_somewhere(&self) -> bool {
        self.against < self.nodes
    }

    /// Where a claim that wants the lock stands, as soon as that can be said. What too few nodes gave it, it gives back: so
    /// nodes that do not answer can keep it from getting the lock, but not from knowing that it did not.
    pub(super) fn verdict_on_taking(&self) -> Option<Found> {
        let answers = self.is_in + self.against;
        match self.verdict()? {
            Found::Unsure if answers >= majority(self.nodes) => Some(Found::Busy(self.rest)),
            Found::Unsure if answers + self.missing() >= majority(self.nodes) => None,
            found => Some(found),
        }
    }

    /// Where a claim stands, as soon as that can be said: in, if a majority has it.
    pub(super) fn verdict(&self) -> Option<Found> {
        let majority = majority(self.nodes);
        let spare = self.nodes - majority;
        if self.is_in >= majority {
            return Some(Found::In(self.ticket));
        }
        if self.is_in + self.missing() >= majority {
            return None;
        }
        if self.against <= spare && self.against + self.missing() > spare {
            return None;
        }
        Some(if self.against <= spare {
            // Those who did not answer may have it.
            Found::Unsure
        } else if self.evicted > 0 {
            // Elsewhere its mark may have ended already.
            Found::Evicted
        } else if self.no_lock > spare {
            Found::NoLock
        } else if self.busy || self.is_in > 0 {
            Found::Busy(self.rest)
        } else {
            Found::Free
        })
    }
}

/// What a majority of all nodes has under a key: what is left of it is what is left at enough of them.
pub(super) fn held_by_a_majority(nodes: usize, mut seen: Vec<Seen>) -> Option<Seen> {
    let majority = majority(nodes);
    let alike = |one: &Seen| seen.iter().filter(|other| other.stored == one.stored).count() >= majority;
    let stored = seen.iter().find(|one| alike(one))?.stored.clone();
    seen.retain(|one| one.stored == stored);
    seen.sort_by_key(|one| std::cmp::Reverse(one.view.remaining));
    let has_end = seen.iter().filter(|one| one.has_end).count() >= majority;
    seen.into_iter().nth(majority - 1).map(|one| Seen { has_end, ..one })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{ClaimView, Mode, Who};

    fn hands(text: &str) -> Hands {
        let mut hands = Hands::new(text.len());
        for letter in text.chars() {
            match letter {
                'i' => hands.note(Found::In(Ticket::new(7))),
                'b' => hands.note(Found::Busy(Some(Duration::from_secs(3)))),
                'c' => hands.note(Found::Busy(None)),
                'f' => hands.note(Found::Free),
                'e' => hands.note(Found::Evicted),
                'n' => hands.note(Found::NoLock),
                's' => hands.silence(),
                _ => {}
            }
        }
        hands
    }

    #[test]
    fn a_majority_decides_as_soon_as_there_is_one() {
        let busy = Some(Found::Busy(Some(Duration::from_secs(3))));
        for (answers, expected) in [
            ("iii..", Some(Found::In(Ticket::new(7)))),
            ("ii...", None),
            ("iibb.", None),
            ("iibbb", busy),
            ("bbb..", busy),
            ("bbc..", busy),
            ("iiff.", None),
            ("iifff", Some(Found::Busy(None))),
            ("fff..", Some(Found::Free)),
            ("eee..", Some(Found::Evicted)),
            ("eeb..", Some(Found::Evicted)),
            ("iiieb", Some(Found::In(Ticket::new(7)))),
            ("nnn..", Some(Found::NoLock)),
            ("iisss", Some(Found::Unsure)),
            ("eisss", Some(Found::Unsure)),
            ("iibss", Some(Found::Unsure)),
            ("sss..", Some(Found::Unsure)),
            ("bbss.", None),
            ("bbbss", busy),
            ("ib.", None),
            ("bb.", busy),
        ] {
            assert_eq!(hands(answers).verdict(), expected, "{answers}");
        }
    }

    #[test]
    fn who_wants_the_lock_knows_that_it_did_not_get_it() {
        let taking = |text: &str| hands(text).verdict_on_taking();
        let busy = Some(Found::Busy(Some(Duration::from_secs(3))));
        assert_eq!((taking("iibss"), taking("iisss"), taking("bbbss")), (busy, Some(Found::Unsure), busy));
        assert_eq!((taking("iiiss"), taking("ibss.")), (Some(Found::In(Ticket::new(7))), None));
    }

    #[test]
    fn who_has_only_some_of_the_nodes_holds_nothing() {
        let seen = |stored: &str, seconds| Seen {
            stored: stored.to_owned(),
            view: ClaimView {
                ticket: Ticket::new(1),
                mode: Mode::Exclusive,
                who: Who { owner: "o".into(), host: "h".into(), pid: 1 },
                remaining: Duration::from_secs(seconds),
                since: Duration::ZERO,
                held: None,
                evicted: false,
            },
            has_end: true,
        };
        let all = vec![seen("a", 9), seen("b", 9), seen("a", 5), seen("b", 9)];
        assert!(held_by_a_majority(5, all.clone()).is_none());
        let held = held_by_a_majority(5, [all, vec![seen("a", 7)]].concat()).unwrap();
        assert_eq!((held.stored.as_str(), held.view.remaining), ("a", Duration::from_secs(5)));
    }
}
