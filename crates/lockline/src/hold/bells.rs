//! The board on which all claims of a client hang: bells look them up there, and the keeper finds what is due.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::spot::Spot;
use super::validity::Phase;
use crate::driver::BellBoard;
use crate::line::{Bell, ClaimId, News, Place};
use crate::name::Name;
use crate::pause::chance;
use crate::sync::locked;
use crate::time::{Clock, Time};

/// All claims of one client.
pub(crate) struct Board {
    clock: Clock,
    /// How long the keeper sleeps when nothing is due: a little less than the time to a first renewal. If it slept for
    /// longer, every lock that is taken and released quickly would wake it for nothing.
    idle: Duration,
    /// Where this client's grid begins: all clients of a host have the same clock, and would renew in the same instants.
    phase: u64,
    state: Mutex<State>,
    /// Wakes the keeper when something is due sooner than it thought.
    pub(crate) keeper: Notify,
}

#[derive(Default)]
struct State {
    spots: HashMap<ClaimId, Hung>,
    due: BTreeSet<(Time, ClaimId)>,
    /// Places of ours that nobody here knows any more: a late copy of a join made them, and they are to be left.
    orphans: Vec<Place>,
    keeper_sleeps_until: Time,
    closed: bool,
}

struct Hung {
    spot: Arc<Spot>,
    /// When the keeper looks at it; `None` while a request for it is under way.
    due: Option<Time>,
    /// Something happened while a request was under way, perhaps after the engine had answered it: look once more.
    again: bool,
}

/// Why a claim cannot hang on the board.
pub(crate) enum NoRoom {
    /// The client was shut down, perhaps since it was last asked.
    Closed,
    /// As many claims as allowed hang there.
    Full(usize),
}

impl Board {
    pub(crate) fn new(clock: Clock, lease: Duration) -> Board {
        Board { clock, idle: lease / 4, phase: chance(), state: Mutex::default(), keeper: Notify::new() }
    }

    /// Hangs a claim on the board, **before** it joins: a bell that rings first must find it.
    pub(crate) fn hang(&self, spot: &Arc<Spot>, most: usize) -> Result<(), NoRoom> {
        let mut state = locked(&self.state);
        if state.closed {
            return Err(NoRoom::Closed);
        }
        if state.spots.len() >= most {
            return Err(NoRoom::Full(state.spots.len()));
        }
        state.spots.insert(spot.claim.id, Hung { spot: spot.clone(), due: None, again: false });
        Ok(())
    }

    /// Takes a claim off: from now on its bells are strangers'. `false` if it was off already.
    pub(crate) fn take_off(&self, id: ClaimId) -> bool {
        let mut state = locked(&self.state);
        let Some(hung) = state.spots.remove(&id) else { return false };
        if let Some(due) = hung.due {
            state.due.remove(&(due, id));
        }
        true
    }

    /// Has the keeper look at a claim at about a point in time: a little sooner, on a grid, so that claims with like
    /// leases are renewed together.
    pub(crate) fn look_in(&self, spot: &Spot, interval: Duration) {
        let now = self.clock.now();
        let grid = u64::try_from(interval.as_micros() / 4).unwrap_or(u64::MAX).max(1);
        let at = (now + interval).as_micros();
        let since_grid_point = at.wrapping_sub(self.phase % grid) % grid;
        self.look_at(spot, Time::from_micros(at - since_grid_point).max(now));
    }

    /// Has the keeper look at a claim at `at`, or when it stops being valid, if that is sooner.
    pub(crate) fn look_at(&self, spot: &Spot, at: Time) {
        let mut at = at.min(spot.valid_until());
        let id = spot.claim.id;
        let mut state = locked(&self.state);
        let Some(hung) = state.spots.get_mut(&id) else { return };
        if std::mem::take(&mut hung.again) {
            at = at.min(self.clock.now());
        }
        if let Some(before) = hung.due.replace(at) {
            state.due.remove(&(before, id));
        }
        state.due.insert((at, id));
        if at < state.keeper_sleeps_until {
            state.keeper_sleeps_until = at;
            if !mutant!(KeeperOversleeps) {
                self.keeper.notify_one();
            }
        }
    }

