//! The nodes of a cluster: which of them keeps a lock, and how to hear the bells of all.
//!
//! A line is up to four keys, and a slot that is moved takes its keys along one by one. So **a script runs only at a node whose
//! slot is neither leaving nor arriving**: there all keys of the line are, or none. Two rules see to that.
//! - Every call names, behind its lines, a key that is never there. A node whose slot is leaving runs nothing that names a key
//!   which it does not have: it answers `ASK`, or `TRYAGAIN` if it has others of them.
//! - `ASK` is never followed. Where the slot is about to arrive, a line whose keys are still on their way would look free.
//!
//! Whoever asks meanwhile asks again until the move is over, which takes milliseconds; a place lives on in its keys, and its
//! lease is counted from its last renewal, wherever they are.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::task::Poll;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, PushInfo, PushKind, RedisResult, Value};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::address::Address;
use super::answers;
use super::dial::{self, in_time};
use super::error::explain;
use super::link::Link;
use super::live::{Context, Goal, Live};
use super::map::{self, Shard};
use super::scripts::Script;
use super::slots::{Kept, SLOTS, slot_of};
use super::{bell, verbs};
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Bell, Shut};
use crate::name::Name;
use crate::pause;

/// How often the map is looked at when all is well, and while some node cannot be reached.
const LOOK_EVERY: (Duration, Duration) = (Duration::from_secs(15), Duration::from_millis(250));
/// How often one call follows a node that sends it to another, or waits for one that is not there.
const HOPS: u32 = 8;
const HOP_PAUSE: Duration = Duration::from_millis(10);
/// How long one call waits for a slot on its way, and how long between two looks. Then its caller is told, and asks again.
const MOVED_WITHIN: Duration = Duration::from_secs(1);
const MOVE_PAUSE: Duration = Duration::from_millis(5);
/// How long it may take to answer.
const PING_WITHIN: Duration = Duration::from_secs(1);
/// How often the node that brings the bells is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(2);

/// A cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    shared: Arc<Shared>,
    tasks: [AbortHandle; 2],
}

#[derive(Debug)]
struct Shared {
    context: Arc<Context>,
    seeds: Vec<Address>,
    map: RwLock<Arc<Map>>,
    /// Somebody found the map wrong.
    wrong: Notify,
}

/// Which node keeps which slots.
#[derive(Debug)]
struct Map {
    nodes: Vec<Node>,
    /// For each slot the number of its node.
    slots: Vec<Option<u16>>,
}

#[derive(Clone, Debug)]
struct Node {
    shard: Shard,
    /// The slots of the shard, for the link.
    kept: Arc<Kept>,
    link: Arc<Link>,
}

impl Cluster {
    pub(super) async fn open(context: &Arc<Context>, seeds: &[Address]) -> Result<Cluster> {
        let shared = Arc::new(Shared {
            context: context.clone(),
            seeds: seeds.to_vec(),
            map: RwLock::new(Arc::new(Map { nodes: Vec::new(), slots: Vec::new() })),
            wrong: Notify::new(),
        });
        let shards = map::ask(context, shared.known()).await?;
        let mut nodes = Vec::new();
        for shard in shards {
            let (goal, kept) = goal(&shard, 0);
            let link = match Link::open(context, goal.clone()).await {
                Ok(link) => link,
                // A part of the cluster may be down; what is wrong for good is told.
                Err(error) if error.kind().is_transient() => Link::start(context, goal),
                Err(error) => return Err(error),
            };
            nodes.push(Node { shard, kept, link: Arc::new(link) });
        }
        if !nodes.iter().any(|node| node.link.is_up()) {
            return Err(shared.unavailable("connect", "no primary of the cluster can be reached"));
        }
        shared.use_map(nodes);
        let (first, heard) = oneshot::channel();
        let tasks = [
            tokio::spawn(keep_map(shared.clone())).abort_handle(),
            tokio::spawn(listen(shared.clone(), Some(first))).abort_handle(),
        ];
        let cluster = Cluster { shared, tasks };
        in_time(&context.address, async { heard.await.unwrap_or(Ok(())) }).await?;
        Ok(cluster)
    }

