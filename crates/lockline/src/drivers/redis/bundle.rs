//! Many verbs in one call: a script costs the server as much to begin as to take or give back a free lock. So where many locks are
//! taken and given back at the same time through one connection, on lines where nobody else was found, those that are asked for
//! in the same moment go together.
//!
//! Nobody waits for company: a verb goes alone where few are under way, and otherwise with those whose tasks were ready to run
//! when it was.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};
use tokio::sync::oneshot;

use super::error::is_unknown_script;
use super::link::{Live, Unanswered};
use super::scripts::Script;
use crate::sync::locked;

/// With fewer verbs under way each goes alone: that is faster for itself.
const FEW: usize = 4;
/// How many go into one call: so few that nobody else waits for long behind it.
const MOST: usize = 64;
/// Nobody waits for longer than this for an answer; what comes later is for nobody.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// Why a verb should go along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Nobody else is thought to stand in its line, so it is done with little.
    Quiet,
    /// It leaves, and nobody knows whether its join was sent: a leave must not overtake it.
    BehindItsJoin,
    /// It should not: it would be in vain.
    NoReason,
}

/// What became of a verb that was to go along.
#[derive(Debug)]
pub(super) enum Along {
    /// The ticket of who got in; 0 for who has left.
    Done(u64),
    /// Somebody else stands there: nothing was done.
    NotSoSimple,
    /// It was not sent, or nobody can tell: it is to go alone.
    Alone,
    /// As for one that went alone.
    Failed(redis::RedisError),
}

/// The verbs that are to go along.
pub(super) struct Bundles {
    state: Mutex<State>,
    /// Everything goes along, also what is alone: tests compare that with the line.
    #[cfg(test)]
    always: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
struct State {
    /// Verbs that were sent, alone or along, and are not answered yet.
    under_way: usize,
    /// Since somebody began to gather verbs for this connection, until they are sent.
    gathering: Option<Arc<Live>>,
    gathered: Vec<Item>,
}

struct Item {
    root: String,
    what: String,
    answer: oneshot::Sender<Along>,
}

/// Counts one verb as under way for as long as it lives.
#[derive(Debug)]
pub(super) struct OnItsWay<'a>(&'a Bundles);

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        locked(&self.0.state).under_way -= 1;
    }
}

impl Bundles {
    pub(super) fn new() -> Arc<Bundles> {
        Arc::new(Bundles {
            state: Mutex::default(),
            #[cfg(test)]
            always: std::sync::atomic::AtomicBool::new(false),
        })
    }

    #[cfg(test)]
    pub(super) fn always(&self) {
        self.always.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    fn is_worth_it(&self, under_way: usize) -> bool {
        #[cfg(test)]
        if self.always.load(std::sync::atomic::Ordering::Relaxed) {
            return true;
        }
        under_way >= FEW
    }

    /// A verb that goes alone.
    pub(super) fn alone(&self) -> OnItsWay<'_> {
        locked(&self.state).under_way += 1;
        OnItsWay(self)
    }

    /// Has a verb go along with others, if there are any, and there is a reason: a claim that joins, or an id that leaves.
    ///
    /// # Cancel safety
    /// Dropped before others have been gathered it is not sent. Later it may be done.
    pub(super) async fn go_along(
        self: &Arc<Bundles>,
        live: &Arc<Live>,
        why: Why,
        root: impl FnOnce() -> String,
        what: impl FnOnce() -> String,
    ) -> Along {
        let (answer, answered) = oneshot::channel();
        let (on_its_way, first) = {
            let mut state = locked(&self.state);
            let first = match &state.gathering {
                Some(one) if Arc::ptr_eq(one, live) && why != Why::NoReason => false,
                None if why == Why::Quiet && self.is_worth_it(state.under_way) => true,
                _ => return Along::Alone,
            };
            if first {
                state.gathering = Some(live.clone());
            }
            state.gathered.push(Item { root: root(), what: what(), answer });
            state.under_way += 1;
            (OnItsWay(self), first)
        };
        if first {
            live.home.spawn(send_all(self.clone(), live.clone()));
        }
        let unanswered = Unanswered(live);
        let answer = answered.await;
        std::mem::forget(unanswered);
        drop(on_its_way);
        answer.unwrap_or(Along::Alone)
    }

    /// Those that are to be sent next; `None` when there are no more.
    fn next(&self) -> Option<Vec<Item>> {
        let mut state = locked(&self.state);
        let most = state.gathered.len().min(MOST);
        if most == 0 {
            state.gathering = None;
            return None;
        }
        let rest = state.gathered.split_off(most);
        Some(std::mem::replace(&mut state.gathered, rest))
    }
}

/// Sends what has been gathered by the time that everybody had a turn who could run, and again, until nothing more comes.
async fn send_all(bundles: Arc<Bundles>, live: Arc<Live>) {
    loop {
        tokio::task::yield_now().await;
        let Some(mut items) = bundles.next() else { return };
        // Whoever went away meanwhile has asked for nothing.
        items.retain(|item| !item.answer.is_closed());
        if items.is_empty() {
            continue;
        }
        let mut sent = Box::pin(send(live.clone(), items));
        // It is in the connection's queue when it was polled once. Only then the next ones may come.
        let done = poll_fn(|context| Poll::Ready(sent.as_mut().poll(context).is_ready())).await;
        if !done {
            tokio::spawn(sent);
        }
    }
}

async fn send(live: Arc<Live>, items: Vec<Item>) {
    let length: usize = items.iter().map(|item| item.root.len() + item.what.len()).sum();
    let mut cmd = Cmd::with_capacity(2 * items.len() + 4, length + 64);
    cmd.arg("EVALSHA").arg(live.loaded().sha(Script::Bundle)).arg(items.len());
    for item in &items {
        cmd.arg(&item.root);
    }
    for item in &items {
        cmd.arg(&item.what);
    }
    live.tell_time(&mut cmd);
    let Ok(answer) = tokio::time::timeout(GIVEN_UP, live.send(&cmd, false)).await else { return };
    tell(items, answer);
}

fn tell(items: Vec<Item>, answer: RedisResult<Value>) {
    match answer {
        Ok(Value::Array(answers)) if answers.len() == items.len() => {
            for (item, answer) in items.into_iter().zip(answers) {
                let along = match answer {
                    Value::Int(number) => u64::try_from(number).map_or(Along::Alone, Along::Done),
                    _ => Along::NotSoSimple,
                };
                let _ = item.answer.send(along);
            }
        }
        // They are loaded again by who goes alone, and nonsense is called so there.
        Ok(_) => {}
        Err(error) if is_unknown_script(&error) => {}
        Err(error) => items.into_iter().for_each(|item| drop(item.answer.send(Along::Failed(error.clone())))),
    }
}

impl fmt::Debug for Bundles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundles").field("under_way", &locked(&self.state).under_way).finish_non_exhaustive()
    }
}
