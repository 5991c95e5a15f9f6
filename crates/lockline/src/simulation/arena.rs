//! Who holds what, as the guards themselves say at one and the same simulated moment, and what must never be seen.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use super::host::Host;
use crate::Guard;
use crate::sync::locked;
use crate::time::Time;

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Hold {
    Alone,
    Shared,
    /// One of [`PERMITS`].
    Permit,
}

pub(super) const PERMITS: usize = 2;

#[derive(Debug)]
struct Held {
    hold: Hold,
    host: usize,
    /// Taken by the owner that everybody on a host shares: it may enter again.
    by_owner: bool,
    token: u64,
    guard: Arc<Guard>,
    was_lost: bool,
}

/// One lock of the world.
#[derive(Debug, Default)]
struct Room {
    held: Vec<Held>,
    /// The largest token that was ever seen with somebody alone inside.
    newest: u64,
}

#[derive(Debug)]
struct State {
    rooms: Vec<(&'static str, Room)>,
    found: BTreeSet<String>,
    acquisitions: u64,
    history: u64,
    settled: bool,
}

/// Everything that a run sees.
#[derive(Debug)]
pub(super) struct Arena(Mutex<State>);

/// Who comes in, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    pub(super) hold: Hold,
    pub(super) host: Host,
    pub(super) by_owner: bool,
}

impl Arena {
    pub(super) fn new(locks: &[&'static str]) -> Arena {
        let rooms = locks.iter().map(|lock| (*lock, Room::default())).collect();
        Arena(Mutex::new(State {
            rooms,
            found: BTreeSet::new(),
            acquisitions: 0,
            history: 0,
            settled: false,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }

    /// Somebody got one lock, or several.
    pub(super) fn enters(&self, visit: Visit, guard: Guard) -> Arc<Guard> {
        let guard = Arc::new(guard);
        let mut state = self.state();
        state.acquisitions += 1;
        for (lock, fence) in guard.fences() {
            let token = fence.token();
            let room = state.room(lock);
            let again = room.held.iter().any(|held| held.is_the_same(visit, token));
            let newest = room.newest;
            if visit.hold == Hold::Alone && guard.is_valid() && !again {
                room.newest = newest.max(token);
                if token <= newest {
                    state.finds(lock, "a later holder has no larger token");
                }
            }
            state.room(lock).held.push(Held {
                hold: visit.hold,
                host: visit.host.number(),
                by_owner: visit.by_owner,
                token,
                guard: guard.clone(),
                was_lost: false,
            });
            state.look(lock);
        }
        drop(state);
        guard
    }

    /// Looks whether guards that do not fit together are valid now.
    pub(super) fn look(&self, guard: &Guard) {
        let mut state = self.state();
        guard.fences().for_each(|(lock, _)| state.look(lock));
    }

    /// Somebody lets go.
    pub(super) fn leaves(&self, guard: &Arc<Guard>) {
        let mut state = self.state();
        for (lock, _) in guard.fences() {
            state.room(lock).held.retain(|held| !Arc::ptr_eq(&held.guard, guard));
        }
    }

    /// Nothing of a client that was shut down is valid any more.
    pub(super) fn was_shut_down(&self, host: Host) {
        let mut state = self.state();
        let of_host = |held: &Held| held.host == host.number() && held.guard.is_valid();
        if state.rooms.iter().any(|(_, room)| room.held.iter().any(of_host)) {
            state.found.insert("a guard is valid after the shutdown".to_owned());
        }
    }

    /// A process is gone: what it held nobody holds any more who could do anything with it.
    pub(super) fn died(&self, host: Host) {
        let mut gone = Vec::new();
        for (_, room) in &mut self.state().rooms {
            gone.extend(room.held.extract_if(.., |held| held.host == host.number()));
        }
        drop(gone);
    }

    pub(super) fn finds(&self, what: impl Into<String>) {
        self.state().found.insert(what.into());
    }

    /// From now on nothing that went wrong can have any effect any more.
    pub(super) fn settle(&self) {
        self.state().settled = true;
    }

    pub(super) fn is_settled(&self) -> bool {
        self.state().settled
    }

    /// Adds something to the history, which is kept as one number.
    pub(super) fn note(&self, at: Time, what: &[u64]) {
        let mut state = self.state();
        for word in [at.as_micros()].iter().chain(what) {
            state.history = (state.history ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
    }

    pub(super) fn acquisitions(&self) -> u64 {
        self.state().acquisitions
    }

    /// What was found, and what the whole history comes to.
    pub(super) fn end(&self) -> (Vec<String>, u64) {
        let state = self.state();
        (state.found.iter().cloned().collect(), state.history)
    }
}

impl Held {
    /// The same hold, entered again by its owner.
    fn is_the_same(&self, visit: Visit, token: u64) -> bool {
        self.by_owner && visit.by_owner && self.host == visit.host.number() && self.token == token
    }
}

impl State {
    fn room(&mut self, lock: &str) -> &mut Room {
        let room = self.rooms.iter_mut().find(|(name, _)| *name == lock);
        &mut room.expect("a lock of this world").1
    }

    fn finds(&mut self, lock: &str, what: &str) {
        self.found.insert(format!("{lock}: {what}"));
    }

    fn look(&mut self, lock: &str) {
        let (mut all, mut alone, mut permits, mut came_back) = (0, 0, 0, false);
        // Guards of one owner on one place are one holder.
        let mut owners: Vec<(usize, u64)> = Vec::new();
        for held in &mut self.room(lock).held {
            let valid = held.guard.is_valid();
            came_back |= valid && held.was_lost;
            held.was_lost |= !valid;
            if !valid || held.by_owner && owners.contains(&(held.host, held.token)) {
                continue;
            }
            if held.by_owner {
                owners.push((held.host, held.token));
            }
            all += 1;
            alone += usize::from(held.hold == Hold::Alone);
            permits += usize::from(held.hold == Hold::Permit);
        }
        if alone > 0 && all > 1 {
            self.finds(lock, "two inside");
        }
        if permits > PERMITS {
            self.finds(lock, "more permits than there are");
        }
        if came_back {
            self.finds(lock, "a lost guard came back");
        }
    }
}
