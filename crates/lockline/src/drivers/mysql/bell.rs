//! Who waits behind another process is woken inside the server: a session of ours waits for the named lock that the session of
//! whoever stands before us holds. A client that has one claim waits in the session that it has anyway; one that has more waits in
//! others, at most one per line, and a few in all. Whoever finds no session free, and every wake-up that got lost, is found by looking again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::config::MysqlConfig;
use super::durability::Durability;
use super::lane::{Lane, text_of};
use super::lanes::Lanes;
use super::wire::Value;
use crate::driver::Bells;
use crate::drivers::relational::{Answer, line_key};
use crate::line::{ClaimId, Standing, Ticket};
use crate::name::Name;
use crate::pause;
use crate::sync::locked;

/// How many sessions may wait at the same time.
const SESSIONS: usize = 8;
/// How long one of them waits before it looks.
const SECONDS: i64 = 5;
/// How long it waits in a session that carries verbs, too: for so long the renewal of its own claim, and its leave, may wait behind it.
const SECONDS_AMONG_VERBS: i64 = 1;
/// How long to wait when there is nobody's session to wait for.
const PAUSE: Duration = Duration::from_millis(100);

/// The claims of this process that wait, and the sessions that wait for them.
#[derive(Debug)]
pub(super) struct Watch {
    config: MysqlConfig,
    address: Arc<str>,
    durability: Arc<Durability>,
    process: u128,
    lanes: Arc<Lanes>,
    bells: Bells,
    state: Mutex<State>,
}

/// The claims of this process that wait in one line.
#[derive(Debug, Default)]
struct Waiting {
    tickets: HashMap<ClaimId, Ticket>,
    /// In order, and whether another process's claim may stand right before it. Behind one of ours it is our own leave that tells.
    line: BTreeMap<Ticket, (ClaimId, bool)>,
}

impl Waiting {
    /// Whether the first of them has somebody else's session to wait for.
    fn must_watch(&self) -> bool {
        self.line.first_key_value().is_some_and(|(_, (_, behind_others))| *behind_others)
    }
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<Name, Waiting>,
    /// The lines that a session watches, and whether it was asked for since it last looked.
    watched: HashMap<Name, bool>,
    idle: Vec<Lane>,
}

impl Watch {
    pub(super) fn new(
        config: MysqlConfig,
        address: Arc<str>,
        durability: Arc<Durability>,
        process: u128,
        lanes: Arc<Lanes>,
        bells: Bells,
    ) -> Arc<Watch> {
        Arc::new(Watch { config, address, durability, process, lanes, bells, state: Mutex::default() })
    }

    #[cfg(test)]
    pub(super) fn has_test_clock(&self) -> bool {
        self.config.clock.is_some()
    }

    /// A claim has joined, right behind somebody else's or one of ours.
    pub(super) fn stands(
        self: &Arc<Self>,
        name: &Name,
        id: ClaimId,
        standing: Standing,
        behind_others: bool,
    ) {
        let Standing::Waiting { ticket, .. } = standing else { return };
        let must_watch = {
            let mut state = locked(&self.state);
            let waiting = state.waiting.entry(name.clone()).or_default();
            waiting.tickets.insert(id, ticket);
            waiting.line.insert(ticket, (id, behind_others));
            waiting.must_watch()
        };
        if must_watch {
            self.watch(name);
        }
    }

    /// A claim was looked at.
    pub(super) fn still_stands(self: &Arc<Self>, name: &Name, id: ClaimId, standing: Standing) {
        match standing {
            Standing::Waiting { .. } if self.waits(name, id) => {}
            Standing::Waiting { .. } => self.stands(name, id, standing, true),
            Standing::In { .. } => self.got_in(name, id),
            Standing::Out | Standing::Lapsed => self.forget(name, id),
            Standing::Unsure => {}
        }
    }

    /// The first claim of ours that waits in a line, and the ticket of the last.
    pub(super) fn first_and_last(&self, name: &Name) -> Option<(ClaimId, Ticket, Ticket)> {
        let state = locked(&self.state);
        let line = &state.waiting.get(name)?.line;
        let (first, (id, _)) = line.first_key_value()?;
        Some((*id, *first, *line.last_key_value()?.0))
    }

    fn waits(&self, name: &Name, id: ClaimId) -> bool {
        locked(&self.state).waiting.get(name).is_some_and(|all| all.tickets.contains_key(&id))
    }

    /// The claim leaves, or is gone.
    pub(super) fn forget(&self, name: &Name, id: ClaimId) {
        let mut state = locked(&self.state);
        let Some(waiting) = state.waiting.get_mut(name) else { return };
        let Some(ticket) = waiting.tickets.remove(&id) else { return };
        waiting.line.remove(&ticket);
        // Whoever stood behind it may stand behind somebody else now.
        if let Some((_, (_, behind_others))) = waiting.line.range_mut(ticket..).next() {
            *behind_others = true;
        }
        if waiting.line.is_empty() {
            state.waiting.remove(name);
        }
    }

