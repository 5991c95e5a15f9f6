//! Counting: what the nodes said about one claim, and what follows from it. Pure.
//!
//! A node is a line of its own (see [`Line::propose`](crate::line::Line::propose)); being in there is its *vote*. A claim
//! holds the lock while a majority of all nodes votes for it. Two majorities share a node, and a node lets in only what
//! fits together: so nobody overlaps, and because tickets rise at every node, a later holder has the larger ticket.

use std::time::Duration;

use crate::line::{Standing, Ticket};

/// What one node said about one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Where it stands there.
    Stands(Standing),
    /// Nowhere: its ticket is not larger than this one, the last of that node.
    Behind(Ticket),
    /// Nowhere: its identity stands there in another mode.
    WouldWaitForItself,
    /// Nothing, in time. It may have done what it was asked for.
    Silence,
}

/// What the answers mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// This is where the claim stands.
    Stands(Standing),
    /// Too few nodes took its ticket: it yields what it has, and asks again with a ticket larger than this one.
    Again(Ticket),
    /// Its identity stands in the line in another mode.
    WouldWaitForItself,
    /// Too few answers to say anything.
    NoQuorum,
}

/// The answers to one question about one claim, a place for each node.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    answers: Vec<Option<Answer>>,
}

/// How many of `nodes` decide.
pub(super) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// The answers, counted.
#[derive(Debug, Default)]
struct Count {
    /// The ticket that most nodes name.
    ticket: Ticket,
    /// How many vote for it there, and how many have it in line, in or not.
    votes: usize,
    stands: usize,
    out: usize,
    lapsed: usize,
    behind: usize,
    silent: usize,
    missing: usize,
    waits_for_itself: bool,
    /// The largest ticket that any node named.
    largest: Ticket,
    ahead: u32,
    look_again: Option<Duration>,
}

impl Tally {
    pub(super) fn new(nodes: usize) -> Tally {
        Tally { answers: vec![None; nodes] }
    }

    pub(super) fn note(&mut self, node: usize, answer: Answer) {
        self.answers[node] = Some(answer);
    }

    /// Nobody waits any longer for those who have not answered.
    pub(super) fn close(&mut self) {
        for answer in &mut self.answers {
            answer.get_or_insert(Answer::Silence);
        }
    }

    /// Whether some node may have the claim in its line.
    pub(super) fn may_stand_somewhere(&self) -> bool {
        let stands = |answer: &Option<Answer>| match answer {
            Some(Answer::Stands(Standing::Unsure) | Answer::Silence) | None => true,
            Some(Answer::Stands(standing)) => standing.ticket().is_some(),
            Some(Answer::Behind(_) | Answer::WouldWaitForItself) => false,
        };
        self.answers.iter().any(stands)
    }

    /// Whether a node has not answered yet, and is still waited for.
    pub(super) fn is_open(&self) -> bool {
        self.answers.iter().any(Option::is_none)
    }

    fn majority(&self) -> usize {
        majority(self.answers.len())
    }

    fn count(&self) -> Count {
        let mut count = Count { ticket: self.commonest_ticket(), ..Count::default() };
        for answer in &self.answers {
            match answer {
                None => count.missing += 1,
                Some(Answer::Silence) => count.silent += 1,
                Some(Answer::WouldWaitForItself) => count.waits_for_itself = true,
                Some(Answer::Behind(last)) => {
                    count.behind += 1;
                    count.largest = count.largest.max(*last);
                }
                Some(Answer::Stands(standing)) => count.stand(standing),
            }
        }
        count
    }

    fn commonest_ticket(&self) -> Ticket {
        let named = |answer: &Option<Answer>| match answer {
            Some(Answer::Stands(standing)) => standing.ticket(),
            _ => None,
        };
        let tickets: Vec<Ticket> = self.answers.iter().filter_map(named).collect();
        let often = |ticket: &Ticket| tickets.iter().filter(|other| *other == ticket).count();
        tickets.iter().copied().max_by_key(|ticket| (often(ticket), *ticket)).unwrap_or_default()
    }

