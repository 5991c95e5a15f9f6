//! All ballots of one client, and the bells of all nodes, which are rung on only when a majority agrees.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::ballot::Ballot;
use super::tickets::Tickets;
use crate::driver::{BellBoard, Bells};
use crate::line::{Bell, ClaimId, News, Standing, Ticket};
use crate::name::Name;
use crate::sync::locked;
use crate::time::{BootClock, Time, wall_micros};

/// How long a bell may be on its way inside this process, behind the answer to the leave that was asked after it.
const LATE_BELLS: Duration = Duration::from_secs(2);

/// The claims of this client that may stand somewhere.
pub(super) struct Ballots {
    nodes: usize,
    core: Bells,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: HashMap<ClaimId, Entry>,
    tickets: Tickets,
    entries: u64,
    /// Ballots to be forgotten, with when they were done with, oldest first.
    done: VecDeque<(Time, ClaimId, u64)>,
    /// Claims that were refused before anything was sent: there is nothing to leave.
    refused: HashSet<ClaimId>,
}

impl State {
    fn forget_old(&mut self) {
        let now = BootClock.now();
        while let Some(&(_, id, number)) = self.done.front().filter(|(at, ..)| now.since(*at) > LATE_BELLS) {
            self.done.pop_front();
            if self.open.get(&id).is_some_and(|entry| entry.number == number) {
                self.open.remove(&id);
            }
        }
    }
}

struct Entry {
    /// Tells a ballot from a later one of the same id.
    number: u64,
    name: Name,
    ballot: Ballot,
    departed: bool,
    /// It left before it was asked for: its join lost a race against its leave, and must not be sent.
    too_late: bool,
}

impl Ballots {
    pub(super) fn new(nodes: usize, core: Bells) -> Ballots {
        Ballots { nodes, core, state: Mutex::default() }
    }

    /// The ticket to propose for a claim, the same as before if it was proposed before, and whether it has won on it.
    /// `None` if it was told to leave before.
    pub(super) fn stand(&self, name: &Name, id: ClaimId) -> Option<(Ticket, bool)> {
        let mut state = locked(&self.state);
        state.forget_old();
        match state.open.get(&id) {
            Some(entry) if entry.too_late => return None,
            Some(entry) if !entry.departed => return Some((entry.ballot.ticket(), entry.ballot.won())),
            _ => {}
        }
        let ticket = state.tickets.next(wall_micros());
        state.entries += 1;
        let ballot = Ballot::new(self.nodes, ticket);
        let number = state.entries;
        let entry = Entry { number, name: name.clone(), ballot, departed: false, too_late: false };
        state.open.insert(id, entry);
        Some((ticket, false))
    }

    /// Too few nodes took the claim's ticket: a larger one than `above`, and than all that any node named. `None` if the
    /// claim was told to leave meanwhile: what is asked for now would come after its leave, and stay.
    pub(super) fn yields(&self, id: ClaimId, above: Ticket) -> Option<Ticket> {
        let mut state = locked(&self.state);
        let wall = wall_micros();
        state.tickets.saw(above, wall);
        let ticket = state.tickets.next(wall);
        let entry = state.open.get_mut(&id).filter(|entry| !entry.departed)?;
        entry.ballot.yields(ticket);
        Some(ticket)
    }

    /// Nothing was sent for this claim, and nothing will be.
    pub(super) fn refuse(&self, id: ClaimId) {
        locked(&self.state).refused.insert(id);
    }

    /// Whether it was refused. Asked once: its client leaves whatever it asked for.
    pub(super) fn was_refused(&self, id: ClaimId) -> bool {
        locked(&self.state).refused.remove(&id)
    }

    /// Whether a claim is known to hold the lock on this ticket.
    pub(super) fn won(&self, id: ClaimId, ticket: Option<Ticket>) -> bool {
        let state = locked(&self.state);
        state.open.get(&id).is_some_and(|entry| entry.ballot.won() && ticket == Some(entry.ballot.ticket()))
    }