    /// Runs a script where the key is. See [`Link::run`].
    pub(super) async fn run(
        &self,
        operation: &'static str,
        script: Script,
        key: &str,
        fill: &(impl Fn(&mut Cmd) + Sync),
    ) -> Result<(RedisResult<Value>, Arc<Live>)> {
        self.shared.run(operation, script, key, fill).await
    }

    /// Whether nobody gets the lock with this key yet.
    pub(super) fn shut(&self, key: &str) -> Option<Shut> {
        self.shared.keeper_of(slot_of(key.as_bytes()))?.shut()
    }

    /// Whether nobody gets any lock yet: until the first of its primaries opens.
    pub(super) fn shut_everywhere(&self) -> Option<Shut> {
        let all = self.shared.map().nodes.iter().map(|node| node.link.shut()).collect::<Option<Vec<_>>>()?;
        all.into_iter().min_by_key(|shut| shut.opens_in)
    }

    /// The connections to all primaries.
    pub(super) async fn primaries(&self, operation: &'static str) -> Result<Vec<Arc<Live>>> {
        let mut all = Vec::new();
        for node in &self.shared.map().nodes {
            all.push(node.link.live(operation).await?);
        }
        Ok(all)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Shared {
    fn map(&self) -> Arc<Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn unavailable(&self, operation: &'static str, message: &'static str) -> Error {
        Error::new(ErrorKind::Unavailable, operation, message).at(&self.context.address)
    }

    fn use_map(&self, nodes: Vec<Node>) {
        let mut slots = vec![None; usize::from(SLOTS)];
        for (number, node) in nodes.iter().enumerate() {
            for &(first, last) in &node.shard.ranges {
                slots[usize::from(first)..=usize::from(last)].fill(u16::try_from(number).ok());
            }
        }
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Map { nodes, slots });
    }

    /// Asks for the map, and takes over what has changed. Connections to nodes that stay are kept, whichever slots they keep:
    /// made anew with every slot that moves, they would carry no renewal while many do.
    async fn refresh(&self) -> Result<()> {
        let shards = map::ask(&self.context, self.known()).await?;
        let before = self.map();
        let is_still_there = |node: &Node| shards.iter().any(|shard| shard.server == node.shard.server);
        // Whoever takes over from another has to have as many replicas as that one had.
        let had = |shard: &Shard| {
            let gone = before.nodes.iter().filter(|node| !is_still_there(node) && node.shard.overlaps(shard));
            gone.map(|node| node.shard.replicas.len()).max().unwrap_or(0)
        };
        let nodes = shards.iter().map(|shard| {
            let is_same = |node: &&Node| (&node.shard.server, &node.shard.id) == (&shard.server, &shard.id);
            if let Some(node) = before.nodes.iter().find(is_same) {
                if node.kept.set(&shard.ranges) {
                    node.link.write_record();
                }
                return Node { shard: shard.clone(), ..node.clone() };
            }
            let (goal, kept) = goal(shard, had(shard));
            Node { shard: shard.clone(), kept, link: Arc::new(Link::start(&self.context, goal)) }
        });
        self.use_map(nodes.collect());
        Ok(())
    }

    /// Everybody who may know the map.
    fn known(&self) -> Vec<Address> {
        let mut known = Vec::new();
        let map = self.map();
        let replicas = map.nodes.iter().flat_map(|node| &node.shard.replicas);
        for server in map.nodes.iter().map(|node| &node.shard.server).chain(replicas).chain(&self.seeds) {
            if !known.contains(server) {
                known.push(server.clone());
            }
        }
        known
    }

    async fn run(
        &self,
        operation: &'static str,
        script: Script,
        key: &str,
        fill: &(impl Fn(&mut Cmd) + Sync),
    ) -> Result<(RedisResult<Value>, Arc<Live>)> {
        let slot = slot_of(key.as_bytes());
        let mut sent_to: Option<Address> = None;
        let (mut hop, mut moving_since) = (0, None);
        loop {
            let link = match &sent_to {
                Some(server) => self.link_to(server),
                None => self.keeper_of(slot),
            };
            let ran = match link {
                Some(link) => link.run(operation, script, fill).await,
                None => Err(self.unavailable(operation, "no node of the cluster keeps the lock's slot")),
            };
            let next = match &ran {
                Ok((Err(e), _)) => match e.code() {
                    // The slot is leaving this node: see above.
                    Some("ASK" | "TRYAGAIN") => {
                        let since = *moving_since.get_or_insert_with(tokio::time::Instant::now);
                        if since.elapsed() >= MOVED_WITHIN {
                            return ran;
                        }
                        tokio::time::sleep(pause::about(MOVE_PAUSE)).await;
                        continue;
                    }
                    Some("MOVED") => redirected(e),
                    Some("CLUSTERDOWN" | "READONLY") => None,
                    _ => return ran,
                },
                Ok(_) => return ran,
                // Its node was taken off the map while we waited for it.
                Err(e) if e.kind() == ErrorKind::Unavailable => None,
                Err(_) => return ran,
            };
            hop += 1;
            if hop == HOPS {
                return ran;
            }
            self.wrong.notify_one();
            // Nodes learn of a move one after the other, and may send us to and fro for a moment.
            if next.is_none() || hop > 1 {
                tokio::time::sleep(pause::about(HOP_PAUSE * hop)).await;
            }
            sent_to = next;
        }
    }

    fn keeper_of(&self, slot: u16) -> Option<Arc<Link>> {
        let map = self.map();
        let number = map.slots.get(usize::from(slot)).copied().flatten()?;
        Some(map.nodes.get(usize::from(number))?.link.clone())
    }

    /// The link to a node that another one named; `None` until the map knows it, too.
    fn link_to(&self, server: &Address) -> Option<Arc<Link>> {
        let map = self.map();
        map.nodes.iter().find(|node| node.shard.server == *server).map(|node| node.link.clone())
    }

    /// A bell tells what a node did that may have failed since. What its successor has, and its replicas, is what counts.
    async fn confirm(&self, name: &Name, bell: &Bell) -> Result<u32> {
        let key = verbs::line_key(&self.context.config.space, name.as_str());
        let fill = |cmd: &mut Cmd| add_keys(cmd, [&key]);
        let (answer, live) = self.run("bell", Script::View, &key, &fill).await?;
        let answer = answer.map_err(|e| explain("bell", &self.context.address, &e, true))?;
        match &live.witness {
            Some(witness) if answers::is_in(&answer, bell.ticket) => {
                witness.confirm("bell", bell::CONFIRM_FOR).await
            }
            _ => Err(self.unavailable("bell", "the place is not there")),
        }
    }
}

/// The way to the primary of a shard that has had so many replicas, and its slots.
fn goal(shard: &Shard, had: usize) -> (Goal, Arc<Kept>) {
    let replicas = u32::try_from(shard.replicas.len().max(had)).unwrap_or(u32::MAX);
    let kept = Arc::new(Kept::new(shard.ranges.clone()));
    let (server, id) = (shard.server.clone(), shard.id.clone());
    (Goal::Node { server, id, kept: kept.clone(), replicas }, kept)
}

/// Adds the keys of lines in one slot, and the one that is never there.
pub(super) fn add_keys<'a>(
    cmd: &mut Cmd,
    lines: impl IntoIterator<Item = &'a String, IntoIter: ExactSizeIterator>,
) {
    let mut lines = lines.into_iter().peekable();
    let never = lines.peek().map(|line| format!("{line}:m"));
    cmd.arg(lines.len() + 1);
    for line in lines {
        cmd.arg(line);
    }
    cmd.arg(never);
}

