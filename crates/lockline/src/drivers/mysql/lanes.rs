//! Which session carries which claim's verbs: as few sessions as will do, and none that one lock waits in carries another's verbs.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use super::lane::Lane;
use crate::line::ClaimId;
use crate::sync::locked;

/// The shortest lease whose renewals may wait for a second behind what their own claim waits for.
const LONG_LEASE: Duration = Duration::from_secs(4);

/// For how many claims at once another session is made.
const CLAIMS_PER_SESSION: usize = 4;

/// The sessions that verbs go over.
#[derive(Debug)]
pub(super) struct Lanes {
    all: Vec<Lane>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The claims of this client that stand somewhere, or may. A claim is left on the session that it joined on: that one holds what others
    /// wait for.
    claims: HashMap<ClaimId, Stand>,
    /// How many claims of a line there are, and where the next one of it goes: verbs of one line come one after the other.
    lines: HashMap<u128, (usize, usize)>,
    /// The session that waits inside the server for the only claim there was.
    parked: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Stand {
    line: u128,
    lane: usize,
    lease: Duration,
}

impl Lanes {
    pub(super) fn new(all: Vec<Lane>) -> Lanes {
        Lanes { all, state: Mutex::default() }
    }

    /// The session for a claim that is about to join.
    pub(super) fn enter(&self, line: u128, id: ClaimId, lease: Duration) -> &Lane {
        let mut state = locked(&self.state);
        if let Some(stand) = state.claims.get(&id) {
            return &self.all[stand.lane];
        }
        let known =
            state.lines.get(&line).map(|(lane, _)| *lane).filter(|lane| self.takes_joins(&state, *lane));
        let lane = known.unwrap_or_else(|| self.choose(&state, line));
        state.note(line, id, lane, lease);
        &self.all[lane]
    }

    /// Whether joins may go over this session: nobody waits inside the server in it, and where many claims stand, it is not the first, which
    /// renewals go over. Behind a thousand joins of one line the renewals of all others would come too late.
    fn takes_joins(&self, state: &State, lane: usize) -> bool {
        let others = self.all.len() - 1 - usize::from(state.parked.is_some_and(|parked| parked != 0));
        let is_kept_free = lane == 0 && others > 0 && state.claims.len() >= CLAIMS_PER_SESSION;
        state.parked != Some(lane) && !is_kept_free
    }

    /// A session for a line that has none: one that is there and idle, or the line's own among as many as so many claims are worth. To make a
    /// session takes longer than to wait for a statement or two.
    fn choose(&self, state: &State, line: u128) -> usize {
        let most = 1 + state.claims.len() / CLAIMS_PER_SESSION;
        let some: Vec<usize> =
            (0..self.all.len()).filter(|lane| self.takes_joins(state, *lane)).take(most).collect();
        let idle = some.iter().find(|lane| self.all[**lane].is_ready());
        let own = || some.get(usize::try_from(line % some.len().max(1) as u128).unwrap_or(0));
        idle.or_else(own).copied().unwrap_or(0)
    }

    /// A claim has joined with the statement of another, on its session.
    pub(super) fn came_along(&self, line: u128, id: ClaimId, with: ClaimId, lease: Duration) {
        let mut state = locked(&self.state);
        let lane = state.claims.get(&with).map_or(0, |stand| stand.lane);
        state.forget(id);
        state.note(line, id, lane, lease);
    }

    /// The session of a claim. One that is not known has nothing that depends on it.
    pub(super) fn of(&self, id: ClaimId) -> &Lane {
        let lane = locked(&self.state).claims.get(&id).map(|stand| stand.lane);
        lane.map_or_else(|| self.spare(), |lane| &self.all[lane])
    }

    /// Nothing of the claim stands anywhere.
    pub(super) fn forget(&self, id: ClaimId) {
        locked(&self.state).forget(id);
    }

    /// A session for what belongs to no claim, or to many. It does not wait for what one of them waits for, unless that is the only one
    /// and there is no other session yet.
    pub(super) fn spare(&self) -> &Lane {
        let state = locked(&self.state);
        match state.parked {
            Some(parked) if state.claims.len() <= 1 && self.ready_beside(parked).is_none() => {
                &self.all[parked]
            }
            Some(parked) => self.beside(parked),
            None => &self.all[0],
        }
    }

