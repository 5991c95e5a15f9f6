//! Waiting until replicas have what a primary has answered.
//!
//! `WAIT` counts the writes of its own connection, and blocks that connection. So it has one of its own, and before each
//! `WAIT` a small write goes there: whatever the primary had answered before, on any connection, precedes that write in
//! what it sends to its replicas, and a replica that has the write has all of it. Everybody who asks while one `WAIT` is
//! under way shares the next one.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::{mpsc, oneshot};

use super::bell::{CONFIRM_FOR, Confirmed};
use crate::error::{Error, ErrorKind, Result};
use crate::line::Bell;
use crate::name::Name;

/// How long the primary keeps the small write: it has no meaning once it is done.
const KEEP_MS: u64 = 1000;
/// How much longer than it was told to take `WAIT` may take before its connection is given up.
const SLACK: Duration = Duration::from_secs(1);

/// Asks how many replicas have everything that one primary has answered so far.
#[derive(Clone, Debug)]
pub(super) struct Witness {
    pub(super) needed: u32,
    asking: mpsc::UnboundedSender<Question>,
    shown: Arc<str>,
}

#[derive(Debug)]
struct Question {
    patience: Duration,
    answer: oneshot::Sender<u32>,
}

impl Witness {
    /// `key` is written by each question, so it must be one that this server keeps.
    pub(super) fn new(
        connection: MultiplexedConnection,
        key: String,
        needed: u32,
        shown: &Arc<str>,
    ) -> Witness {
        let (asking, asked) = mpsc::unbounded_channel();
        tokio::spawn(answer_all(connection, key, needed, asked));
        Witness { needed, asking, shown: shown.clone() }
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
        if acknowledged >= self.needed {
            return Ok(acknowledged);
        }
        let message = format!("{acknowledged} of {} replicas acknowledged it in time", self.needed);
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
    key: String,
    needed: u32,
    mut asked: mpsc::UnboundedReceiver<Question>,
) {
    while let Some(first) = asked.recv().await {
        let mut questions = vec![first];
        while let Ok(more) = asked.try_recv() {
            questions.push(more);
        }
        let patience = questions.iter().map(|question| question.patience).max().unwrap_or_default();
        let mut both = redis::pipe();
        both.cmd("SET").arg(&key).arg("").arg("PX").arg(KEEP_MS);
        both.cmd("WAIT").arg(needed).arg(patience.as_millis() as u64);
        let answers = connection.send_packed_commands(&both, 0, 2);
        let count = match tokio::time::timeout(patience + SLACK, answers).await {
            Ok(Ok(answers)) => match answers.as_slice() {
                [Value::Okay, Value::Int(count)] => u32::try_from(*count).ok(),
                other => {
                    tracing::debug!(?other, "cannot wait for replicas");
                    None
                }
            },
            Ok(Err(_)) | Err(_) => None,
        };
        let Some(count) = count else { return };
        for question in questions {
            // Nobody waits for an answer that came after the caller's deadline.
            let _ = question.answer.send(count);
        }
    }
}
