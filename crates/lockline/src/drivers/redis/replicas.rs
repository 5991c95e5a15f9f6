//! Waiting until replicas have what a primary has answered.
//!
//! `WAIT` counts the writes of its own connection, and blocks that connection. So it has one of its own, and before each
//! `WAIT` a small write goes there: whatever the primary had answered before, on any connection, precedes that write in
//! what it sends to its replicas, and a replica that has the write has all of it. Everybody who asks while one `WAIT` is
//! under way shares the next one.
//!
//! With each answer the primary is asked which replicas follow it, and now and then when nobody asks: one that came later counts
//! from then on, also when it is gone again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};
use tokio::sync::{mpsc, oneshot};

use super::bell::{CONFIRM_FOR, Confirmed};
use super::config::Replicas;
use super::incarnation::Info;
use super::slots::Kept;
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Bell, ClaimId};
use crate::name::Name;
use crate::pause::about;

/// How long the primary keeps the small write: it has no meaning once it is done.
const KEEP_MS: u64 = 1000;
/// How much longer than it was told to take `WAIT` may take before its connection is given up.
const SLACK: Duration = Duration::from_secs(1);
/// How often replicas are counted when nobody asks.
const COUNT_EVERY: Duration = Duration::from_secs(2);
/// How often another key is tried when the slot of one is being moved, and the pause before.
const OTHER_KEYS: usize = 10;
const OTHER_KEY_PAUSE: Duration = Duration::from_millis(5);

/// What is written before each `WAIT`.
#[derive(Debug)]
pub(super) enum WaitKey {
    One(String),
    /// A key in some slot that a node of a cluster keeps.
    OfNode {
        space: String,
        process: String,
        kept: Arc<Kept>,
    },
}

impl WaitKey {
    /// Another one each time, if there are several.
    fn choose(&self) -> String {
        match self {
            WaitKey::One(key) => key.clone(),
            WaitKey::OfNode { space, process, kept } => {
                format!("{space}:{{{}}}:wait:{process}", kept.any_tag(ClaimId::random().as_u128()))
            }
        }
    }
}

/// Asks how many replicas have everything that one primary has answered so far.
#[derive(Clone, Debug)]
pub(super) struct Witness {
    replicas: Arc<Known>,
    asking: mpsc::UnboundedSender<Question>,
    shown: Arc<str>,
}

/// How many replicas are known, and how many of them must have a lock.
#[derive(Debug)]
struct Known {
    asked: Replicas,
    count: AtomicU32,
}

impl Known {
    fn needed(&self) -> u32 {
        self.asked.needed(self.count.load(Ordering::SeqCst))
    }

    /// Takes over what the primary says.
    fn learn(&self, info: &Value) {
        if let Ok(text) = redis::from_redis_value_ref::<String>(info) {
            self.count.fetch_max(Info::parse(&text).online_replicas(), Ordering::SeqCst);
        }
    }
}

#[derive(Debug)]
struct Question {
    patience: Duration,
    answer: oneshot::Sender<u32>,
}

impl Witness {
    /// `key` is written by each question, so it must be one that this server keeps. `known` replicas it has had already.
    pub(super) fn new(
        connection: MultiplexedConnection,
        key: WaitKey,
        asked: Replicas,
        known: u32,
        shown: &Arc<str>,
    ) -> Witness {
        let (asking, questions) = mpsc::unbounded_channel();
        let replicas = Arc::new(Known { asked, count: AtomicU32::new(known) });
        tokio::spawn(answer_all(connection, key, replicas.clone(), questions));
        Witness { replicas, asking, shown: shown.clone() }
    }

    /// How many replicas its server has had.
    pub(super) fn known(&self) -> u32 {
        self.replicas.count.load(Ordering::SeqCst)
    }

