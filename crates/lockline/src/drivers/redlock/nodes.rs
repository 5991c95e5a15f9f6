//! The connections to all nodes, and one question to all of them at once.

use std::fmt;
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::super::foreign::Store;
use super::super::redis::RedisConfig;
use super::super::redis::connection::Connection;
use super::super::redis::layouts::Server;
use super::config::RedlockConfig;
use super::round::Round;
use super::tally::majority;
use crate::driver::{Bells, Fencing, Verb};
use crate::error::{Error, ErrorKind, Result};
use crate::line::Shut;
use crate::pause;

/// How long the rest of the nodes is waited for when a majority is connected: a dead one costs no more.
const STRAGGLERS: Duration = Duration::from_millis(100);
/// The pause before a node that could not be reached at first is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// How long one node is waited for at most: far below the lease, and below the deadline that core puts around the verb.
pub(super) fn node_deadline(lease: Duration) -> Duration {
    (lease / 12).clamp(Duration::from_millis(8), Duration::from_secs(1))
}

/// How long one node is waited for when people ask.
pub(super) const PEOPLE_WAIT: Duration = Duration::from_secs(3);

/// A connection to one node.
pub(super) trait Way: Send + Sync + Sized + 'static {
    fn open(config: RedisConfig, bells: Bells) -> impl Future<Output = Result<Self>> + Send;

    /// Whether the node keeps its data over a restart.
    fn keeps_its_data(&self) -> bool;
}

impl Way for Connection {
    fn open(config: RedisConfig, bells: Bells) -> impl Future<Output = Result<Self>> + Send {
        Connection::open(config, bells)
    }

    fn keeps_its_data(&self) -> bool {
        self.guarantees().fencing == Fencing::Always
    }
}

impl Way for Server {
    /// Nobody rings on locks of other clients, and nothing is pushed.
    async fn open(config: RedisConfig, _: Bells) -> Result<Server> {
        Server::open(&config, |_| {}).await
    }

    fn keeps_its_data(&self) -> bool {
        Store::keeps_its_data(self)
    }
}

/// All nodes.
pub(super) struct Nodes<W = Connection> {
    address: Arc<str>,
    all: Vec<Arc<Node<W>>>,
    /// The tasks that connect; a node that is down when the client starts is connected later.
    connecting: Vec<AbortHandle>,
}

struct Node<W> {
    config: RedisConfig,
    link: RwLock<Option<Arc<W>>>,
    /// It did not answer in time the last time it was waited for.
    slow: Arc<AtomicBool>,
}

impl<W: Way> Nodes<W> {
    /// Connects to a majority at least; the others go on in the background. `bells` makes the board of each node.
    pub(super) async fn open(config: &RedlockConfig, bells: impl Fn(usize) -> Bells) -> Result<Nodes<W>> {
        config.check()?;
        let node = |config: &RedisConfig| {
            let (link, slow) = (RwLock::default(), Arc::default());
            Arc::new(Node { config: config.clone(), link, slow })
        };
        let all: Vec<_> = config.nodes.iter().map(node).collect();
        let (reports, mut reported) = mpsc::unbounded_channel();
        let connect = |(index, node): (usize, &Arc<Node<W>>)| {
            tokio::spawn(connect(node.clone(), bells(index), reports.clone())).abort_handle()
        };
        let connecting = all.iter().enumerate().map(connect).collect();
        drop(reports);
        let nodes = Nodes { address: config.address().into(), all, connecting };
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
                            .at(&nodes.address));
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

    /// All of them, as people see them: no secret, no user.
    pub(super) fn address(&self) -> &Arc<str> {
        &self.address
    }

    pub(super) fn majority(&self) -> usize {
        majority(self.len())
    }

    /// Whether every node that is connected keeps its data over a restart; not if one is missing.
    pub(super) fn all_keep_their_data(&self) -> bool {
        self.all.iter().all(|node| node.connection().is_some_and(|way| way.keeps_its_data()))
    }

    /// Asks all nodes the same, in parallel. Each request is sent when the round is first polled, in one order for all
    /// callers, so that what is asked later comes later at every node.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        within: Duration,
        request: impl Fn(Arc<W>) -> Verb<'static, T>,
    ) -> Round<T> {
        let ask = |(index, node): (usize, &Arc<Node<W>>)| match node.connection() {
            Some(connection) => (index, request(connection)),
            None => (index, Box::pin(std::future::ready(Err(not_connected(node)))) as Verb<'static, T>),
        };
        let asked = self.all.iter().enumerate().map(ask).collect();
        Round::new(asked, self.all.iter().map(|node| node.slow.clone()).collect(), within)
    }

    /// Everybody's answer, but for the dead; a majority at least.
    pub(super) async fn everybody<T: Send + 'static>(
        &self,
        operation: &'static str,
        mut round: Round<T>,
    ) -> Result<Vec<T>> {
        let (mut answers, mut errors) = (Vec::new(), Vec::new());
        while let Some((_, answer)) = round.next().await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => errors.push(error),
            }
        }
        if answers.len() < self.majority() { Err(self.no_quorum(operation, errors)) } else { Ok(answers) }
    }

    /// Too few nodes answered. What those did that answered, or did not, is not known here.
    pub(super) fn no_quorum(&self, operation: &'static str, mut errors: Vec<Error>) -> Error {
        // What no waiting helps against is what people must hear of.
        if let Some(index) = errors.iter().position(|error| !error.kind().is_transient()) {
            return errors.swap_remove(index);
        }
        if errors.len() == self.len() && errors.iter().all(|error| error.kind() == ErrorKind::Full) {
            return errors.swap_remove(0);
        }
        let nowhere =
            errors.len() == self.len() && errors.iter().all(|error| error.kind() == ErrorKind::Unavailable);
        let kind = if nowhere { ErrorKind::Unavailable } else { ErrorKind::Unknown };
        let message = format!("no majority of the {} nodes answered in time", self.len());
        let error = Error::new(kind, operation, message)
            .hint("a majority of the nodes must run and be reachable; nobody gets a lock meanwhile")
            .at(&self.address);
        match errors.pop() {
            Some(cause) => error.caused_by(cause),
            None => error,
        }
    }
}

impl Nodes {
    /// Whether nobody gets a lock yet, because too few nodes may vote: until a majority may. With too few nodes to be asked at
    /// all, whoever asks is told that.
    pub(super) fn shut(&self) -> Option<Shut> {
        let connected = self.all.iter().filter_map(|node| node.connection());
        let mut all: Vec<Option<Shut>> = connected.map(|node| node.shut(None)).collect();
        all.sort_by_key(|shut| shut.map(|shut| shut.opens_in));
        all.get(self.majority() - 1).copied().flatten()
    }
}

impl<W> Node<W> {
    fn connection(&self) -> Option<Arc<W>> {
        self.link.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn not_connected<W>(node: &Node<W>) -> Error {
    Error::new(ErrorKind::Unavailable, "ask", "the node cannot be reached").at(&node.config.address().into())
}

/// Connects to one node, for as long as it takes, and reports the first outcome. A connection mends itself afterwards.
async fn connect<W: Way>(node: Arc<Node<W>>, bells: Bells, first: mpsc::UnboundedSender<Result<()>>) {
    loop {
        match W::open(node.config.clone(), bells.clone()).await {
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
        tokio::time::sleep(pause::about(TRY_AGAIN)).await;
    }
}

impl<W> Drop for Nodes<W> {
    fn drop(&mut self) {
        self.connecting.iter().for_each(AbortHandle::abort);
    }
}

impl<W> fmt::Debug for Nodes<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|node| node.config.address())).finish()
    }
}
