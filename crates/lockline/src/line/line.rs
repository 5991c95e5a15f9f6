//! The line itself: six verbs on a list of places.

use std::sync::Arc;
use std::time::Duration;

use super::claim::{Bell, Claim, ClaimId, News, Place, Refusal, Standing, Step, Ticket, Who};
use super::mode::{Front, Mode};
use super::view::{ClaimView, LineView};
use crate::name::Name;
use crate::time::Time;

#[cfg(test)]
#[path = "inspect.rs"]
pub(crate) mod inspect;
#[path = "proposal.rs"]
mod proposal;

pub use proposal::Proposed;

/// The moment at which a verb happens, read once by the engine.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// On the clock that leases are counted on.
    pub at: Time,
    /// Microseconds on the clock that is the floor for tickets.
    pub ticket_us: u64,
}

/// How soon a waiting claim looks again if no bell rings: the smallest of a second, a third of its lease, the time
/// until the next place before it lapses and the rest of a restart guard, but at least 5 ms.
pub fn look_again(lease: Duration, next_lapse: Option<Duration>, guard_rest: Option<Duration>) -> Duration {
    [Some(Duration::from_secs(1)), Some(lease / 3), next_lapse, guard_rest]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or_default()
        .max(Duration::from_millis(5))
}

/// One claim on a place. Only an owner with a shared identity has several on one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Hold {
    id: ClaimId,
    lease: Duration,
    deadline: Time,
    /// The deadline of a fixed lease has been set: nothing moves it.
    fixed: bool,
    since: Time,
    who: Arc<Who>,
}

impl Hold {
    fn extend(&mut self, now: Time, lease: Duration) {
        if !self.fixed {
            self.lease = lease;
            self.deadline = self.deadline.max(now + lease);
        }
    }
}

/// One position in the line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Standpoint {
    ticket: Ticket,
    mode: Mode,
    identity: Option<Arc<str>>,
    /// Evicted while in: it answers *out*, and stands there until its deadline so that nobody overlaps its holder.
    closed: bool,
    /// When it got in. Only people are told.
    entered: Option<Time>,
    holds: Vec<Hold>,
}

impl Standpoint {
    /// When the whole place lapses: with its last hold.
    fn lapse(&self) -> Time {
        self.holds.iter().map(|hold| hold.deadline).max().unwrap_or(Time::ZERO)
    }

    fn bells(&self, news: News) -> impl Iterator<Item = Bell> + '_ {
        self.holds.iter().map(move |hold| Bell { id: hold.id, ticket: self.ticket, news })
    }
}

/// A lock: the places of its claims in ticket order.
///
/// Every verb first drops **all** lapsed claims, wherever they stand, does its work, and rings whoever got in by it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Line {
    places: Vec<Standpoint>,
    last_ticket: Ticket,
    /// Places up to this ticket are in. It only rises: once in, in until gone.
    in_through: Ticket,
    last_seen: Time,
    /// Until then nobody becomes in: the engine may have forgotten holders whose leases still run.
    guard_until: Option<Time>,
    guard_length: Duration,
}

impl Line {
    /// An empty line whose tickets go on after `last`.
    pub fn after(last: Ticket) -> Line {
        Line { last_ticket: last, ..Line::default() }
    }

    /// An empty line of an engine that restarted at `now` and may have forgotten an earlier line: nobody becomes in
    /// for the length of the `guard`, and tickets start at the guard's end.
    pub fn restarted(now: Time, guard: Duration) -> Line {
        let until = now + guard;
        let last = if mutant!(PlainCounter) { 0 } else { until.as_micros().saturating_sub(1) };
        Line {
            // In the counter, not computed from the guard at each join: a clock that steps back shortens the guard,
            // and must not lower the tickets.
            last_ticket: Ticket::new(last),
            last_seen: now,
            guard_until: Some(until),
            guard_length: guard,
            ..Line::default()
        }
    }

    /// Nobody stands in it.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How many places there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether a claim stands in it.
    pub fn contains(&self, id: ClaimId) -> bool {
        self.index_of(id).is_some()
    }

    /// The last ticket it gave.
    pub fn last_ticket(&self) -> Ticket {
        self.last_ticket
    }

    /// Stands a claim in line. The same id again finds its place again, with its lease extended as by a renewal, so a
    /// reply that got lost is closed by asking again. With `wait = false` a claim that would not be in at once leaves
    /// nothing behind and is told [`Standing::Out`].
    pub fn join(&mut self, now: Now, claim: &Claim, wait: bool) -> Step<Result<Standing, Refusal>> {
        let now = self.catch_up(now);
        let answer = self.place_claim(now, claim, wait);
        let bells = self.settle(now.at, Some(claim.id));
        let answer = answer.map(|found| found.unwrap_or_else(|| self.standing_of(now.at, claim.id)));
        Step { answer, bells }
    }

