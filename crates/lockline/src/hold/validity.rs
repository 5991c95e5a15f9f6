//! What a client may believe about its place: pure, like the line, and checked by the same model.
//!
//! The rules look odd one by one; each closes a hole that a model checker found. The most important: a place is a
//! claim id *and its ticket*. The engine forgets places that lapsed or left, so a late copy of a `join` can make a
//! second place for the same id. Whoever believes by id alone gets two holders.

use std::time::Duration;

use crate::error::LossReason;
use crate::line::{News, Standing, Ticket};
use crate::time::Time;

/// What a client subtracts from a lease: clocks may run at slightly different rates.
pub(crate) fn margin(lease: Duration) -> Duration {
    if mutant!(NoMargin) { Duration::ZERO } else { lease / 100 + Duration::from_millis(2) }
}

/// Until when a client may believe in a place whose lease was extended by a request sent at `sent`.
pub(crate) fn valid_until(sent: Time, lease: Duration) -> Time {
    (sent + lease).minus(margin(lease))
}

/// Where a client believes its claim to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// No answer has named a ticket yet.
    Joining,
    /// In line.
    Waiting,
    /// Holding the lock.
    In,
    /// Gone, for good.
    Lost(LossReason),
}

/// Everything a client believes about one claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Belief {
    phase: Phase,
    ticket: Option<Ticket>,
    valid_until: Time,
    /// Bells that rang before the first answer: they count once an answer names their ticket.
    early: Vec<(Ticket, News)>,
    /// Whether the last attempts to renew failed: tells *unreachable* from *expired*.
    pub(crate) unreachable: bool,
    /// The end of a hold with a fixed lease or a cap, which no renewal may move.
    ends: Option<(Time, LossReason)>,
}

/// How many bells are kept for a claim whose join was not answered yet. A second one means a copy of the join.
const EARLY_BELLS: usize = 8;

impl Belief {
    pub(crate) fn new() -> Belief {
        Belief {
            phase: Phase::Joining,
            ticket: None,
            valid_until: Time::ZERO,
            early: Vec::new(),
            unreachable: false,
            ends: None,
        }
    }

    /// Where the claim stood at the last look.
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }

    /// Until when the place may be believed in.
    pub(crate) fn valid_until(&self) -> Time {
        self.ends.map_or(self.valid_until, |(end, _)| end.min(self.valid_until))
    }

    /// Where the claim stands, looked at now. This is the only way to look: a lease that ran out is noticed here,
    /// with no network at all, also on the first look after a pause.
    pub(crate) fn look(&mut self, now: Time) -> Phase {
        if matches!(self.phase, Phase::Waiting | Phase::In) && now >= self.valid_until() {
            self.lose(self.reason_for_running_out(now));
        }
        self.phase
    }

    fn reason_for_running_out(&self, now: Time) -> LossReason {
        match self.ends {
            Some((end, reason)) if now >= end => reason,
            _ if self.unreachable => LossReason::Unreachable,
            _ => LossReason::Expired,
        }
    }

    /// Gives the claim up.
    pub(crate) fn lose(&mut self, reason: LossReason) {
        if !matches!(self.phase, Phase::Lost(_)) {
            self.phase = Phase::Lost(reason);
        }
    }

    /// Applies an answer to a request that was sent at `sent` and asked for `lease`. `received` is now.
    pub(crate) fn answer(&mut self, sent: Time, received: Time, lease: Duration, standing: Standing) {
        // An answer is applied only if the claim is still valid when the answer is looked at: a lost guard never
        // comes back.
        if matches!(self.look(received), Phase::Lost(_)) && !mutant!(LostComesBack) {
            return;
        }
        let ticket = match standing {
            Standing::In { ticket } | Standing::Waiting { ticket, .. } => ticket,
            Standing::Out => return self.lose(LossReason::Evicted),
            Standing::Lapsed => return self.lose(LossReason::Forgotten),
            Standing::Unsure if mutant!(UnsureIsLost) => return self.lose(LossReason::Unreachable),
            Standing::Unsure => {
                self.unreachable = true;
                return;
            }
        };
        if !self.is_mine(ticket) {
            return;
        }
        let counted_from = if mutant!(ValidFromReceipt) { received } else { sent };
        self.valid_until = self.valid_until.max(valid_until(counted_from, lease));
        self.unreachable = false;
        // *Waiting* with one's own ticket is an old answer for a holder: once in, in until gone.
        match standing {
            Standing::In { .. } => self.phase = Phase::In,
            _ if self.phase == Phase::Joining || mutant!(WaitingDemotes) => self.phase = Phase::Waiting,
            _ => {}
        }
        self.hear_early_bells();
        self.look(received);
    }

    /// Compares a ticket that an answer names with the one known. A smaller one is an old story; a larger one means
    /// that a late copy of the join made a second place, and that the first is gone.
    fn is_mine(&mut self, ticket: Ticket) -> bool {
        // Where others' formats have no line, a claim that waits has no ticket yet: it learns one when it gets in.
        if ticket == Ticket::ZERO {
            return self.ticket.is_none();
        }
        let Some(known) = self.ticket else {
            self.ticket = Some(ticket);
            return true;
        };
        if mutant!(BelieveById) {
            self.ticket = Some(ticket);
            return true;
        }
        if ticket > known {
            self.lose(LossReason::Forgotten);
        }
        ticket == known
    }

    /// Applies a bell. It lengthens nothing: getting in changes no deadline.
    pub(crate) fn bell(&mut self, ticket: Ticket, news: News, now: Time, lease: Duration) {
        match self.look(now) {
            // It was evicted, and looked again between the eviction and its bell: the reason is known only now.
            Phase::Lost(LossReason::Forgotten) if self.ticket == Some(ticket) && news == News::Out => {
                self.phase = Phase::Lost(LossReason::Evicted);
                return;
            }
            Phase::Lost(_) => return,
            _ => {}
        }
        let Some(known) = self.ticket else {
            let is_new = !self.early.contains(&(ticket, news)) && !mutant!(EarlyBellDropped);
            if self.early.len() < EARLY_BELLS && is_new {
                self.early.push((ticket, news));
            }
            return;
        };
        if ticket > known && !mutant!(StaleBellById) {
            self.lose(LossReason::Forgotten);
        } else if ticket == known || mutant!(StaleBellById) {
            self.hear(news);
            if mutant!(BellCountsFromReceipt) {
                self.valid_until = valid_until(now, lease);
            }
        }
    }

    fn hear_early_bells(&mut self) {
        if self.ticket.is_none() {
            return;
        }
        for (ticket, news) in std::mem::take(&mut self.early) {
            if self.ticket == Some(ticket) {
                self.hear(news);
            } else if self.ticket < Some(ticket) {
                self.lose(LossReason::Forgotten);
            }
        }
    }

    fn hear(&mut self, news: News) {
        match news {
            News::In if matches!(self.phase, Phase::Waiting | Phase::Joining) => self.phase = Phase::In,
            News::In => {}
            News::Out => self.lose(LossReason::Evicted),
        }
    }

    /// The hold ends at `end` for `reason`, whatever is renewed: the cap of `max_hold`, or a fixed lease counted from
    /// the *first sending* of its final renewal, from which moment on the engine may have set that deadline.
    pub(crate) fn ends_at(&mut self, end: Time, reason: LossReason) {
        if self.ends.is_none_or(|(known, _)| end < known) {
            self.ends = Some((end, reason));
        }
    }
}
