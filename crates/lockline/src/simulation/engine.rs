//! The engine: the pure machine, with a clock that drifts and may step back and a memory that may fail, as the contract of a
//! driver allows; and an auditor beside it, who forgets nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::arena::Arena;
use super::host::Host;
use super::network::FarBells;
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Bell, Claim, ClaimId, Line, LineView, News, Now, Place, Refusal, Standing, Step, Ticket};
use crate::mutant::{Mutant, is};
use crate::name::Name;
use crate::sync::locked;
use crate::time::Time;

/// An engine, and what is known about it by somebody who sees everything.
#[derive(Debug)]
pub(super) struct Engine {
    host: Host,
    /// The longest lease anybody asks for: after it has forgotten everything it lets nobody in for so long.
    longest: Duration,
    arena: Arc<Arena>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<Kept>,
    /// By how much its clock was set back, in all.
    behind: Duration,
    /// Since when nothing goes wrong any more, on its clock.
    settled: Option<Time>,
}

#[derive(Debug)]
struct Kept {
    name: Name,
    line: Line,
    bells: HashMap<ClaimId, Arc<FarBells>>,
    grants: HashMap<Ticket, Grant>,
}

/// What its clock shows when the world begins: it can be set back by far.
const EPOCH: Duration = Duration::from_secs(1_000 * 86_400);

/// A place that got in, in true time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) at: Time,
    /// Until then nobody else gets in.
    pub(super) stands_until: Time,
}

impl Engine {
    pub(super) fn new(host: Host, longest: Duration, locks: &[&'static str], arena: Arc<Arena>) -> Engine {
        let kept = |name: &&str| Kept {
            name: Name::new(name).expect("a name"),
            line: Line::default(),
            bells: HashMap::new(),
            grants: HashMap::new(),
        };
        let state = State { lines: locks.iter().map(kept).collect(), behind: Duration::ZERO, settled: None };
        Engine { host, longest, arena, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    fn now(&self, state: &State) -> Now {
        let at = (self.host.now() + EPOCH).minus(state.behind);
        Now { at, ticket_us: at.as_micros() }
    }

    /// Does something to a line and writes down what came of it; then rings.
    fn on_line<T>(&self, name: &Name, act: impl FnOnce(&mut Kept, Now) -> Step<T>) -> T {
        let mut state = self.state();
        let (now, settled) = (self.now(&state), state.settled);
        let kept = state.lines.iter_mut().find(|kept| kept.name == *name).expect("a lock of this world");
        self.audit_before(kept, now.at, settled);
        let Step { answer, bells } = act(kept, now);
        self.audit_after(kept, now.at);
        let ring: Vec<_> =
            bells.into_iter().filter_map(|bell| Some((kept.bells.get(&bell.id)?.clone(), bell))).collect();
        if kept.bells.len() > 2 * kept.line.len() + 16 {
            kept.bells.retain(|id, _| kept.line.contains(*id));
        }
        drop(state);
        for (bells, bell) in ring {
            bells.ring(name, &bell);
        }
        answer
    }

    /// From now on everything must go smoothly.
    pub(super) fn settle(&self) {
        let mut state = self.state();
        state.settled = Some(self.now(&state).at);
    }

    /// Once the weather is fair nobody who lives lets its place lapse while it waits. A place that lapsed before stands in
    /// its line until somebody comes there.
    fn audit_before(&self, kept: &Kept, now: Time, settled: Option<Time>) {
        let lapsed =
            |since| kept.line.seen().any(|seen| !seen.is_in && since < seen.deadline && seen.deadline <= now);
        if settled.is_some_and(lapsed) {
            self.arena.finds("a waiting place lapsed in fair weather");
        }
    }

    /// Nobody is in behind somebody who waits; and when each got in, and until when it may stay.
    fn audit_after(&self, kept: &mut Kept, now: Time) {
        let true_now = self.host.true_time();
        let mut waiting = false;
        for seen in kept.line.seen() {
            if seen.is_in && waiting {
                self.arena.finds("somebody is in behind one who waits");
            }
            waiting |= !seen.is_in;
            if seen.is_in {
                // In its own time; it may be a little faster than true time.
                let stands_until = true_now + seen.deadline.since(now).mul_f64(0.996);
                let grant = kept.grants.entry(seen.ticket).or_insert(Grant { at: true_now, stands_until });
                grant.stands_until = grant.stands_until.max(stands_until);
            }
        }
        if kept.grants.len() > 64 {
            let old = true_now.minus(self.longest * 4);
            kept.grants.retain(|_, grant| grant.stands_until > old);
        }
    }

    /// What is known of a grant.
    pub(super) fn grant(&self, lock: &str, ticket: Ticket) -> Option<Grant> {
        let state = self.state();
        let kept = state.lines.iter().find(|kept| kept.name.as_str() == lock)?;
        kept.grants.get(&ticket).copied()
    }

    /// It starts again, without its data: nobody gets in until the leases that it granted must have run out.
    pub(super) fn forget(&self) {
        let mut state = self.state();
        let now = self.now(&state).at;
        let guard = if is(Mutant::ShortRestartGuard) { self.longest / 4 } else { self.longest };
        for kept in &mut state.lines {
            kept.line =
                if is(Mutant::NoRestartGuard) { Line::default() } else { Line::restarted(now, guard) };
            kept.bells.clear();
        }
    }

    /// Somebody sets its clock back.
    pub(super) fn step_back(&self, by: Duration) {
        self.state().behind += by;
    }

    pub(super) fn join(&self, claim: &Claim, wait: bool, bells: &Arc<FarBells>) -> Result<Standing> {
        let answer = self.on_line(&claim.name, |kept, now| {
            let step = kept.line.join(now, claim, wait);
            if let Ok(Standing::In { .. } | Standing::Waiting { .. }) = step.answer {
                kept.bells.insert(claim.id, bells.clone());
            }
            step
        });
        answer.map_err(|Refusal::WouldWaitForItself| {
            Error::new(ErrorKind::Deadlock, "join", "it would wait for itself")
        })
    }

    pub(super) fn renew(&self, place: &Place) -> Standing {
        self.on_line(&place.name, |kept, now| kept.line.renew(now, place))
    }

    pub(super) fn leave(&self, place: &Place) {
        self.on_line(&place.name, |kept, now| {
            kept.bells.remove(&place.id);
            kept.line.leave(now, place.id)
        });
    }

    pub(super) fn evict(&self, name: &Name, ticket: Ticket, at_once: bool) -> bool {
        self.on_line(name, |kept, now| kept.line.evict(now, ticket, at_once))
    }

    /// Every line that somebody stands in.
    pub(super) fn view(&self) -> Vec<LineView> {
        let names: Vec<Name> = self.state().lines.iter().map(|kept| kept.name.clone()).collect();
        let view = |name: Name| {
            self.on_line(&name, |kept, now| {
                let Step { bells, .. } = kept.line.tick(now);
                Step { answer: kept.line.view(now.at, &name), bells }
            })
        };
        names
            .into_iter()
            .map(view)
            .filter(|line| !line.holders.is_empty() || !line.waiters.is_empty())
            .collect()
    }

    /// Whether anybody stands anywhere whose lease has not run out, looked at without doing anything: what lapsed goes when
    /// the next verb comes, and here none may come.
    pub(super) fn is_deserted(&self) -> bool {
        let state = self.state();
        let now = self.now(&state).at;
        !state.lines.iter().any(|kept| kept.line.seen().any(|seen| seen.deadline > now))
    }
}

/// Whether this bell lets somebody in.
pub(super) fn lets_in(bell: &Bell) -> bool {
    bell.news == News::In
}
