//! The letter box of a client that hears nothing by itself: what happened to its claims is left there for it, and it looks
//! into it for as long as it has claims.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::Answer;
use crate::driver::{Bells, Verb};
use crate::line::{ClaimId, Standing};
use crate::sync::locked;

/// How often a client looks that only holds: that soon it learns of an eviction.
const HOLDING: Duration = Duration::from_millis(500);
/// How long one look may take. Whatever it would have told, a renewal tells, too.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads the letters of this client: bells, as a routine answers them.
pub(in crate::drivers) type Fetch = Box<dyn Fn() -> Verb<'static, String> + Send + Sync>;

/// The claims of this client, and the task that reads its letters while there are any.
pub(in crate::drivers) struct LetterBox {
    fetch: Fetch,
    /// How often to look while a claim waits.
    waiting: Duration,
    bells: Bells,
    state: Mutex<State>,
    /// A claim waits now that did not before.
    sooner: Arc<Notify>,
}

#[derive(Default)]
struct State {
    /// Those that stand somewhere, and whether they wait.
    claims: HashMap<ClaimId, bool>,
    waiting: usize,
    is_read: bool,
}

impl State {
    fn note(&mut self, id: ClaimId, waits: Option<bool>) {
        let before = match waits {
            Some(waits) => self.claims.insert(id, waits),
            None => self.claims.remove(&id),
        };
        self.waiting += usize::from(waits == Some(true));
        self.waiting -= usize::from(before == Some(true));
    }
}

impl LetterBox {
    /// An empty one. `waiting`: how often to look while a claim waits.
    pub(in crate::drivers) fn new(fetch: Fetch, waiting: Duration, bells: Bells) -> Arc<LetterBox> {
        let (state, sooner) = (Mutex::default(), Arc::default());
        Arc::new(LetterBox { fetch, waiting, bells, state, sooner })
    }

    /// Notes where a claim stands.
    pub(in crate::drivers) fn note(self: &Arc<Self>, id: ClaimId, standing: Standing) {
        let waits = match standing {
            Standing::In { .. } => Some(false),
            Standing::Waiting { .. } => Some(true),
            Standing::Out | Standing::Lapsed => None,
            Standing::Unsure => return,
        };
        let (first_waiting, unread) = {
            let mut state = locked(&self.state);
            let waited = state.waiting;
            state.note(id, waits);
            let unread = !state.claims.is_empty() && !state.is_read;
            state.is_read |= unread;
            (waited == 0 && state.waiting > 0, unread)
        };
        if unread {
            tokio::spawn(read(Arc::downgrade(self)));
        } else if first_waiting {
            self.sooner.notify_one();
        }
    }

    /// The claim has left, or is about to.
    pub(in crate::drivers) fn forget(&self, id: ClaimId) {
        locked(&self.state).note(id, None);
    }

    /// How long to wait for the next look; `None` if there is nothing to look for any more.
    fn pause(&self) -> Option<Duration> {
        let mut state = locked(&self.state);
        if state.claims.is_empty() {
            state.is_read = false;
            return None;
        }
        Some(if state.waiting > 0 { self.waiting } else { HOLDING })
    }

    async fn look(&self) {
        match tokio::time::timeout(PATIENCE, (self.fetch)()).await {
            Ok(Ok(letters)) => drop(Answer::new(&letters).ring(&self.bells)),
            Ok(Err(error)) => tracing::debug!(%error, "cannot read what other clients wrote"),
            Err(_) => tracing::debug!("cannot read what other clients wrote in time"),
        }
    }
}

/// Reads until the client has no claims, or is gone.
async fn read(letters: Weak<LetterBox>) {
    loop {
        let Some((pause, sooner)) =
            letters.upgrade().and_then(|letters| Some((letters.pause()?, letters.sooner.clone())))
        else {
            return;
        };
        if tokio::time::timeout(pause, sooner.notified()).await.is_ok() {
            continue;
        }
        let Some(letters) = letters.upgrade() else { return };
        letters.look().await;
    }
}

impl fmt::Debug for LetterBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LetterBox").finish_non_exhaustive()
    }
}