    /// A session in which nobody waits, for what must not come late.
    pub(super) fn prompt(&self) -> &Lane {
        let parked = locked(&self.state).parked;
        parked.map_or(&self.all[0], |parked| self.beside(parked))
    }

    fn beside(&self, parked: usize) -> &Lane {
        let any = usize::from(parked == 0) % self.all.len();
        &self.all[self.ready_beside(parked).unwrap_or(any)]
    }

    fn ready_beside(&self, parked: usize) -> Option<usize> {
        (0..self.all.len()).find(|lane| *lane != parked && self.all[*lane].is_ready())
    }

    /// The session of a line's claim, to wait in for a second at most; `None` if others would wait behind it.
    pub(super) fn park(&self, line: u128) -> Option<Lane> {
        let mut state = locked(&self.state);
        let (Some(stand), 1) = (state.claims.values().next().copied(), state.claims.len()) else {
            return None;
        };
        // With one session alone a second claim could not avoid it.
        if stand.line != line || stand.lease < LONG_LEASE || self.all.len() == 1 || state.parked.is_some() {
            return None;
        }
        state.parked = Some(stand.lane);
        Some(self.all[stand.lane].clone())
    }

    /// Nobody waits there any more.
    pub(super) fn unpark(&self) {
        locked(&self.state).parked = None;
    }
}

impl State {
    fn note(&mut self, line: u128, id: ClaimId, lane: usize, lease: Duration) {
        self.claims.insert(id, Stand { line, lane, lease });
        let claims = self.lines.entry(line).or_insert((lane, 0));
        *claims = (lane, claims.1 + 1);
    }

    fn forget(&mut self, id: ClaimId) {
        let Some(stand) = self.claims.remove(&id) else { return };
        let Some((_, claims)) = self.lines.get_mut(&stand.line) else { return };
        *claims -= 1;
        if *claims == 0 {
            self.lines.remove(&stand.line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::drivers::mysql::config::MysqlConfig;
    use crate::drivers::mysql::durability::Durability;
    use crate::drivers::testing::Heard;

    const LEASE: Duration = Duration::from_secs(10);

    /// Sessions that nobody makes.
    fn lanes(count: usize) -> Lanes {
        let config = MysqlConfig::new("127.0.0.1", 1, "none");
        let heard = Arc::new(Heard::default());
        let lane = |_| {
            Lane::new(config.clone(), "none".into(), Arc::new(Durability::default()), heard.clone(), None)
        };
        Lanes::new((0..count).map(lane).collect())
    }

    impl Lanes {
        fn place_of(&self, lane: &Lane) -> usize {
            self.all.iter().position(|one| std::ptr::eq(one, lane)).unwrap()
        }
    }

    /// A thousand joins of one line stood before the renewals of everything else, and a view of it took more than 5 s.
    #[tokio::test]
    async fn renewals_do_not_wait_behind_a_crowd_of_joins() {
        for count in 2..=4 {
            let lanes = lanes(count);
            for nth in 0..1000 {
                let lane = lanes.place_of(lanes.enter(7, ClaimId::random(), LEASE));
                assert_eq!(lane == 0, nth < CLAIMS_PER_SESSION, "claim {nth} of {count} sessions");
            }
            assert_eq!((lanes.place_of(lanes.prompt()), lanes.place_of(lanes.spare())), (0, 0));
        }
    }

    #[tokio::test]
    async fn joins_have_a_session_whatever_else_there_is() {
        let one = lanes(1);
        let two = lanes(2);
        let first = ClaimId::random();
        two.enter(1, first, LEASE);
        assert!(two.park(1).is_some());
        for line in 0..100 {
            assert_eq!(one.place_of(one.enter(line, ClaimId::random(), LEASE)), 0);
            assert_eq!(two.place_of(two.enter(line, ClaimId::random(), LEASE)), 1);
        }
    }
}
