//! Tickets that are larger than those of the past: the wall clock, ahead of it where others are.

use crate::line::Ticket;

/// Where one client takes its tickets from.
///
/// A node takes no ticket that is not larger than its last, so a client whose clock is behind would ask twice each time.
/// It learns from the first refusal how far the others are ahead.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    last: u64,
    ahead_us: u64,
}

impl Tickets {
    /// One that this client has not proposed yet, at this time of the wall clock.
    pub(super) fn next(&mut self, wall_us: u64) -> Ticket {
        self.last = (self.last + 1).max(wall_us + self.ahead_us);
        Ticket::new(self.last)
    }

    /// A node named this ticket: the next one is larger.
    pub(super) fn saw(&mut self, ticket: Ticket, wall_us: u64) {
        self.last = self.last.max(ticket.get());
        self.ahead_us = self.ahead_us.max(ticket.get().saturating_sub(wall_us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_rise_and_keep_up_with_others() {
        let mut tickets = Tickets::default();
        assert_eq!(
            [tickets.next(100), tickets.next(100), tickets.next(90)].map(Ticket::get),
            [100, 101, 102]
        );
        tickets.saw(Ticket::new(500), 110);
        assert_eq!(tickets.next(111).get(), 501);
        assert_eq!(tickets.next(200).get(), 590, "as far ahead as the other one was");
    }
}
