//! One claim of this client, and what it knows about its standing at each node. Pure.

use super::tally::majority;
use crate::line::{News, Standing, Ticket};
use crate::time::Time;

/// What is known of one claim at every node.
#[derive(Clone, Debug)]
pub(super) struct Ballot {
    ticket: Ticket,
    nodes: Vec<Known>,
    /// When the verb began that last told core this ticket: core counts the claim's validity from then, or from before.
    told: Option<Time>,
    won: bool,
    /// Its leave was called: nothing that still comes for it is news.
    departed: bool,
}

/// What is known at one node.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// It votes for the claim.
    votes: bool,
    /// It said that the claim is evicted.
    out: bool,
    /// When the last request was sent that surely extended the claim there.
    extended: Option<Time>,
}

impl Ballot {
    pub(super) fn new(nodes: usize, ticket: Ticket) -> Ballot {
        Ballot { ticket, nodes: vec![Known::default(); nodes], told: None, won: false, departed: false }
    }

    pub(super) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Whether a majority is known to have voted for it. From then on it gives no vote up by itself.
    pub(super) fn won(&self) -> bool {
        self.won
    }

    /// Whether this node is known to vote for it.
    #[cfg(test)]
    pub(super) fn votes(&self, node: usize) -> bool {
        self.nodes[node].votes
    }

    /// Yields: what it has on its old ticket is given up, and it asks for a place on a larger one.
    pub(super) fn yields(&mut self, ticket: Ticket) {
        let won = self.won && mutant!(YieldAfterWinning);
        *self = Ballot { won, ..Ballot::new(self.nodes.len(), ticket) };
    }

    pub(super) fn depart(&mut self) {
        self.departed = true;
    }

    /// A node answered a request that was sent at `sent`.
    pub(super) fn answered(&mut self, node: usize, sent: Time, standing: Standing) {
        let known = &mut self.nodes[node];
        if standing == Standing::Unsure {
            return;
        }
        if standing.ticket() != Some(self.ticket) {
            *known = Known { out: standing == Standing::Out, ..Known::default() };
            return;
        }
        known.extended = known.extended.max(Some(sent));
        // *Waiting* may be older than the bell that said *in*: once in, in until gone.
        known.votes |= matches!(standing, Standing::In { .. });
    }

    /// A node rang for this claim. Tells what core is to hear, once a majority says the same.
    pub(super) fn bell(&mut self, node: usize, ticket: Ticket, news: News) -> Option<News> {
        if self.departed || ticket != self.ticket {
            return None;
        }
        let known = &mut self.nodes[node];
        match news {
            News::In => {
                known.votes = true;
                self.wins().then_some(News::In)
            }
            News::Out => {
                let told_before = known.out;
                *known = Known { out: true, ..Known::default() };
                let out = self.nodes.iter().filter(|known| known.out).count();
                (!told_before && out == majority(self.nodes.len())).then_some(News::Out)
            }
        }
    }

    /// A verb that began at `began` tells core this standing. Answers what it really tells: bells may have come meanwhile.
    pub(super) fn tell(&mut self, began: Time, standing: Standing) -> Standing {
        if standing.ticket() != Some(self.ticket) {
            return standing;
        }
        self.told = self.told.max(Some(began));
        if matches!(standing, Standing::In { .. }) {
            self.won = true;
        } else if self.wins() {
            return Standing::In { ticket: self.ticket };
        }
        standing
    }

    /// Whether a majority votes for it now, and did not before. A vote counts only from a node that has surely extended
    /// the claim since core began to count: another one may end before the client's belief does.
    pub(super) fn wins(&mut self) -> bool {
        let Some(told) = self.told.filter(|_| !self.won && !self.departed) else { return false };
        let counts = |known: &&Known| known.votes && known.extended >= Some(told);
        self.won = self.nodes.iter().filter(counts).count() >= majority(self.nodes.len());
        self.won
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Ticket = Ticket::new(7);

    fn at(us: u64) -> Time {
        Time::from_micros(us)
    }

    fn waiting() -> Standing {
        Standing::Waiting { ticket: T, ahead: 1, look_again: std::time::Duration::from_secs(1) }
    }

    #[test]
    fn a_majority_of_bells_lets_in_once() {
        let mut ballot = Ballot::new(3, T);
        (0..3).for_each(|node| ballot.answered(node, at(5), waiting()));
        assert_eq!(ballot.bell(0, T, News::In), None, "core does not know the ticket yet");
        assert_eq!(ballot.tell(at(5), waiting()), waiting());
        assert_eq!(ballot.bell(1, Ticket::new(6), News::In), None, "an old story");
        assert_eq!(ballot.bell(1, T, News::In), Some(News::In));
        assert_eq!(ballot.bell(2, T, News::In), None, "once");
        assert_eq!((ballot.bell(0, T, News::Out), ballot.bell(0, T, News::Out)), (None, None));
        assert_eq!(ballot.bell(1, T, News::Out), Some(News::Out));
    }

    #[test]
    fn a_vote_that_may_end_too_soon_does_not_count() {
        let mut ballot = Ballot::new(3, T);
        (0..3).for_each(|node| ballot.answered(node, at(5), waiting()));
        (0..2).for_each(|node| ballot.answered(node, at(9), waiting()));
        ballot.tell(at(9), waiting());
        assert_eq!((ballot.bell(2, T, News::In), ballot.bell(0, T, News::In)), (None, None));
        ballot.answered(2, at(9), waiting());
        assert!(ballot.wins(), "its late answer says that it was extended");
    }
}