    /// What became of a join that may wait. `won`: it was known to hold the lock before, on this ticket.
    pub(super) fn join(&self, won: bool) -> Option<Verdict> {
        let (count, majority) = (self.count(), self.majority());
        let spare = self.answers.len() - majority;
        if count.waits_for_itself {
            return Some(Verdict::WouldWaitForItself);
        }
        if let Some(standing) = count.standing(majority, won) {
            return Some(Verdict::Stands(standing));
        }
        if count.silent > spare {
            return Some(Verdict::NoQuorum);
        }
        if won {
            // What it held on to may be gone at too many nodes; but it never gives up a vote by itself.
            return if count.gone() + count.behind > spare {
                Some(Verdict::Stands(count.nowhere()))
            } else {
                (count.missing == 0).then_some(Verdict::NoQuorum)
            };
        }
        if count.stands + count.missing >= majority {
            None
        } else if count.behind > 0 || count.stands > 0 {
            Some(Verdict::Again(count.largest))
        } else if count.out > 0 {
            Some(Verdict::Stands(Standing::Out))
        } else {
            (count.missing == 0).then_some(Verdict::NoQuorum)
        }
    }

    /// What became of a join that may not wait.
    pub(super) fn try_join(&self) -> Option<Verdict> {
        let (count, majority) = (self.count(), self.majority());
        let spare = self.answers.len() - majority;
        if count.waits_for_itself {
            return Some(Verdict::WouldWaitForItself);
        }
        if count.votes >= majority {
            return Some(Verdict::Stands(Standing::In { ticket: count.ticket }));
        }
        let refused = count.out + (count.stands - count.votes);
        if refused > spare {
            return Some(Verdict::Stands(Standing::Out));
        }
        if count.votes + count.missing >= majority {
            return None;
        }
        Some(if count.silent > spare {
            Verdict::NoQuorum
        } else if count.behind > 0 && refused + count.silent <= spare {
            Verdict::Again(count.largest)
        } else {
            Verdict::Stands(Standing::Out)
        })
    }

    /// What became of a renewal. `won`: it is known to hold the lock on this ticket.
    pub(super) fn renew(&self, won: bool) -> Option<Verdict> {
        let (count, majority) = (self.count(), self.majority());
        if mutant!(YieldAfterWinning) && won && count.gone() > 0 {
            return Some(Verdict::Again(count.largest));
        }
        if let Some(standing) = count.standing(majority, won) {
            return Some(Verdict::Stands(standing));
        }
        let waits_on = mutant!(NoYield) && count.stands + count.missing > 0;
        if count.gone() > self.answers.len() - majority && !waits_on {
            return Some(Verdict::Stands(count.nowhere()));
        }
        if count.missing > 0 {
            return None;
        }
        // A holder keeps its old validity, and asks again. One that waits, and stands at too few of the nodes that
        // answer, yields: it could wait for ever, on votes that another one waits for.
        let answers = self.answers.len() - count.silent;
        let yields = !won && answers >= majority && count.gone() > 0;
        Some(if yields { Verdict::Stands(count.nowhere()) } else { Verdict::NoQuorum })
    }
}

impl Count {
    fn stand(&mut self, standing: &Standing) {
        match *standing {
            Standing::Out => self.out += 1,
            Standing::Lapsed => self.lapsed += 1,
            Standing::Unsure => self.silent += 1,
            Standing::In { ticket } | Standing::Waiting { ticket, .. } => {
                self.largest = self.largest.max(ticket);
                if ticket != self.ticket {
                    self.lapsed += 1;
                    return;
                }
                self.stands += 1;
                match *standing {
                    Standing::Waiting { ahead, look_again, .. } => {
                        self.ahead = self.ahead.max(ahead);
                        self.look_again =
                            Some(self.look_again.map_or(look_again, |known| known.min(look_again)));
                    }
                    _ => self.votes += 1,
                }
            }
        }
    }

    /// How many nodes surely do not have it.
    fn gone(&self) -> usize {
        self.out + self.lapsed
    }

    fn nowhere(&self) -> Standing {
        if self.out > 0 { Standing::Out } else { Standing::Lapsed }
    }

    /// Where it stands, if a majority says so. For a holder, *waiting* says nothing: an answer of that kind would make its
    /// client believe that a majority still votes for it.
    fn standing(&self, majority: usize, won: bool) -> Option<Standing> {
        if self.votes >= majority {
            return Some(Standing::In { ticket: self.ticket });
        }
        let enough = if mutant!(NoYield) { self.stands > 0 } else { self.stands >= majority };
        let no_majority_of_votes = self.votes + self.missing < majority;
        (!won && enough && no_majority_of_votes).then(|| Standing::Waiting {
            ticket: self.ticket,
            ahead: self.ahead,
            look_again: self.look_again.unwrap_or(LOOK_AGAIN),
        })
    }
}

