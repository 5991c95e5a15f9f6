//! What is under way between clients and engine.
//!
//! Nothing is ever delivered *because* it was sent: every message under way may be the next one delivered, now, later
//! or never. So delay and reordering need no faults of their own, and a lost message is one that is never delivered.
//! Only a message that arrives twice costs a budget.

use crate::line::{ClaimId, Standing, Ticket};
use crate::time::Time;

/// One message. Requests carry the time of their sending, and so do their answers: the client's call knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Message {
    pub(super) id: ClaimId,
    pub(super) body: Body,
    /// It was delivered before: a second copy, which keeps no order with anything.
    pub(super) copy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Body {
    /// To the engine.
    Join { sent: Time },
    /// To the engine.
    Renew { ticket: Ticket, sent: Time, last: bool },
    /// To the engine. Its answer says nothing and is not modelled.
    Leave,
    /// To the client: the answer to a join or a renewal.
    Answer { sent: Time, last: bool, says: Says },
    /// To the client, unasked.
    Bell { ticket: Ticket, evicted: bool },
}

/// A [`Standing`] without the numbers for people and timers, which would only multiply states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Says {
    In(Ticket),
    Waiting(Ticket),
    Out,
    Lapsed,
}

impl From<Standing> for Says {
    fn from(standing: Standing) -> Says {
        match standing {
            Standing::In { ticket } => Says::In(ticket),
            Standing::Waiting { ticket, .. } => Says::Waiting(ticket),
            Standing::Out => Says::Out,
            Standing::Lapsed => Says::Lapsed,
            Standing::Unsure => unreachable!("the line always knows"),
        }
    }
}

impl From<Says> for Standing {
    fn from(says: Says) -> Standing {
        match says {
            Says::In(ticket) => Standing::In { ticket },
            Says::Waiting(ticket) => Standing::Waiting { ticket, ahead: 1, look_again: Default::default() },
            Says::Out => Standing::Out,
            Says::Lapsed => Standing::Lapsed,
        }
    }
}

impl Message {
    pub(super) fn new(id: ClaimId, body: Body) -> Message {
        Message { id, body, copy: false }
    }

    /// An answer that names no ticket says nothing to a client that forgot the claim: nobody need carry it.
    pub(super) fn is_silence_for_strangers(&self) -> bool {
        matches!(self.body, Body::Answer { says: Says::Out | Says::Lapsed, .. })
    }
}

/// All messages under way, sorted so that equal networks are equal states.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Network(Vec<Message>);

impl Network {
    pub(super) fn send(&mut self, message: Message) {
        let place = self.0.partition_point(|other| *other <= message);
        self.0.insert(place, message);
    }

    /// The positions of the messages that may be delivered next, equal ones once.
    pub(super) fn deliverable(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len())
            .filter(|&i| i == 0 || self.0[i] != self.0[i - 1])
            .filter(|&i| !self.must_wait(&self.0[i]))
    }

    /// A driver promises that a `leave` called after a `join` of the same claim takes effect after it. Copies keep no
    /// order.
    fn must_wait(&self, message: &Message) -> bool {
        let overtaken = |other: &Message| {
            other.id == message.id && !other.copy && matches!(other.body, Body::Join { .. })
        };
        message.body == Body::Leave && !message.copy && self.0.iter().any(overtaken)
    }

    pub(super) fn take(&mut self, index: usize) -> Message {
        self.0.remove(index)
    }

    /// Drops what a client that forgot this claim would not answer.
    pub(super) fn forget(&mut self, id: ClaimId) {
        self.0.retain(|message| message.id != id || !message.is_silence_for_strangers());
    }

    /// Keeps the messages that `matters` says so of, given the message and whether a join of its claim is under way.
    pub(super) fn retain(&mut self, mut matters: impl FnMut(&Message, bool) -> bool) {
        let joining: Vec<ClaimId> =
            self.0.iter().filter(|m| matches!(m.body, Body::Join { .. })).map(|m| m.id).collect();
        self.0.retain(|message| matters(message, joining.contains(&message.id)));
    }

    pub(super) fn drain(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.0)
    }
}
