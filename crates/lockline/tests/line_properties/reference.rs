//! A line, deliberately naive: a flat list of claims, and everything else recomputed from the definitions of
//! `design.md` §2 whenever it is asked for.

use std::time::Duration;

use lockline::line::{Mode, Standing, Ticket};
use lockline::time::Time;

/// A claim's number in a history: it stands for its id.
pub(crate) type Number = u32;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stands {
    pub(crate) number: Number,
    pub(crate) ticket: u64,
    pub(crate) mode: Mode,
    pub(crate) identity: Option<u8>,
    pub(crate) lease: Duration,
    pub(crate) deadline: Time,
    pub(crate) fixed: bool,
    pub(crate) closed: bool,
    pub(crate) since: Time,
}

/// What a claim asks for.
#[derive(Clone, Debug)]
pub(crate) struct Wants {
    pub(crate) number: Number,
    pub(crate) mode: Mode,
    pub(crate) lease: Duration,
    pub(crate) identity: Option<u8>,
}

/// A claim that must hear a bell: its number, its ticket, and whether it was evicted.
pub(crate) type Rung = (Number, u64, bool);

#[derive(Clone, Debug, Default)]
pub(crate) struct Reference {
    pub(crate) claims: Vec<Stands>,
    pub(crate) last_ticket: u64,
    pub(crate) guard: Option<(Time, Duration)>,
    last_seen: Time,
}

impl Reference {
    pub(crate) fn after(last_ticket: u64) -> Reference {
        Reference { last_ticket, ..Reference::default() }
    }

    pub(crate) fn restarted(now: Time, guard: Duration) -> Reference {
        let last_ticket = (now + guard).as_micros() - 1;
        Reference { last_ticket, guard: Some((now + guard, guard)), last_seen: now, ..Reference::default() }
    }

    /// The modes of the places in order, one for each ticket.
    fn places(&self) -> Vec<(u64, Mode)> {
        let mut places: Vec<(u64, Mode)> =
            self.claims.iter().map(|claim| (claim.ticket, claim.mode)).collect();
        places.sort_by_key(|place| place.0);
        places.dedup();
        places
    }

    fn guarded(&self, now: Time) -> bool {
        self.guard.is_some_and(|(until, _)| now < until)
    }

    /// The table of the design, word by word.
    pub(crate) fn is_in(&self, ticket: u64, now: Time) -> bool {
        let places = self.places();
        let before: Vec<Mode> = places.iter().filter(|place| place.0 < ticket).map(|place| place.1).collect();
        let mine = places.iter().find(|place| place.0 == ticket).map(|place| place.1);
        let by_the_table = match mine {
            None => false,
            Some(Mode::Exclusive) => before.is_empty(),
            Some(Mode::Shared) => before.iter().all(|mode| *mode == Mode::Shared),
            Some(Mode::Permits { count, limit }) => {
                let mut taken = count;
                let mut smallest = limit;
                before.iter().all(|mode| match mode {
                    Mode::Permits { count, limit } => {
                        taken += count;
                        smallest = smallest.min(*limit);
                        true
                    }
                    _ => false,
                }) && taken <= smallest
            }
        };
        by_the_table && !self.guarded(now)
    }

    pub(crate) fn all_in(&self, now: Time) -> Vec<u64> {
        self.places().iter().map(|place| place.0).filter(|ticket| self.is_in(*ticket, now)).collect()
    }

    /// Brings the list to the present.
    pub(crate) fn catch_up(&mut self, now: Time) {
        if now < self.last_seen {
            for claim in &mut self.claims {
                claim.deadline = claim.deadline.min(now + claim.lease);
            }
            self.guard = self.guard.map(|(until, length)| (until.min(now + length), length));
        }
        self.last_seen = now;
        self.claims.retain(|claim| claim.deadline > now);
        if !self.guarded(now) {
            self.guard = None;
        }
    }

    pub(crate) fn find(&self, number: Number) -> Option<&Stands> {
        self.claims.iter().find(|claim| claim.number == number)
    }