fn redirected(error: &redis::RedisError) -> Option<Address> {
    let (to, _slot) = error.redirect_node()?;
    let (host, port) = to.rsplit_once(':')?;
    Some(Address::Tcp(host.to_owned(), port.parse().ok()?))
}

/// Keeps the map right, for as long as the cluster is used.
async fn keep_map(shared: Arc<Shared>) {
    let mut looked = tokio::time::Instant::now();
    loop {
        let found_wrong = tokio::time::timeout(LOOK_EVERY.1, shared.wrong.notified()).await.is_ok();
        let is_well = shared.map().nodes.iter().all(|node| node.link.is_up());
        if found_wrong || !is_well || looked.elapsed() >= LOOK_EVERY.0 {
            if let Err(error) = shared.refresh().await {
                tracing::debug!(%error, "the map of the cluster cannot be read");
            }
            looked = tokio::time::Instant::now();
            // Many may find it wrong at the same time.
            tokio::time::sleep(pause::about(HOP_PAUSE)).await;
        }
    }
}

type First = oneshot::Sender<Result<()>>;

/// Hears the bells of all nodes: each of them passes on what is published to every other, so one connection to any of them
/// is enough. `first` is told when they are heard, or why they never will be.
async fn listen(shared: Arc<Shared>, mut first: Option<First>) {
    let mut turn = 0;
    loop {
        let map = shared.map();
        let servers: Vec<_> = map.nodes.iter().map(|node| &node.shard.server).chain(&shared.seeds).collect();
        let server = servers[turn % servers.len()].clone();
        turn += 1;
        drop(map);
        if let Err(error) = hear_at(&shared, &server, &mut first).await {
            tracing::debug!(%error, "no bells from this node; trying the next");
            if let Some(first) = first.take_if(|_| !error.kind().is_transient()) {
                let _ = first.send(Err(error));
                return;
            }
        }
        tokio::time::sleep(pause::about(HOP_PAUSE)).await;
    }
}