    /// `Ok(None)`: the claim has a place now; `Ok(Some(_))`: it has none, and this is the answer.
    fn place_claim(&mut self, now: Now, claim: &Claim, wait: bool) -> Result<Option<Standing>, Refusal> {
        if let Some(index) = self.index_of(claim.id) {
            let place = &mut self.places[index];
            // The join may be a second try after a lost reply, sent late: its client counts the new lease from that
            // second sending, so the place must live at least as long.
            if !place.closed && !mutant!(RejoinDoesNotExtend) {
                extend(place, claim.id, now.at, claim.lease);
            }
            return Ok(None);
        }
        let hold = Hold {
            id: claim.id,
            lease: claim.lease,
            deadline: now.at + claim.lease,
            fixed: false,
            since: now.at,
            who: claim.who.clone(),
        };
        if let Some(place) = self.place_of_identity(claim) {
            if place.mode != claim.mode {
                return Err(Refusal::WouldWaitForItself);
            }
            let ticket = place.ticket;
            if !wait && !self.will_be_in(now.at, ticket) {
                return Ok(Some(Standing::Out));
            }
            self.place_of_identity(claim).expect("found above").holds.push(hold);
            return Ok(None);
        }
        if !wait && !self.would_be_in(now.at, claim.mode) {
            return Ok(Some(Standing::Out));
        }
        self.last_ticket = self.last_ticket.next(now.ticket_us);
        self.places.push(Standpoint {
            ticket: self.last_ticket,
            mode: claim.mode,
            identity: claim.identity.clone(),
            closed: false,
            entered: None,
            holds: vec![hold],
        });
        Ok(None)
    }

    /// Extends a place, and tells where it stands. Never makes one. A place of the same id with another ticket is not
    /// extended, but named: its client learns from the larger ticket that its own place is gone.
    pub fn renew(&mut self, now: Now, place: &Place) -> Step<Standing> {
        let now = self.catch_up(now);
        let bells = self.settle(now.at, None);
        if let Some(index) = self.index_of(place.id) {
            let stands = &mut self.places[index];
            let is_in = stands.ticket <= self.in_through;
            if place.ticket.is_none_or(|ticket| ticket == stands.ticket) && !stands.closed {
                if place.last && is_in {
                    fix(stands, place.id, now.at, place.lease);
                } else {
                    extend(stands, place.id, now.at, place.lease);
                }
            }
        }
        Step { answer: self.standing_of(now.at, place.id), bells }
    }

    /// Removes a claim, in, waiting or unknown: nothing of it remains.
    pub fn leave(&mut self, now: Now, id: ClaimId) -> Step<()> {
        let now = self.catch_up(now);
        if mutant!(LeaveByName) && !self.places.is_empty() {
            self.places.remove(0);
        }
        for place in &mut self.places {
            place.holds.retain(|hold| hold.id != id);
        }
        self.places.retain(|place| !place.holds.is_empty());
        Step { answer: (), bells: self.settle(now.at, None) }
    }

    /// Shows the place with this ticket out. Answers whether there was one.
    ///
    /// A waiting claim is dropped. A claim that is in is *closed*: it can no longer renew, and its place stands until
    /// its lease ends, because its holder may still be at work. With `at_once` it is dropped now, and only the fencing
    /// token protects what it is working on.
    pub fn evict(&mut self, now: Now, ticket: Ticket, at_once: bool) -> Step<bool> {
        let now = self.catch_up(now);
        let Some(index) = self.places.iter().position(|place| place.ticket == ticket) else {
            return Step { answer: false, bells: self.settle(now.at, None) };
        };
        let place = &mut self.places[index];
        let mut bells: Vec<Bell> = place.bells(News::Out).collect();
        if ticket <= self.in_through && !at_once && !mutant!(EvictDropsHolder) {
            place.closed = true;
        } else {
            self.places.remove(index);
        }
        bells.extend(self.settle(now.at, None));
        Step { answer: true, bells }
    }

    /// Drops what lapsed, without another purpose.
    pub fn tick(&mut self, now: Now) -> Step<()> {
        let now = self.catch_up(now);
        Step { answer: (), bells: self.settle(now.at, None) }
    }

    /// Drops every claim that `gone` says can no longer be alive, for engines that know more than the lease tells.
    pub fn drop_gone(&mut self, now: Now, gone: impl Fn(ClaimId) -> bool) -> Step<()> {
        let now = self.catch_up(now);
        self.places.iter_mut().for_each(|place| place.holds.retain(|hold| !gone(hold.id)));
        self.places.retain(|place| !place.holds.is_empty());
        Step { answer: (), bells: self.settle(now.at, None) }
    }

    /// The line as people see it.
    pub fn view(&self, now: Time, name: &Name) -> LineView {
        let mut view = LineView::free(name.clone());
        for place in &self.places {
            let list = if place.ticket <= self.in_through { &mut view.holders } else { &mut view.waiters };
            list.extend(place.holds.iter().filter(|hold| hold.deadline > now).map(|hold| ClaimView {
                ticket: place.ticket,
                mode: place.mode,
                who: (*hold.who).clone(),
                remaining: hold.deadline.since(now),
                since: now.since(hold.since),
                // Whoever joins others on their place is in no sooner than it came.
                held: place.entered.map(|entered| now.since(entered.max(hold.since))),
                evicted: place.closed,
            }));
        }
        view
    }

