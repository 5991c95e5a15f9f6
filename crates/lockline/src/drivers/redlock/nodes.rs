//! The connections to all nodes, and one question to all of them at once.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Sleep;

use super::super::redis::RedisConfig;
use super::super::redis::connection::Connection;
use super::config::RedlockConfig;
use super::tally::majority;
use crate::driver::{Bells, Fencing, Verb};
use crate::error::{Error, ErrorKind, Result};

/// How long the rest of the nodes is waited for when a majority is connected: a dead one costs no more.
const STRAGGLERS: Duration = Duration::from_millis(100);
/// The pause before a node that could not be reached at first is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// How long nodes are waited for that did not answer in time the last time, when a majority has answered.
const GRACE: Duration = Duration::from_millis(10);

/// All nodes.
pub(super) struct Nodes {
    all: Vec<Arc<Node>>,
    /// The tasks that connect; a node that is down when the client starts is connected later.
    connecting: Vec<AbortHandle>,
}

struct Node {
    config: RedisConfig,
    link: RwLock<Option<Arc<Connection>>>,
    /// It did not answer in time the last time it was waited for.
    slow: AtomicBool,
}

impl Nodes {
    /// Connects to a majority at least; the others go on in the background. `bells` makes the board of each node.
    pub(super) async fn open(config: &RedlockConfig, bells: impl Fn(usize) -> Bells) -> Result<Nodes> {
        config.check()?;
        let node = |config: &RedisConfig| {
            let (link, slow) = (RwLock::default(), AtomicBool::new(false));
            Arc::new(Node { config: config.clone(), link, slow })
        };
        let all: Vec<_> = config.nodes.iter().map(node).collect();
        let (reports, mut reported) = mpsc::unbounded_channel();
        let connect = |(index, node): (usize, &Arc<Node>)| {
            tokio::spawn(connect(node.clone(), bells(index), reports.clone())).abort_handle()
        };
        let connecting = all.iter().enumerate().map(connect).collect();
        drop(reports);
        let nodes = Nodes { all, connecting };
        let (needed, mut connected, mut failed) = (majority(nodes.len()), 0, 0);
        let mut rest = None;
        while connected + failed < nodes.len() {
            let report = match rest {
                None => reported.recv().await,
                Some(until) => tokio::time::timeout_at(until, reported.recv()).await.unwrap_or(None),
            };
            match report {
                None => break,
                Some(Ok(())) => connected += 1,
                Some(Err(error)) if error.kind().is_transient() => {
                    failed += 1;
                    if failed > nodes.len() - needed {
                        let message = format!("{failed} of {} nodes cannot be reached", nodes.len());
                        return Err(Error::new(ErrorKind::Unavailable, "connect", message)
                            .hint("a majority of the nodes must run; check the addresses and the network")
                            .caused_by(error)
                            .at(&config.address().into()));
                    }
                }
                // A wrong password, or a server that must not be trusted: waiting does not help.
                Some(Err(error)) => return Err(error),
            }
            if connected >= needed && rest.is_none() {
                rest = Some(tokio::time::Instant::now() + STRAGGLERS);
            }
        }
        Ok(nodes)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether every node that is connected keeps its data over a restart; not if one is missing.
    pub(super) fn all_keep_their_data(&self) -> bool {
        let keeps = |connection: Arc<Connection>| connection.guarantees.fencing == Fencing::Always;
        self.all.iter().all(|node| node.connection().is_some_and(keeps))
    }

    /// Asks all nodes the same, in parallel. Each request is sent when the round is first polled, in one order for all
    /// callers, so that what is asked later comes later at every node.
    pub(super) fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        within: Duration,
        request: impl Fn(Arc<Connection>) -> Verb<'static, T>,
    ) -> Round<T> {
        let ask = |(index, node): (usize, &Arc<Node>)| match node.connection() {
            Some(connection) => (index, request(connection)),
            None => (index, Box::pin(std::future::ready(Err(not_connected(node)))) as Verb<'static, T>),
        };
        Round {
            pending: self.all.iter().enumerate().map(ask).collect(),
            ready: VecDeque::new(),
            answers: 0,
            nodes: self.clone(),
            over: Box::pin(tokio::time::sleep(within)),
            grace: None,
        }
    }
}

impl Node {
    fn connection(&self) -> Option<Arc<Connection>> {
        self.link.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn not_connected(node: &Node) -> Error {
    Error::new(ErrorKind::Unavailable, "ask", "the node cannot be reached").at(&node.config.address().into())
}

/// Connects to one node, for as long as it takes, and reports the first outcome. A connection mends itself afterwards.
async fn connect(node: Arc<Node>, bells: Bells, first: mpsc::UnboundedSender<Result<()>>) {
    loop {
        match Connection::open(node.config.clone(), bells.clone()).await {
            Ok(connection) => {
                *node.link.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(connection));
                // Nobody listens if it took long: then a majority was faster.
                let _ = first.send(Ok(()));
                bells.look_at_all();
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "a node cannot be reached; it is tried again");
                let _ = first.send(Err(error));
            }
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.connecting.iter().for_each(AbortHandle::abort);
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|node| node.config.address())).finish()
    }
}

