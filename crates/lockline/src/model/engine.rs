//! The engine: the library's own [`Line`], with a clock that may step back and a memory that may fail.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::client::client_of;
use super::network::{Body, Message};
use super::properties::Broken;
use super::scenarios::{Scenario, TICK};
use crate::line::{
    Bell, Claim, ClaimId, Line, Mode, News, Now, Place, Primitive, Seen, Standing, Ticket, Who,
};
use crate::mutant::{self, Mutant};
use crate::name::Name;
use crate::time::Time;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Engine {
    pub(super) line: Line,
    pub(super) stepped_back: Duration,
    /// The places it forgot by restarting: their holders may believe in them until their leases end.
    pub(super) forgotten: Vec<(ClaimId, Ticket)>,
    /// The newest token an exclusive holder ever got in with: a fenced resource's mark, kept over restarts.
    newest_exclusive: Ticket,
}

/// What a verb gave back, and which rules of a line it broke in doing so.
pub(super) struct Served {
    pub(super) sends: Vec<Message>,
    pub(super) broken: Broken,
}

fn name() -> Name {
    static NAME: OnceLock<Name> = OnceLock::new();
    NAME.get_or_init(|| Name::new("line").expect("a name")).clone()
}

fn who() -> Arc<Who> {
    static WHO: OnceLock<Arc<Who>> = OnceLock::new();
    WHO.get_or_init(|| Arc::new(Who { owner: String::new(), host: String::new(), pid: 0 })).clone()
}

impl Engine {
    pub(super) fn now(&self, tick: u16) -> Now {
        let at = Time::from_micros(super::EPOCH_US).minus(self.stepped_back) + TICK * u32::from(tick);
        Now { at, ticket_us: at.as_micros() }
    }

    /// Does what a request asks.
    pub(super) fn serve(&mut self, scenario: &Scenario, tick: u16, request: Message) -> Served {
        let now = self.now(tick);
        let before: Vec<Seen> = self.line.seen().filter(|seen| seen.deadline > now.at).collect();
        let wants = &scenario.clients[client_of(request.id)];
        let mut sends = Vec::new();
        let bells = match request.body {
            Body::Join { sent } => {
                let claim = Claim {
                    name: name(),
                    id: request.id,
                    mode: wants.mode,
                    lease: wants.asks(false),
                    who: who(),
                    identity: None,
                    primitive: Primitive::Mutex,
                };
                let step = self.line.join(now, &claim, wants.wait);
                let standing = step.answer.expect("nobody here has an identity to wait for");
                sends.push(answer(request.id, sent, false, standing));
                step.bells
            }
            Body::Renew { ticket, sent, last } => {
                let lease = wants.asks(last);
                let place = Place { name: name(), id: request.id, ticket: Some(ticket), lease, last };
                let step = self.line.renew(now, &place);
                sends.push(answer(request.id, sent, last, step.answer));
                step.bells
            }
            Body::Leave => self.line.leave(now, request.id).bells,
            Body::Answer { .. } | Body::Bell { .. } => unreachable!("an answer came to the engine"),
        };
        sends.extend(bells.iter().map(ring));
        let mut broken = self.audit(now.at, &before);
        let asked_again = before.iter().find(|seen| seen.id == request.id);
        if let (Body::Join { .. }, Some(had)) = (request.body, asked_again) {
            broken.doubled |= !self.line.seen().any(|seen| seen.id == had.id && seen.ticket == had.ticket);
        }
        let stays = self.line.seen().any(|seen| seen.id == request.id && !seen.is_in);
        broken.try_left_something |= matches!(request.body, Body::Join { .. }) && !wants.wait && stays;
        Served { sends, broken }
    }

    /// Shows a place out, as an operator would.
    pub(super) fn evict(&mut self, tick: u16, ticket: Ticket) -> Served {
        let now = self.now(tick);
        let before: Vec<Seen> = self.line.seen().filter(|seen| seen.deadline > now.at).collect();
        let sends = self.line.evict(now, ticket, false).bells.iter().map(ring).collect();
        Served { sends, broken: self.audit(now.at, &before) }
    }

    /// The verb of a stranger: whatever lapsed goes, and who gets in by that is rung.
    pub(super) fn sweep(&mut self, tick: u16) -> Served {
        let now = self.now(tick);
        let before: Vec<Seen> = self.line.seen().filter(|seen| seen.deadline > now.at).collect();
        let sends = self.line.tick(now).bells.iter().map(ring).collect();
        Served { sends, broken: self.audit(now.at, &before) }
    }

    /// Forgets everything. Nobody becomes in until the longest lease it may have granted must have run out.
    pub(super) fn restart(&mut self, scenario: &Scenario, tick: u16) {
        let now = self.now(tick).at;
        self.forgotten.extend(self.line.seen().map(|seen| (seen.id, seen.ticket)));
        self.line = if mutant::is(Mutant::NoRestartGuard) {
            Line::default()
        } else if mutant::is(Mutant::ShortRestartGuard) {
            Line::restarted(now, TICK)
        } else {
            Line::restarted(now, scenario.longest_lease())
        };
    }

    /// Compares the line after a verb with what the table of `design.md` §2 says, and the new grants with the old.
    fn audit(&mut self, now: Time, before: &[Seen]) -> Broken {
        let after: Vec<Seen> = self.line.seen().collect();
        let mut broken = Broken::default();
        for (i, place) in after.iter().enumerate() {
            broken.doubled |= after[..i].iter().any(|other| other.id == place.id);
            broken.order |= after[..i].iter().any(|other| other.ticket >= place.ticket);
            let was_in =
                before.iter().any(|old| old.is_in && (old.id, old.ticket) == (place.id, place.ticket));
            broken.order |= was_in && !place.is_in;
            broken.order |= place.is_in && !was_in && after[..i].iter().any(|other| !other.is_in);
            if place.is_in && !was_in {
                broken.tokens |= place.ticket <= self.newest_exclusive;
                if place.mode == Mode::Exclusive {
                    self.newest_exclusive = place.ticket;
                }
            }
            if !self.line.is_guarded(now) {
                let modes: Vec<Mode> = after[..=i].iter().map(|seen| seen.mode).collect();
                broken.order |= place.is_in != fit_together(&modes);
            }
        }
        broken
    }
}

/// The table of `design.md` §2, read literally: whether the last of these claims is in when the others, all of them
/// in or waiting, stand before it. It is also the rule for guards that are valid at the same time.
pub(super) fn fit_together(modes: &[Mode]) -> bool {
    let (counts, limits): (Vec<u32>, Vec<u32>) = modes
        .iter()
        .filter_map(
            |mode| if let Mode::Permits { count, limit } = mode { Some((*count, *limit)) } else { None },
        )
        .unzip();
    if modes.len() == 1 && counts.is_empty() || modes.iter().all(|mode| *mode == Mode::Shared) {
        return true;
    }
    counts.len() == modes.len()
        && limits.iter().min().is_some_and(|least| counts.iter().sum::<u32>() <= *least)
}

fn answer(id: ClaimId, sent: Time, last: bool, standing: Standing) -> Message {
    Message::new(id, Body::Answer { sent, last, says: standing.into() })
}

fn ring(bell: &Bell) -> Message {
    Message::new(bell.id, Body::Bell { ticket: bell.ticket, evicted: bell.news == News::Out })
}
