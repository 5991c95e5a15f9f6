//! A client: the protocol above [`Belief`]. What it believes is the library's own code.

use std::time::Duration;

use super::network::{Body, Message, Says};
use super::scenarios::Wants;
use crate::error::LossReason;
use crate::hold::validity::{Belief, Phase, valid_until};
use crate::line::{ClaimId, News, Ticket};
use crate::mutant::{self, Mutant};
use crate::time::Time;

/// One attempt to hold the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) id: ClaimId,
    pub(super) belief: Belief,
    /// The final renewal of a fixed lease has been sent at least once: its end is settled.
    end_settled: bool,
    /// It asked the engine something in this tick.
    pub(super) just_asked: bool,
}

impl Attempt {
    /// Where the claim stands, looked at now, as a guard's holder would look.
    pub(super) fn phase(&self, now: Time) -> Phase {
        self.belief.clone().look(now)
    }

    /// The token of a guard that is valid now.
    pub(super) fn guard(&self, now: Time) -> Option<Ticket> {
        (self.phase(now) == Phase::In).then(|| self.belief.ticket().expect("in without a ticket"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Client {
    pub(super) attempt: Option<Attempt>,
    /// How many attempts it made: the next one has a new id.
    pub(super) started: u8,
    /// How far its slow clock has fallen behind.
    pub(super) behind: Duration,
}

/// Ids are as good as random: a client never uses one twice, and no two clients use the same.
fn id_of(client: usize, attempt: u8) -> ClaimId {
    ClaimId::from_u128(((client as u128 + 1) << 104) | (u128::from(attempt) << 96))
}

/// The client that made an id.
pub(super) fn client_of(id: ClaimId) -> usize {
    (id.as_u128() >> 104) as usize - 1
}

impl Client {
    /// Registers a new claim, then joins with it.
    pub(super) fn start(&mut self, me: usize, now: Time) -> Message {
        self.started += 1;
        let id = id_of(me, self.started);
        self.attempt = Some(Attempt { id, belief: Belief::new(), end_settled: false, just_asked: true });
        Message::new(id, Body::Join { sent: now })
    }

    /// Asks an unanswered join again, with the same id.
    pub(super) fn retry(&mut self, now: Time) -> Option<Message> {
        let attempt = self.attempt.as_mut().filter(|attempt| attempt.phase(now) == Phase::Joining)?;
        attempt.just_asked = true;
        Some(Message::new(attempt.id, Body::Join { sent: now }))
    }

    /// Looks again, which extends the place; for the holder of a fixed lease this is the final renewal.
    pub(super) fn look(&mut self, wants: &Wants, now: Time) -> Option<Message> {
        let attempt = self.attempt.as_mut()?;
        let phase = attempt.belief.look(now);
        if !matches!(phase, Phase::Waiting | Phase::In) {
            return None;
        }
        attempt.just_asked = true;
        let last = phase == Phase::In && wants.fixed.is_some();
        if last && !attempt.end_settled {
            attempt.end_settled = true;
            attempt.belief.ends_at(valid_until(now, wants.asks(last)), LossReason::Expired);
        }
        let ticket = attempt.belief.ticket().expect("standing without a ticket");
        Some(Message::new(attempt.id, Body::Renew { ticket, sent: now, last }))
    }

    /// Releases, gives up, cancels, or clears up after a loss: forgets the claim and leaves in the background.
    pub(super) fn leave(&mut self, wants: &Wants, now: Time) -> Option<Message> {
        let attempt = self.attempt.take()?;
        let refused = !wants.wait
            && attempt.belief.ticket().is_none()
            && matches!(attempt.phase(now), Phase::Lost(LossReason::Evicted));
        // A `try` that was told *out* has left nothing behind to leave.
        (!refused).then(|| Message::new(attempt.id, Body::Leave))
    }

    /// Hears an answer or a bell. What it says about a claim this client no longer knows is answered with `leave`.
    pub(super) fn hear(&mut self, wants: &Wants, now: Time, message: Message) -> Option<Message> {
        let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.id == message.id) else {
            return (!message.is_silence_for_strangers()).then(|| Message::new(message.id, Body::Leave));
        };
        match message.body {
            Body::Answer { sent, last, says } => {
                let waits = attempt.belief.look(now) == Phase::Waiting;
                let says = match says {
                    // Renewals that only extend, and a waiter that only listens to its bell.
                    Says::In(ticket) if waits && mutant::is(Mutant::NeverLooksAgain) => Says::Waiting(ticket),
                    says => says,
                };
                attempt.belief.answer(sent, now, wants.asks(last), says.into());
            }
            Body::Bell { ticket, evicted } => {
                let news = if evicted { News::Out } else { News::In };
                attempt.belief.bell(ticket, news, now, wants.asks(false));
            }
            Body::Join { .. } | Body::Renew { .. } | Body::Leave => {
                unreachable!("a request came to a client")
            }
        }
        None
    }
}
