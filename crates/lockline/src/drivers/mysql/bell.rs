//! Who waits behind another process is woken inside the server: a session of ours waits for the named lock that the session of
//! whoever stands before us holds. At most one session per line, and a few in all; whoever finds no session free, and every
//! wake-up that got lost, is found by looking again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::config::MysqlConfig;
use super::lane::{Lane, Value, text_of};
use crate::driver::Bells;
use crate::drivers::relational::{Answer, line_key};
use crate::line::{ClaimId, Standing};
use crate::name::Name;
use crate::sync::locked;

/// How many sessions may wait at the same time.
const SESSIONS: usize = 8;
/// How long one of them waits before it looks.
const SECONDS: i64 = 5;
/// How long to wait when there is nobody's session to wait for.
const PAUSE: Duration = Duration::from_millis(100);

/// The claims of this process that wait, and the sessions that wait for them.
#[derive(Debug)]
pub(super) struct Watch {
    config: MysqlConfig,
    address: Arc<str>,
    process: u128,
    bells: Bells,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<Name, HashSet<ClaimId>>,
    watched: HashSet<Name>,
    idle: Vec<Lane>,
}

impl Watch {
    pub(super) fn new(config: MysqlConfig, address: Arc<str>, process: u128, bells: Bells) -> Arc<Watch> {
        Arc::new(Watch { config, address, process, bells, state: Mutex::default() })
    }

    #[cfg(test)]
    pub(super) fn has_test_clock(&self) -> bool {
        self.config.clock.is_some()
    }

    /// Notes where a claim stands, and has a session wait for it if it waits.
    pub(super) fn note(self: &Arc<Self>, name: &Name, id: ClaimId, standing: Standing) {
        if matches!(standing, Standing::Waiting { .. }) {
            locked(&self.state).waiting.entry(name.clone()).or_default().insert(id);
            self.watch(name);
        } else {
            self.forget(name, id);
        }
    }

    /// The claim waits no longer.
    pub(super) fn forget(&self, name: &Name, id: ClaimId) {
        let mut state = locked(&self.state);
        if let Some(ids) = state.waiting.get_mut(name) {
            ids.remove(&id);
            if ids.is_empty() {
                state.waiting.remove(name);
            }
        }
    }

    /// Has a session wait for the first claim of ours in a line, if one waits there and a session is free.
    pub(super) fn watch(self: &Arc<Self>, name: &Name) {
        // Steps are compared one by one there, and a bell between two of them is nobody's.
        #[cfg(test)]
        if self.has_test_clock() {
            return;
        }
        let lane = {
            let mut state = locked(&self.state);
            if !state.waiting.contains_key(name)
                || state.watched.contains(name)
                || state.watched.len() >= SESSIONS
            {
                return;
            }
            state.watched.insert(name.clone());
            state.idle.pop()
        };
        let lane =
            lane.unwrap_or_else(|| Lane::new(self.config.clone(), self.address.clone(), self.bells.clone()));
        // A weak reference: a driver that is gone needs no bell.
        let (watch, name) = (Arc::downgrade(self), name.clone());
        tokio::spawn(async move {
            loop {
                let Some(this) = watch.upgrade() else { return };
                let values = vec![
                    Value::Bits(line_key(name.as_str())),
                    Value::Bytes(name.as_str().as_bytes().to_vec()),
                    Value::Bits(this.process),
                    Value::Int(SECONDS),
                ];
                drop(this);
                let asked = lane.ask("watch", "CALL lockline_watch(?, ?, ?, ?)".into(), values).await;
                let Some(this) = watch.upgrade() else { return };
                if !this.heard(&name, asked.ok().as_deref().and_then(text_of)).await {
                    let mut state = locked(&this.state);
                    state.watched.remove(&name);
                    state.idle.push(lane);
                    return;
                }
            }
        });
    }

    /// Rings what a session heard; `false` if it need not go on.
    async fn heard(&self, name: &Name, answer: Option<String>) -> bool {
        let Some(answer) = answer else {
            tokio::time::sleep(PAUSE).await;
            return locked(&self.state).waiting.contains_key(name);
        };
        let answer = Answer::new(&answer);
        let waits = |id| locked(&self.state).waiting.get(name).is_some_and(|ids| ids.contains(&id));
        for id in answer.ring_if(&self.bells, waits) {
            self.forget(name, id);
        }
        match answer.verdict {
            "N" | "M" => false,
            "S" => {
                tokio::time::sleep(PAUSE).await;
                locked(&self.state).waiting.contains_key(name)
            }
            _ => locked(&self.state).waiting.contains_key(name),
        }
    }
}
