//! Plain commands that many tasks send at the same moment go in one piece: a server that answers each at once, before the next one
//! comes, spends its time, and ours, on reading and writing.
//!
//! Nobody waits for company: a command goes by itself where few are under way, and otherwise with those whose tasks were ready to
//! run when it was.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::oneshot;

use super::live::{Live, Unanswered};
use crate::sync::locked;

/// With fewer under way each goes by itself: that is faster for it.
const FEW: usize = 4;
/// So many go without waiting for more, and fewer if they are half of all: the server works on those while the others come together.
const FULL: usize = 16;
/// Longer than anybody waits for an answer.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// What is to be sent over one connection.
#[derive(Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Commands that are not answered yet.
    under_way: usize,
    /// Somebody will send what lies here.
    is_seen_to: bool,
    items: Vec<Item>,
    next: u64,
}

struct Item {
    number: u64,
    cmd: Cmd,
    answer: oneshot::Sender<RedisResult<Value>>,
}

/// Counts one command as under way for as long as it lives; if it still lies there then, it is not sent any more.
struct UnderWay<'a> {
    outbox: &'a Outbox,
    item: Option<u64>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = locked(&self.outbox.state);
        state.under_way -= 1;
        if let Some(number) = self.item {
            state.items.retain(|item| item.number != number);
        }
    }
}

/// How a command goes.
enum Way<'a> {
    Alone(Cmd, UnderWay<'a>),
    /// With others.
    Along(oneshot::Receiver<RedisResult<Value>>, UnderWay<'a>, Company),
}

/// What whoever puts a command beside others is to do about them.
enum Company {
    /// It is the first: somebody is to see to them.
    First,
    /// They are many.
    Full,
    Some,
}

impl Outbox {
    fn put(&self, cmd: Cmd) -> Way<'_> {
        let mut state = locked(&self.state);
        state.under_way += 1;
        if state.under_way <= FEW && !state.is_seen_to {
            return Way::Alone(cmd, UnderWay { outbox: self, item: None });
        }
        let number = state.next;
        state.next += 1;
        let (answer, answered) = oneshot::channel();
        state.items.push(Item { number, cmd, answer });
        let company = match std::mem::replace(&mut state.is_seen_to, true) {
            false => Company::First,
            true if state.items.len() >= (state.under_way / 2).clamp(FEW, FULL) => Company::Full,
            true => Company::Some,
        };
        Way::Along(answered, UnderWay { outbox: self, item: Some(number) }, company)
    }
}

/// Sends a command, perhaps with others.
///
/// # Cancel safety
/// When the future was dropped, the command is on its way, before all that is sent from then on, or will never be.
pub(super) async fn send(live: &Arc<Live>, cmd: Cmd) -> RedisResult<Value> {
    let (answered, mut under_way, company) = match live.outbox.put(cmd) {
        // In a box: those who go along need not make room for it.
        Way::Alone(cmd, _under_way) => return Box::pin(live.send(&cmd)).await,
        Way::Along(answered, under_way, company) => (answered, under_way, company),
    };
    match company {
        Company::First => drop(live.home.spawn(see_to(live.clone()))),
        Company::Full => drop(send_what_lies_there(live).await),
        Company::Some => {}
    }
    let unanswered = Unanswered(live);
    let answer = answered.await;
    std::mem::forget(unanswered);
    under_way.item = None;
    live.look_at(answer.unwrap_or_else(|_| Err((redis::ErrorKind::Io, "the connection is gone").into())))
}

/// Sends what has come together by the time that everybody had a turn who could run, and again, until nothing more comes.
async fn see_to(live: Arc<Live>) {
    loop {
        tokio::task::yield_now().await;
        if !send_what_lies_there(&live).await {
            let mut state = locked(&live.outbox.state);
            if state.items.is_empty() {
                state.is_seen_to = false;
                return;
            }
        }
    }
}

/// Whether anything did. Does not wait for the answers.
async fn send_what_lies_there(live: &Arc<Live>) -> bool {
    let sent = poll_fn(|context| {
        // Nobody takes one of them back while they go into the connection's queue, which is where a first poll puts them.
        let mut state = locked(&live.outbox.state);
        if state.items.is_empty() {
            return Poll::Ready(None);
        }
        // By whoever comes last, in its own runtime, which may end sooner than the connection's, and perhaps at the end of its turn:
        // a first poll that puts nothing into the queue would let a leave overtake the join that it is for.
        let _home = live.home.enter();
        let all = send_all(live.clone(), std::mem::take(&mut state.items));
        let mut sent = Box::pin(tokio::task::unconstrained(all));
        let is_done = sent.as_mut().poll(context).is_ready();
        Poll::Ready(Some((!is_done).then_some(sent)))
    });
    match sent.await {
        None => return false,
        Some(Some(sent)) => drop(live.home.spawn(sent)),
        Some(None) => {}
    }
    true
}

async fn send_all(live: Arc<Live>, items: Vec<Item>) {
    let mut all = Pipeline::with_capacity(items.len());
    let mut answers = Vec::with_capacity(items.len());
    for item in items {
        all.add_command(item.cmd);
        answers.push(item.answer);
    }
    let sent = live.send_several(&all, answers.len());
    // Nobody waits for longer. Whoever waits for ever keeps a connection that was given up, and would hear its bells.
    let Ok(answered) = tokio::time::timeout(GIVEN_UP, sent).await else { return };
    match answered {
        Ok(values) => {
            for (answer, value) in answers.into_iter().zip(values) {
                let _ = answer.send(Ok(value));
            }
        }
        Err(error) => answers.into_iter().for_each(|answer| drop(answer.send(Err(error.clone())))),
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("under_way", &locked(&self.state).under_way).finish_non_exhaustive()
    }
}