    /// One of ours got in.
    pub(super) fn got_in(&self, name: &Name, id: ClaimId) {
        let mut state = locked(&self.state);
        let Some(waiting) = state.waiting.get_mut(name) else { return };
        if let Some(ticket) = waiting.tickets.remove(&id) {
            waiting.line.remove(&ticket);
        }
        if waiting.line.is_empty() {
            state.waiting.remove(name);
        }
    }

    /// One of ours has left, and let one of ours in or not: the first that waits now may stand behind somebody else.
    pub(super) fn left(self: &Arc<Self>, name: &Name, let_one_in: bool) {
        if !let_one_in || locked(&self.state).waiting.get(name).is_some_and(Waiting::must_watch) {
            self.watch(name);
        }
    }

    /// Has a session wait for the first claim of ours in a line, if one waits there and a session is free.
    pub(super) fn watch(self: &Arc<Self>, name: &Name) {
        // Steps are compared one by one there, and a bell between two of them is nobody's.
        #[cfg(test)]
        if self.has_test_clock() {
            return;
        }
        {
            let mut state = locked(&self.state);
            if !state.waiting.contains_key(name) {
                return;
            }
            if let Some(again) = state.watched.get_mut(name) {
                *again = true;
                return;
            }
            if state.watched.len() >= SESSIONS {
                return;
            }
            state.watched.insert(name.clone(), false);
        }
        // A weak reference: a driver that is gone needs no bell.
        tokio::spawn(watch_line(Arc::downgrade(self), name.clone()));
    }

    /// A session that waits, and for how many seconds it may. A client that wants nothing but this needs no other for it.
    fn session_for(&self, name: &Name) -> Waiter {
        if let Some(lane) = self.lanes.park(line_key(name.as_str())) {
            return Waiter { lane, seconds: SECONDS_AMONG_VERBS, parked: Some(self.lanes.clone()) };
        }
        let idle = locked(&self.state).idle.pop();
        let lane = idle.unwrap_or_else(|| {
            let (config, address) = (self.config.clone(), self.address.clone());
            Lane::new(config, address, self.durability.clone(), self.bells.clone(), None)
        });
        Waiter { lane, seconds: SECONDS, parked: None }
    }

    /// It may be used again.
    fn take_back(&self, waiter: Waiter) {
        if waiter.parked.is_none() {
            locked(&self.state).idle.push(waiter.lane.clone());
        }
    }

    /// Rings what a session heard; `false` if it need not go on.
    async fn heard(&self, name: &Name, answer: Option<String>) -> bool {
        let Some(answer) = answer else {
            tokio::time::sleep(pause::about(PAUSE)).await;
            return locked(&self.state).waiting.contains_key(name);
        };
        let answer = Answer::new(&answer);
        for id in answer.ring_if(&self.bells, |id| self.waits(name, id)) {
            self.got_in(name, id);
        }
        match answer.verdict {
            "N" | "M" => false,
            "S" => {
                tokio::time::sleep(pause::about(PAUSE)).await;
                locked(&self.state).waiting.contains_key(name)
            }
            _ => locked(&self.state).waiting.contains_key(name),
        }
    }
}

/// A session that waits for a line.
#[derive(Debug)]
struct Waiter {
    lane: Lane,
    seconds: i64,
    /// It is one that carries verbs; told when it waits no more, however that ends.
    parked: Option<Arc<Lanes>>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(lanes) = &self.parked {
            lanes.unpark();
        }
    }
}

/// Waits for the first claim of this client in a line for as long as there is one, or until the client is gone.
async fn watch_line(watch: Weak<Watch>, name: Name) {
    loop {
        let Some(this) = watch.upgrade() else { return };
        locked(&this.state).watched.insert(name.clone(), false);
        let waiter = this.session_for(&name);
        let values = vec![
            Value::Bits(line_key(name.as_str())),
            Value::Bytes(name.as_str().as_bytes().to_vec()),
            Value::Bits(this.process),
            Value::Int(waiter.seconds),
        ];
        drop(this);
        let asked = waiter.lane.ask("watch", "CALL lockline_watch(?, ?, ?, ?)", values).await;
        let Some(this) = watch.upgrade() else { return };
        this.take_back(waiter);
        if !this.heard(&name, asked.ok().as_deref().and_then(text_of)).await {
            let mut state = locked(&this.state);
            // Somebody asked for it after the look that found nothing to wait for.
            if state.watched.get(&name) != Some(&true) {
                state.watched.remove(&name);
                return;
            }
        }
    }
}
