//! Who holds what, as the guards themselves say at one and the same simulated moment, and what must never be seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

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
    client: usize,
    guard: Arc<Guard>,
}

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<&'static str, Vec<Held>>,
    newest: BTreeMap<&'static str, u64>,
    found: BTreeSet<String>,
    acquisitions: u64,
    history: u64,
}

/// Everything that a run sees.
#[derive(Debug, Default)]
pub(super) struct Arena(Mutex<State>);

impl Arena {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }

    /// Somebody got a lock.
    pub(super) fn enters(&self, lock: &'static str, client: usize, hold: Hold, guard: Guard) -> Arc<Guard> {
        let guard = Arc::new(guard);
        let mut state = self.state();
        state.acquisitions += 1;
        let token = guard.fence().token();
        if guard.is_valid() {
            let newest = state.newest.entry(lock).or_default();
            if hold == Hold::Alone {
                let is_old = token <= std::mem::replace(newest, token.max(*newest));
                if is_old {
                    state.found.insert(format!("{lock}: a later holder has no larger token"));
                }
            }
        }
        state.held.entry(lock).or_default().push(Held { hold, client, guard: guard.clone() });
        drop(state);
        self.look(lock);
        guard
    }

    /// Looks whether guards of a lock that do not fit together are valid now.
    pub(super) fn look(&self, lock: &'static str) {
        let mut state = self.state();
        let valid = state.held.get(lock).into_iter().flatten().filter(|held| held.guard.is_valid());
        let (mut all, mut alone, mut permits) = (0, 0, 0);
        for held in valid {
            all += 1;
            alone += usize::from(held.hold == Hold::Alone);
            permits += usize::from(held.hold == Hold::Permit);
        }
        if alone > 0 && all > 1 {
            state.found.insert(format!("{lock}: two inside"));
        }
        if permits > PERMITS {
            state.found.insert(format!("{lock}: more permits than there are"));
        }
    }

    /// Somebody lets go of a lock.
    pub(super) fn leaves(&self, lock: &'static str, guard: &Arc<Guard>) {
        if let Some(held) = self.state().held.get_mut(lock) {
            held.retain(|held| !Arc::ptr_eq(&held.guard, guard));
        }
    }

    /// A client crashed: what it held nobody holds any more who could do anything with it.
    pub(super) fn crashed(&self, client: usize) {
        let mut gone = Vec::new();
        for held in self.state().held.values_mut() {
            gone.extend(held.extract_if(.., |held| held.client == client));
        }
        drop(gone);
    }

    pub(super) fn finds(&self, what: impl Into<String>) {
        self.state().found.insert(what.into());
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