    /// How many replicas have it; fails if they are too few, or if that cannot be told. Takes no longer than a part of
    /// the lease that the answer is for.
    pub(super) async fn confirm(&self, operation: &'static str, lease: Duration) -> Result<u32> {
        // Behind one that is under way it takes twice as long; what has to be left must still be in time.
        let patience = (lease / 18).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let (answer, answered) = oneshot::channel();
        let lost = || {
            Error::new(ErrorKind::Unavailable, operation, "the server that granted it is gone")
                .at(&self.shown)
        };
        self.asking.send(Question { patience, answer }).map_err(|_| lost())?;
        let acknowledged = answered.await.map_err(|_| lost())?;
        let needed = self.replicas.needed();
        if acknowledged >= needed {
            return Ok(acknowledged);
        }
        let message = format!("{acknowledged} of {needed} replicas acknowledged it in time");
        Err(Error::new(ErrorKind::Unavailable, operation, message)
            .hint("see whether the replicas are up and follow the primary; replicas= says how many must have a lock")
            .at(&self.shown))
    }

    /// How a bell from the same server is confirmed: what it tells of happened before it rang.
    pub(super) fn confirm_bell(self) -> impl FnOnce(Name, Bell) -> Confirmed {
        move |_name, _bell| Box::pin(async move { self.confirm("bell", CONFIRM_FOR).await })
    }

    /// Whether nobody answers any more.
    pub(super) fn is_gone(&self) -> bool {
        self.asking.is_closed()
    }
}

/// Until the connection breaks, or nobody can ask any more. Whoever waits then is told by the closed channel.
async fn answer_all(
    mut connection: MultiplexedConnection,
    key: WaitKey,
    replicas: Arc<Known>,
    mut asked: mpsc::UnboundedReceiver<Question>,
) {
    let mut written = key.choose();
    loop {
        let first = match tokio::time::timeout(COUNT_EVERY, asked.recv()).await {
            Ok(Some(first)) => first,
            Ok(None) => return,
            Err(_) => {
                let mut count = redis::pipe();
                count.cmd("INFO").arg("replication");
                match send(&mut connection, &count, 1, SLACK).await.as_deref() {
                    Some([info]) => replicas.learn(info),
                    _ => return,
                }
                continue;
            }
        };
        let mut questions = vec![first];
        while let Ok(more) = asked.try_recv() {
            questions.push(more);
        }
        let patience = questions.iter().map(|question| question.patience).max().unwrap_or_default();
        let Some(count) = wait(&mut connection, &key, &mut written, &replicas, patience).await else {
            return;
        };
        for question in questions {
            // Nobody waits for an answer that came after the caller's deadline.
            let _ = question.answer.send(count);
        }
    }
}

/// How many replicas have all that came before; `None` if that cannot be told.
async fn wait(
    connection: &mut MultiplexedConnection,
    key: &WaitKey,
    written: &mut String,
    replicas: &Known,
    patience: Duration,
) -> Option<u32> {
    for _ in 0..OTHER_KEYS {
        let needed = replicas.needed();
        let mut all = redis::pipe();
        all.cmd("SET").arg(&*written).arg("").arg("PX").arg(KEEP_MS);
        all.cmd("WAIT").arg(needed).arg(patience.as_millis() as u64);
        all.cmd("INFO").arg("replication");
        match send(connection, &all, 3, patience + SLACK).await?.as_slice() {
            [Value::Okay, Value::Int(count), info] => {
                replicas.learn(info);
                let count = u32::try_from(*count).ok()?;
                // One more replica has come: who waited for fewer did not wait for that one.
                if count < needed || needed == replicas.needed() {
                    return Some(count);
                }
            }
            // The slot of the key is being moved, or was: nothing was written, so the answer to `WAIT` says nothing.
            [Value::ServerError(error), ..] if matches!(error.code(), "MOVED" | "ASK" | "TRYAGAIN") => {
                tokio::time::sleep(about(OTHER_KEY_PAUSE)).await;
                *written = key.choose();
            }
            other => {
                tracing::debug!(?other, "cannot wait for replicas");
                return None;
            }
        }
    }
    None
}

async fn send(
    connection: &mut MultiplexedConnection,
    all: &Pipeline,
    count: usize,
    within: Duration,
) -> Option<Vec<Value>> {
    tokio::time::timeout(within, connection.send_packed_commands(all, 0, count)).await.ok()?.ok()
}