/// When a claim looks again that no node lets wait, and that yet has no majority: votes are on their way to it.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    const T: Ticket = Ticket::new(7);

    fn tally(text: &str) -> Tally {
        let answer = |letter: char| match letter {
            'i' => Some(Answer::Stands(Standing::In { ticket: T })),
            'w' => Some(Answer::Stands(Standing::Waiting { ticket: T, ahead: 1, look_again: LOOK_AGAIN })),
            'o' => Some(Answer::Stands(Standing::Out)),
            'l' => Some(Answer::Stands(Standing::Lapsed)),
            'b' => Some(Answer::Behind(Ticket::new(9))),
            's' => Some(Answer::Silence),
            _ => None,
        };
        Tally { answers: text.chars().map(answer).collect() }
    }

    fn word(verdict: Option<Verdict>) -> &'static str {
        match verdict {
            None => "open",
            Some(Verdict::Stands(Standing::In { .. })) => "in",
            Some(Verdict::Stands(Standing::Waiting { .. })) => "waiting",
            Some(Verdict::Stands(Standing::Out)) => "out",
            Some(Verdict::Stands(Standing::Lapsed)) => "lapsed",
            Some(Verdict::Stands(Standing::Unsure)) => "unsure",
            Some(Verdict::Again(above)) if above >= Ticket::new(9) => "again",
            Some(Verdict::Again(_)) => "again?",
            Some(Verdict::WouldWaitForItself) => "itself",
            Some(Verdict::NoQuorum) => "no quorum",
        }
    }

    #[test]
    fn a_majority_decides_as_soon_as_there_is_one() {
        for (answers, join, holder, tries) in [
            ("iii..", "in", "in", "in"),
            ("ii...", "open", "open", "open"),
            ("www..", "waiting", "open", "out"),
            ("iiw..", "open", "open", "open"),
            ("iiwss", "waiting", "no quorum", "out"),
            ("iiwbb", "waiting", "no quorum", "again"),
            ("bbb..", "again", "lapsed", "again"),
            ("iibbb", "again", "lapsed", "again"),
            ("iiobb", "again", "out", "again"),
            ("ooo..", "out", "out", "out"),
            ("sss..", "no quorum", "no quorum", "no quorum"),
            ("iisss", "no quorum", "no quorum", "no quorum"),
            ("wwbbs", "again", "no quorum", "out"),
        ] {
            let tally = tally(answers);
            assert_eq!(word(tally.join(false)), join, "{answers}");
            assert_eq!(word(tally.try_join()), tries, "{answers}");
            assert_eq!(word(tally.join(true)), holder, "{answers} won");
        }
    }

    #[test]
    fn renewals() {
        for (answers, waiter, holder) in [
            ("iii..", "in", "in"),
            ("www..", "waiting", "open"),
            ("wwwww", "waiting", "no quorum"),
            ("iiwww", "waiting", "no quorum"),
            ("lll..", "lapsed", "lapsed"),
            ("ool..", "out", "out"),
            ("iilss", "lapsed", "no quorum"),
            ("wwsss", "no quorum", "no quorum"),
            ("wwwss", "waiting", "no quorum"),
            ("iissl", "lapsed", "no quorum"),
        ] {
            assert_eq!(word(tally(answers).renew(false)), waiter, "{answers} waiting");
            assert_eq!(word(tally(answers).renew(true)), holder, "{answers} holding");
        }
    }

    #[test]
    fn the_ticket_of_most_nodes_counts() {
        let mut tally = tally("ii...");
        for (node, ticket) in [(2, 8), (3, 8), (4, 8)] {
            tally.note(node, Answer::Stands(Standing::In { ticket: Ticket::new(ticket) }));
        }
        let larger = Verdict::Stands(Standing::In { ticket: Ticket::new(8) });
        assert_eq!(
            tally.renew(true),
            Some(larger),
            "a second place is named, and its client learns that its own is gone"
        );
    }
}