    /// A node answered a request about a claim on this ticket, sent at `sent`.
    pub(super) fn answered(&self, id: ClaimId, ticket: Ticket, node: usize, sent: Time, standing: Standing) {
        if let Some(entry) = locked(&self.state).open.get_mut(&id)
            && entry.ballot.ticket() == ticket
        {
            entry.ballot.answered(node, sent, standing);
        }
    }

    /// The same, when the verb has been answered already: it may be what a majority of votes lacked.
    pub(super) fn answered_late(
        &self,
        id: ClaimId,
        ticket: Ticket,
        node: usize,
        sent: Time,
        standing: Standing,
    ) {
        self.answered(id, ticket, node, sent, standing);
        let won = locked(&self.state).open.get_mut(&id).and_then(|entry| {
            (entry.ballot.ticket() == ticket && entry.ballot.wins()).then(|| entry.name.clone())
        });
        if let Some(name) = won {
            self.core.ring(&name, &Bell { id, ticket, news: News::In });
        }
    }

    /// A verb that began at `began` answers this; see [`Ballot::tell`]. A claim on the place of its identity stands on that
    /// place's ticket.
    pub(super) fn tell(&self, id: ClaimId, began: Time, standing: Standing) -> Standing {
        match locked(&self.state).open.get_mut(&id) {
            Some(entry) => entry.ballot.tell(began, standing),
            None => standing,
        }
    }

    /// The claim stands on the place of its identity, whose ticket is another one than it proposed.
    pub(super) fn stands_on(&self, id: ClaimId, ticket: Ticket) {
        if let Some(entry) = locked(&self.state).open.get_mut(&id)
            && entry.ballot.ticket() != ticket
        {
            entry.ballot = Ballot::new(self.nodes, ticket);
        }
    }

    /// A claim leaves: bells that are under way for it are no news. Gives the number to [`forget`](Ballots::forget) it by.
    ///
    /// One that never learnt a ticket, and is not known here, has a join that is still to be sent.
    pub(super) fn depart(&self, name: &Name, id: ClaimId, ticket: Option<Ticket>) -> Option<u64> {
        let mut state = locked(&self.state);
        if !state.open.contains_key(&id) && ticket.is_none() {
            state.entries += 1;
            let (number, ballot) = (state.entries, Ballot::new(self.nodes, Ticket::ZERO));
            let entry = Entry { number, name: name.clone(), ballot, departed: true, too_late: true };
            state.open.insert(id, entry);
        }
        let entry = state.open.get_mut(&id)?;
        entry.departed = true;
        entry.ballot.depart();
        Some(entry.number)
    }

    /// A claim has left. Its ballot is kept a little longer, so that a late bell is not taken for a stranger's, whose place
    /// would have to be left.
    pub(super) fn forget(&self, id: ClaimId, number: Option<u64>) {
        let mut state = locked(&self.state);
        state.done.extend(number.map(|number| (BootClock.now(), id, number)));
        state.forget_old();
    }

    fn ring(&self, node: usize, name: &Name, bell: &Bell) {
        let news = match locked(&self.state).open.get_mut(&bell.id) {
            Some(entry) => entry.ballot.bell(node, bell.ticket, bell.news),
            // A copy of a join came late, at one node or more: core has it left everywhere.
            None => Some(bell.news).filter(|news| *news == News::In),
        };
        if let Some(news) = news {
            self.core.ring(name, &Bell { news, ..bell.clone() });
        }
    }
}

impl fmt::Debug for Ballots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ballots").field("open", &locked(&self.state).open.len()).finish_non_exhaustive()
    }
}

/// The board of one node.
#[derive(Debug)]
pub(super) struct NodeBells {
    pub(super) node: usize,
    pub(super) ballots: Arc<Ballots>,
}

impl BellBoard for NodeBells {
    fn ring(&self, name: &Name, bell: &Bell) {
        self.ballots.ring(self.node, name, bell);
    }

    fn acknowledged(&self, _: ClaimId, _: u32) {
        // Nodes have no replicas that anybody waits for.
    }

    fn look_now(&self, id: ClaimId) {
        self.ballots.core.look_now(id);
    }

    fn look_at_all(&self) {
        self.ballots.core.look_at_all();
    }
}