    /// Brings the line to the present: a clock that stepped back pulls every deadline with it, and the restart guard,
    /// so that a step costs at most one lease; then all lapsed claims go, from anywhere in the line.
    fn catch_up(&mut self, now: Now) -> Now {
        let now = if mutant!(ClockNeverBack) { Now { at: now.at.max(self.last_seen), ..now } } else { now };
        if now.at < self.last_seen {
            for hold in self.places.iter_mut().flat_map(|place| &mut place.holds) {
                hold.deadline = hold.deadline.min(now.at + hold.lease);
            }
            self.guard_until = self.guard_until.map(|until| until.min(now.at + self.guard_length));
        }
        self.last_seen = now.at;
        // Only the front would do for a mutex; behind a live reader or permit holder a dead one would stay for ever.
        let reach = if mutant!(LapsedOnlyFromFront) { 1.min(self.places.len()) } else { self.places.len() };
        for place in &mut self.places[..reach] {
            place.holds.retain(|hold| hold.deadline > now.at);
        }
        self.places.retain(|place| !place.holds.is_empty());
        now
    }

    /// Lets in whoever the front has room for, and rings them, except the caller, who is told by its answer.
    fn settle(&mut self, now: Time, caller: Option<ClaimId>) -> Vec<Bell> {
        if self.guarded(now) {
            return Vec::new();
        }
        (self.guard_until, self.guard_length) = (None, Duration::ZERO);
        let mut front = Front::default();
        let mut bells = Vec::new();
        for place in &mut self.places {
            if !front.admit(place.mode) {
                break;
            }
            if place.ticket > self.in_through {
                self.in_through = place.ticket;
                place.entered = Some(now);
                if !mutant!(SilentGrant) {
                    bells.extend(place.bells(News::In).filter(|bell| Some(bell.id) != caller));
                }
            }
        }
        bells
    }

    fn guarded(&self, now: Time) -> bool {
        self.guard_until.is_some_and(|until| now < until)
    }

    /// Whether a claim that joined now would be in: nobody barges, so not past anyone who waits.
    fn would_be_in(&self, now: Time, mode: Mode) -> bool {
        let mut front = Front::default();
        let all_in =
            self.places.iter().filter(|place| !mutant!(TryPastWaiting) || place.ticket <= self.in_through);
        let room = all_in.map(|place| place.mode).all(|standing| front.admit(standing));
        !self.guarded(now) && room && front.admit(mode)
    }

    /// Whether the place with this ticket is in once the verb is settled: the holder before it may just have lapsed.
    fn will_be_in(&self, now: Time, ticket: Ticket) -> bool {
        let mut front = Front::default();
        let mut upto = self.places.iter().take_while(|place| place.ticket <= ticket);
        ticket <= self.in_through || (!self.guarded(now) && upto.all(|place| front.admit(place.mode)))
    }

    fn standing_of(&self, now: Time, id: ClaimId) -> Standing {
        let Some(index) = self.index_of(id) else { return Standing::Lapsed };
        let place = &self.places[index];
        if place.closed {
            return Standing::Out;
        }
        if place.ticket <= self.in_through {
            return Standing::In { ticket: place.ticket };
        }
        let lease = place.holds.iter().find(|hold| hold.id == id).map_or(Duration::ZERO, |hold| hold.lease);
        let next_lapse = self.places[..index].iter().map(|before| before.lapse().since(now)).min();
        let guard_rest = self.guard_until.map(|until| until.since(now));
        Standing::Waiting {
            ticket: place.ticket,
            ahead: u32::try_from(index).unwrap_or(u32::MAX),
            look_again: look_again(lease, next_lapse, guard_rest),
        }
    }

    fn index_of(&self, id: ClaimId) -> Option<usize> {
        self.places.iter().position(|place| place.holds.iter().any(|hold| hold.id == id))
    }

    fn place_of_identity(&mut self, claim: &Claim) -> Option<&mut Standpoint> {
        let identity = claim.identity.as_ref()?;
        self.places.iter_mut().find(|place| !place.closed && place.identity.as_ref() == Some(identity))
    }
}

fn extend(place: &mut Standpoint, id: ClaimId, now: Time, lease: Duration) {
    place.holds.iter_mut().filter(|hold| hold.id == id).for_each(|hold| hold.extend(now, lease));
}

/// The final renewal of a fixed lease: sets the deadline, once. A copy that comes later does not move it.
fn fix(place: &mut Standpoint, id: ClaimId, now: Time, lease: Duration) {
    for hold in place.holds.iter_mut().filter(|hold| hold.id == id && !hold.fixed) {
        hold.lease = lease;
        hold.deadline = now + lease;
        hold.fixed = true;
    }
}
