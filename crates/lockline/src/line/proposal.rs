//! A line whose tickets are made elsewhere: one node of a quorum, where all nodes are to give a claim the same ticket.

use super::*;

/// What a line says to a claim that brings its own ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proposed {
    /// Where it stands, on its own ticket or on the place of its identity.
    Stands(Standing),
    /// Its ticket is not larger than this one, the last of the line: it stands nowhere.
    Behind(Ticket),
    /// Refused for another reason: it stands nowhere.
    Refused(Refusal),
}

impl Line {
    /// Stands a claim in line on the ticket that it brings along, which must be larger than every ticket of the line
    /// before it, gone ones included: so each line rises, and two claims that met in one line never share a ticket.
    ///
    /// The same id again finds its place again, extended as by a renewal. With a larger ticket it gives its old place up
    /// first, whatever becomes of the new one. Otherwise as [`join`](Line::join).
    pub fn propose(&mut self, now: Now, claim: &Claim, wait: bool, ticket: Ticket) -> Step<Proposed> {
        let now = self.catch_up(now);
        self.give_up_older(claim.id, ticket);
        // Who gets in by what is gone now is in before the newcomer is looked at.
        let mut bells = self.settle(now.at, Some(claim.id));
        let answer = self.place_proposal(now, claim, wait, ticket);
        bells.extend(self.settle(now.at, Some(claim.id)));
        let answer = answer.unwrap_or_else(|| Proposed::Stands(self.standing_of(now.at, claim.id)));
        Step { answer, bells }
    }

    fn give_up_older(&mut self, id: ClaimId, ticket: Ticket) {
        let Some(index) = self.index_of(id) else { return };
        let place = &mut self.places[index];
        if place.ticket < ticket && !place.closed {
            place.holds.retain(|hold| hold.id != id);
            self.places.retain(|place| !place.holds.is_empty());
        }
    }

    /// `None`: the claim has a place now.
    fn place_proposal(&mut self, now: Now, claim: &Claim, wait: bool, ticket: Ticket) -> Option<Proposed> {
        if self.contains(claim.id) || self.place_of_identity(claim).is_some() {
            return match self.place_claim(now, claim, wait) {
                Ok(standing) => standing.map(Proposed::Stands),
                Err(refusal) => Some(Proposed::Refused(refusal)),
            };
        }
        if !wait && !self.would_be_in(now.at, claim.mode) {
            return Some(Proposed::Stands(Standing::Out));
        }
        if ticket <= self.last_ticket && !mutant!(TicketByMax) {
            return Some(Proposed::Behind(self.last_ticket));
        }
        self.last_ticket = self.last_ticket.max(ticket);
        let hold = Hold {
            id: claim.id,
            lease: claim.lease,
            deadline: now.at + claim.lease,
            fixed: false,
            since: now.at,
            who: claim.who.clone(),
        };
        self.places.push(Standpoint {
            ticket,
            mode: claim.mode,
            identity: claim.identity.clone(),
            closed: false,
            entered: None,
            holds: vec![hold],
        });
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Primitive;

    fn claim(id: u128) -> Claim {
        Claim {
            name: Name::new("m").unwrap(),
            id: ClaimId::from_u128(id),
            mode: Mode::Exclusive,
            lease: Duration::from_secs(10),
            who: Arc::new(Who { owner: "o".into(), host: "h".into(), pid: 1 }),
            identity: None,
            primitive: Primitive::Mutex,
        }
    }

    fn at(us: u64) -> Now {
        Now { at: Time::from_micros(us), ticket_us: us }
    }

    #[test]
    fn tickets_only_rise_and_a_larger_one_gives_up_the_old_place() {
        let mut line = Line::default();
        let mut propose = |id, ticket| line.propose(at(1), &claim(id), true, Ticket::new(ticket));
        let is_in = |ticket| Proposed::Stands(Standing::In { ticket: Ticket::new(ticket) });
        assert_eq!(propose(1, 10).answer, is_in(10));
        assert_eq!(propose(2, 10).answer, Proposed::Behind(Ticket::new(10)));
        assert_eq!(propose(2, 9).answer, Proposed::Behind(Ticket::new(10)));
        assert!(matches!(propose(2, 12).answer, Proposed::Stands(Standing::Waiting { ahead: 1, .. })));
        assert_eq!(propose(1, 10).answer, is_in(10), "the same place");
        let moved = propose(1, 11);
        assert_eq!(moved.answer, Proposed::Behind(Ticket::new(12)), "its old place is gone all the same");
        assert_eq!(moved.bells.len(), 1, "the next one is in by it");
        assert!(matches!(propose(1, 13).answer, Proposed::Stands(Standing::Waiting { ahead: 1, .. })));
        assert_eq!(propose(2, 11).answer, is_in(12), "an old copy finds the newer place");
    }
}
