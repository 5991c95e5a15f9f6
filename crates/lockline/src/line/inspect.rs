//! What the model checker sees of a line, and what it may forget of one: only in this crate's own tests.

use super::*;

/// One claim on one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) id: ClaimId,
    pub(crate) ticket: Ticket,
    pub(crate) mode: Mode,
    pub(crate) deadline: Time,
    pub(crate) is_in: bool,
}

impl Line {
    /// All claims in line order, lapsed or not.
    pub(crate) fn seen(&self) -> impl Iterator<Item = Seen> + '_ {
        self.places.iter().flat_map(|place| {
            place.holds.iter().map(|hold| Seen {
                id: hold.id,
                ticket: place.ticket,
                mode: place.mode,
                deadline: hold.deadline,
                is_in: place.ticket <= self.in_through,
            })
        })
    }

    /// Whether a restart guard holds everybody back at `now`.
    pub(crate) fn is_guarded(&self, now: Time) -> bool {
        self.guarded(now)
    }

    /// Makes lines equal that no verb at `now` or later can tell apart, so that the checker meets each only once.
    /// With `clock_may_step_back` a "later" verb may show an earlier time, and less can be forgotten.
    pub(crate) fn normalise(&mut self, now: Time, clock_may_step_back: bool) {
        for place in &mut self.places {
            place.entered = None;
            place.holds.iter_mut().for_each(|hold| hold.since = Time::ZERO);
        }
        let last_in = self.places.iter().rev().map(|place| place.ticket).find(|t| *t <= self.in_through);
        self.in_through = last_in.unwrap_or(Ticket::ZERO);
        if clock_may_step_back {
            return;
        }
        self.last_seen = Time::ZERO;
        for hold in self.places.iter_mut().flat_map(|place| &mut place.holds) {
            // One that lapsed is gone at the next verb, however long ago that was.
            if hold.deadline <= now {
                hold.deadline = Time::ZERO;
            }
        }
        if self.last_ticket.get() < now.as_micros() && !mutant!(PlainCounter) {
            self.last_ticket = Ticket::ZERO;
        }
    }
}