    /// What is due by `now`, with how late it is; each is under way until it is scheduled again.
    pub(crate) fn take_due(&self, now: Time) -> Vec<(Arc<Spot>, Duration)> {
        let mut state = locked(&self.state);
        let mut due = Vec::new();
        while let Some(&(at, id)) = state.due.first() {
            if at > now {
                break;
            }
            state.due.pop_first();
            if let Some(hung) = state.spots.get_mut(&id) {
                hung.due = None;
                due.push((hung.spot.clone(), now.since(at)));
            }
        }
        due
    }

    pub(crate) fn take_orphans(&self) -> Vec<Place> {
        std::mem::take(&mut locked(&self.state).orphans)
    }

    /// Tells the keeper until when it may sleep. It is woken if something becomes due sooner.
    pub(crate) fn keeper_may_sleep(&self, now: Time) -> Time {
        let mut state = locked(&self.state);
        let idle = now + self.idle;
        let next = state.due.first().map_or(idle, |&(at, _)| at.min(idle));
        state.keeper_sleeps_until = next;
        next
    }

    /// All claims on the board, and no new ones any more.
    pub(crate) fn close(&self) -> Vec<Arc<Spot>> {
        let mut state = locked(&self.state);
        state.closed = true;
        let mut spots: Vec<_> = state.spots.values().map(|hung| hung.spot.clone()).collect();
        // In an order that is the same in every run of a simulation.
        spots.sort_unstable_by_key(|spot| spot.claim.id);
        self.keeper.notify_one();
        spots
    }

    pub(crate) fn is_closed(&self) -> bool {
        locked(&self.state).closed
    }
}

impl BellBoard for Board {
    fn ring(&self, name: &Name, bell: &Bell) {
        let spot = {
            let mut state = locked(&self.state);
            let spot = state.spots.get(&bell.id).map(|hung| hung.spot.clone());
            if spot.is_none() && bell.news == News::In {
                // The claim was given up, and yet has a place: a copy of its join came late. Nobody will renew it, but
                // whoever waits behind it would wait for a whole lease.
                state.orphans.push(Place {
                    name: name.clone(),
                    id: bell.id,
                    ticket: Some(bell.ticket),
                    lease: Duration::ZERO,
                    last: false,
                });
                self.keeper.notify_one();
            }
            spot
        };
        let Some(spot) = spot else { return };
        let now = self.clock.now();
        if let Phase::Lost(_) = spot.bell(bell.ticket, bell.news, now) {
            // The keeper tidies up after a loss.
            self.look_at(&spot, now);
        }
    }

    fn acknowledged(&self, id: ClaimId, replicas: u32) {
        if let Some(hung) = locked(&self.state).spots.get(&id) {
            hung.spot.acknowledged(replicas);
        }
    }

    fn look_now(&self, id: ClaimId) {
        let now = self.clock.now();
        let spot = {
            let mut state = locked(&self.state);
            let Some(hung) = state.spots.get_mut(&id) else { return };
            let under_way = hung.due.is_none();
            hung.again = under_way && !mutant!(LookNowForgotten);
            (!under_way).then(|| hung.spot.clone())
        };
        if let Some(spot) = spot.filter(|spot| spot.look(now) == Phase::Waiting) {
            self.look_at(&spot, now);
        }
    }

    fn look_at_all(&self) {
        let now = self.clock.now();
        let mut spots: Vec<_> = locked(&self.state)
            .spots
            .values()
            .filter(|hung| hung.due.is_some())
            .map(|hung| hung.spot.clone())
            .collect();
        spots.sort_unstable_by_key(|spot| spot.claim.id);
        for spot in spots {
            if spot.look(now) == Phase::Waiting {
                self.look_at(&spot, now);
            }
        }
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").field("claims", &locked(&self.state).spots.len()).finish_non_exhaustive()
    }
}