/// One question to all nodes, and their answers as they come.
pub(super) struct Round<T> {
    pending: Vec<(usize, Verb<'static, T>)>,
    ready: VecDeque<(usize, Result<T>)>,
    /// How many have answered.
    answers: usize,
    nodes: Arc<Nodes>,
    over: Pin<Box<Sleep>>,
    grace: Option<Pin<Box<Sleep>>>,
}

impl<T: Send + 'static> Round<T> {
    /// The next answer; `None` when all have answered, or nobody is waited for any longer.
    pub(super) async fn next(&mut self) -> Option<(usize, Result<T>)> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Polls all requests, also when one is ready: each is sent when it is first polled.
    pub(super) fn send(&mut self, context: &mut Context<'_>) {
        let mut at = 0;
        while let Some((_, request)) = self.pending.get_mut(at) {
            match request.as_mut().poll(context) {
                Poll::Pending => at += 1,
                Poll::Ready(answer) => {
                    let (node, _) = self.pending.swap_remove(at);
                    self.nodes.all[node].slow.store(false, Ordering::Relaxed);
                    self.answers += usize::from(answer.is_ok());
                    self.ready.push_back((node, answer));
                }
            }
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Result<T>)>> {
        self.send(context);
        if let Some(answer) = self.ready.pop_front() {
            return Poll::Ready(Some(answer));
        }
        if self.pending.is_empty() {
            return Poll::Ready(None);
        }
        if self.over.as_mut().poll(context).is_ready() {
            for (node, _) in &self.pending {
                self.nodes.all[*node].slow.store(true, Ordering::Relaxed);
            }
            return Poll::Ready(None);
        }
        // Only those who are not needed: on a busy day all of them may be slow.
        let needed = self.answers < majority(self.nodes.len());
        if !needed && self.pending.iter().all(|(node, _)| self.nodes.all[*node].slow.load(Ordering::Relaxed))
        {
            let grace = self.grace.get_or_insert_with(|| Box::pin(tokio::time::sleep(GRACE)));
            return grace.as_mut().poll(context).map(|()| None);
        }
        Poll::Pending
    }

    /// Lets the rest come in the background, each given to `late`: what was decided without them may still have to be known,
    /// and a restarted node must be given its scripts.
    pub(super) fn finish_later(mut self, mut late: impl FnMut(usize, Result<T>) + Send + 'static) {
        if self.pending.is_empty() && self.ready.is_empty() {
            return;
        }
        self.grace = None;
        tokio::spawn(async move {
            while let Some((node, answer)) = self.next().await {
                late(node, answer);
            }
        });
    }
}