    fn find_mut(&mut self, number: Number) -> Option<&mut Stands> {
        self.claims.iter_mut().find(|claim| claim.number == number)
    }

    /// `Err`: refused, because its owner would wait for itself.
    pub(crate) fn join(&mut self, now: Time, wants: &Wants, wait: bool) -> Result<Standing, ()> {
        if let Some(claim) = self.find_mut(wants.number) {
            if !claim.closed && !claim.fixed {
                claim.lease = wants.lease;
                claim.deadline = claim.deadline.max(now + wants.lease);
            }
            return Ok(self.standing(now, wants.number));
        }
        let same_owner = |claim: &&Stands| wants.identity.is_some() && claim.identity == wants.identity;
        let own_place = self.claims.iter().filter(same_owner).find(|claim| !claim.closed).cloned();
        if own_place.as_ref().is_some_and(|place| place.mode != wants.mode) {
            return Err(());
        }
        let before = (self.claims.clone(), self.last_ticket);
        let ticket =
            own_place.as_ref().map_or((self.last_ticket + 1).max(now.as_micros()), |place| place.ticket);
        self.last_ticket = self.last_ticket.max(ticket);
        self.claims.push(Stands {
            number: wants.number,
            ticket,
            mode: wants.mode,
            identity: wants.identity,
            lease: wants.lease,
            deadline: now + wants.lease,
            fixed: false,
            closed: false,
            since: now,
        });
        if !wait && !self.is_in(ticket, now) {
            // As if it had never asked.
            (self.claims, self.last_ticket) = before;
            return Ok(Standing::Out);
        }
        Ok(self.standing(now, wants.number))
    }

    pub(crate) fn renew(&mut self, now: Time, wants: &Wants, ticket: Option<u64>, last: bool) -> Standing {
        let is_in = self.find(wants.number).is_some_and(|claim| self.is_in(claim.ticket, now));
        if let Some(claim) = self.find_mut(wants.number)
            && ticket.is_none_or(|ticket| ticket == claim.ticket)
            && !claim.closed
            && !claim.fixed
        {
            claim.lease = wants.lease;
            let extended = now + wants.lease;
            claim.fixed = last && is_in;
            claim.deadline = if claim.fixed { extended } else { claim.deadline.max(extended) };
        }
        self.standing(now, wants.number)
    }

    pub(crate) fn leave(&mut self, number: Number) {
        self.claims.retain(|claim| claim.number != number);
    }

    /// Who must be told, and whether there was such a place.
    pub(crate) fn evict(&mut self, ticket: u64, keeps_place: bool) -> (Vec<Rung>, bool) {
        let there = self.claims.iter().filter(|claim| claim.ticket == ticket);
        let rung: Vec<Rung> = there.map(|claim| (claim.number, ticket, true)).collect();
        if keeps_place {
            let there = self.claims.iter_mut().filter(|claim| claim.ticket == ticket);
            there.for_each(|claim| claim.closed = true);
        } else {
            self.claims.retain(|claim| claim.ticket != ticket);
        }
        let found = !rung.is_empty();
        (rung, found)
    }

    pub(crate) fn standing(&self, now: Time, number: Number) -> Standing {
        let Some(claim) = self.find(number) else { return Standing::Lapsed };
        let ticket = Ticket::new(claim.ticket);
        if claim.closed {
            return Standing::Out;
        }
        if self.is_in(claim.ticket, now) {
            return Standing::In { ticket };
        }
        let before: Vec<u64> =
            self.places().iter().map(|place| place.0).filter(|other| *other < claim.ticket).collect();
        let mut look_again = Duration::from_secs(1).min(claim.lease / 3);
        for place in &before {
            let holds = self.claims.iter().filter(|other| other.ticket == *place);
            let lapse = holds.map(|hold| hold.deadline.since(now)).max().expect("a place has a claim");
            look_again = look_again.min(lapse);
        }
        if let Some((until, _)) = self.guard {
            look_again = look_again.min(until.since(now));
        }
        let look_again = look_again.max(Duration::from_millis(5));
        Standing::Waiting { ticket, ahead: before.len() as u32, look_again }
    }
}