/// Hears bells at one node until it is gone.
async fn hear_at(shared: &Arc<Shared>, server: &Address, first: &mut Option<First>) -> Result<()> {
    let Context { config, address, bells, .. } = &*shared.context;
    let broken = Arc::new(Notify::new());
    let (lost, board, weak) = (broken.clone(), bells.clone(), Arc::downgrade(shared));
    let must_be_confirmed = config.replicas.is_some();
    let hear = move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            lost.notify_one();
        }
        let confirm = must_be_confirmed.then(|| confirm_by(weak.clone()));
        bell::hear(&push, &board, confirm);
        Ok::<(), std::convert::Infallible>(())
    };
    let mut connection = in_time(address, async {
        let settings = dial::patient().set_push_sender(hear);
        let mut connection = dial::server(config, server, settings, address).await?;
        let subscribed = connection.subscribe(shared.context.channel()).await;
        subscribed.map_err(|e| explain("connect", address, &e, false))?;
        Ok(connection)
    })
    .await?;
    if let Some(first) = first.take() {
        let _ = first.send(Ok(()));
    }
    // Bells may have been lost; from now on they come again, so whoever looks now misses none.
    bells.look_at_all();
    let ping = redis::cmd("PING");
    loop {
        tokio::select! {
            () = broken.notified() => return Ok(()),
            () = tokio::time::sleep(pause::about(PING_EVERY)) => {}
        }
        let answer = tokio::time::timeout(PING_WITHIN, connection.req_packed_command(&ping)).await;
        if !matches!(answer, Ok(Ok(_))) {
            return Ok(());
        }
    }
}

/// How a bell is confirmed, for as long as somebody uses the cluster.
fn confirm_by(cluster: Weak<Shared>) -> impl FnOnce(Name, Bell) -> bell::Confirmed {
    move |name, bell| {
        Box::pin(async move {
            match cluster.upgrade() {
                Some(shared) => shared.confirm(&name, &bell).await,
                None => Err(Error::new(ErrorKind::Closed, "bell", "the client is gone")),
            }
        })
    }
}

/// Waits for all of them, at once.
pub(super) async fn all<T>(futures: impl IntoIterator<Item = impl Future<Output = T> + Send>) -> Vec<T> {
    let mut all: Vec<(Pin<Box<_>>, Option<T>)> =
        futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut is_ready = true;
        for (future, output) in all.iter_mut().filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(value) => *output = Some(value),
                Poll::Pending => is_ready = false,
            }
        }
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    all.into_iter().filter_map(|(_, output)| output).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_are_waited_for() {
        let sleep = |ms| async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            ms
        };
        assert_eq!(all([3, 1, 2].map(sleep)).await, [3, 1, 2]);
    }
}
