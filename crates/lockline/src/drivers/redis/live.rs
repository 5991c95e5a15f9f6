//! A connection to one primary: what it leads to, how it is made, and what is sent over it.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, PushInfo, PushKind, RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};

use super::address::Address;
use super::bell;
use super::config::RedisConfig;
use super::dial::{self, in_time};
use super::error::explain;
use super::incarnation::{self, Info};
use super::outbox::Outbox;
use super::replicas::{WaitKey, Witness};
use super::scripts::Loaded;
use super::sentinel;
use super::slots::Kept;
use crate::driver::Bells;
use crate::error::{Error, ErrorKind, Result};
use crate::pause::about;

/// How long a server that left somebody without an answer has to answer a `PING`.
const PING_WITHIN: Duration = Duration::from_secs(1);
/// How often the server is asked how it is set up: an operator may change it while it runs. A third of the usual lease.
const SETTINGS_EVERY: Duration = Duration::from_secs(3);
/// How long a server that did answer is not doubted again.
const DOUBT_AGAIN: Duration = Duration::from_millis(250);

/// What all connections of a driver have in common.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: RedisConfig,
    pub(super) address: Arc<str>,
    /// What this process's channel ends with.
    pub(super) process: String,
    pub(super) bells: Bells,
}

impl Context {
    pub(super) fn channel(&self) -> String {
        format!("{}:bell:{}", self.config.space, self.process)
    }
}

/// Where a link leads.
#[derive(Clone, Debug)]
pub(super) enum Goal {
    /// To this server. Its messages come along with its answers.
    Server(Address),
    /// To whichever server these Sentinels name, likewise.
    Watched(Vec<Address>, String),
    /// To this node of a cluster, which has had so many replicas. Messages come another way.
    Node { server: Address, id: String, kept: Arc<Kept>, replicas: u32 },
}

impl Goal {
    /// Where the record of the server's life is. In a cluster it moves away with its slot: then it is not taken for that of the
    /// node which it comes to.
    fn life_key(&self, config: &RedisConfig) -> String {
        match self {
            Goal::Server(_) | Goal::Watched(..) => format!("{}:life", config.space),
            Goal::Node { id, kept, .. } => format!("{}:{{{}}}:life:{id}", config.space, kept.tag()),
        }
    }

    /// What is written before each `WAIT`.
    fn wait_key(&self, context: &Context) -> WaitKey {
        let Context { config, process, .. } = context;
        match self {
            Goal::Server(_) | Goal::Watched(..) => WaitKey::One(format!("{}:wait:{process}", config.space)),
            Goal::Node { kept, .. } => {
                WaitKey::OfNode { space: config.space.clone(), process: process.clone(), kept: kept.clone() }
            }
        }
    }

    fn is_node(&self) -> bool {
        matches!(self, Goal::Node { .. })
    }

    /// The server, and how many replicas it is known to have, if somebody but itself knows.
    async fn find(&self, context: &Context) -> Result<(Address, u32)> {
        match self {
            Goal::Server(server) => Ok((server.clone(), 0)),
            Goal::Node { server, replicas, .. } => Ok((server.clone(), *replicas)),
            Goal::Watched(sentinels, service) => {
                let primary = sentinel::find(&context.config, sentinels, service, &context.address).await?;
                Ok((primary.server, primary.replicas))
            }
        }
    }
}

/// A connection that works, as far as is known.
#[derive(Debug)]
pub(super) struct Live {
    server: Address,
    connection: MultiplexedConnection,
    scripts: RwLock<Arc<Loaded>>,
    /// Held by whoever loads scripts: the others wait instead of doing the same.
    loading: Mutex<()>,
    pub(super) witness: Option<Witness>,
    pub(super) info: Info,
    /// How many replicas its server has had when it was made.
    replicas: u32,
    /// The record of the server's life, if there is a restart guard.
    record: Option<String>,
    broken: Arc<Notify>,
    doubted: Notify,
    pub(super) outbox: Outbox,
    /// Where its tasks run.
    pub(super) home: Handle,
    #[cfg(test)]
    clock: Option<Arc<std::sync::atomic::AtomicU64>>,
}

impl Live {
    /// A test tells the time.
    #[cfg(test)]
    pub(super) fn told_time(&self) -> Option<u64> {
        self.clock.as_ref().map(|clock| clock.load(std::sync::atomic::Ordering::SeqCst))
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self, reason = "tests have a clock")]
    pub(super) fn told_time(&self) -> Option<u64> {
        None
    }

    pub(super) fn loaded(&self) -> Arc<Loaded> {
        self.scripts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a command.
    pub(super) async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        let mut connection = self.connection.clone();
        let unanswered = Unanswered(self);
        let answer = connection.send_packed_command(cmd).await;
        std::mem::forget(unanswered);
        self.look_at(answer)
    }

    /// Sends several commands in one piece.
    pub(super) async fn send_several(&self, all: &Pipeline, count: usize) -> RedisResult<Vec<Value>> {
        self.connection.clone().send_packed_commands(all, 0, count).await
    }

    /// An answer as it came, or why there is none.
    pub(super) fn look_at(&self, answer: RedisResult<Value>) -> RedisResult<Value> {
        // An error of the server is a value like others until it is asked for.
        let answer = answer.and_then(Value::extract_error);
        if let Err(e) = &answer
            && (e.code() == Some("READONLY") || e.is_unrecoverable_error())
        {
            // Another server is the primary now, or will be.
            self.give_up();
        }
        answer
    }

    /// Has the link connect anew.
    pub(super) fn give_up(&self) {
        self.broken.notify_one();
    }

    /// The server does not know our scripts although it is the one we connected to: somebody told it to forget them.
    pub(super) async fn load_again(&self, context: &Context, unknown: &Arc<Loaded>) -> Result<()> {
        let _loading = self.loading.lock().await;
        if !Arc::ptr_eq(&self.loaded(), unknown) {
            return Ok(());
        }
        let mut connection = self.connection.clone();
        let loaded = incarnation::load(&mut connection, &context.config, unknown.incarnation.clone())
            .await
            .map_err(|e| explain("load", &context.address, &e, false))?;
        *self.scripts.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
        Ok(())
    }

    /// Returns when it is of no use any more.
    pub(super) async fn is_of_no_use(&self, context: &Context, goal: &Goal) {
        let mut look_at = tokio::time::Instant::now() + about(SETTINGS_EVERY);
        loop {
            tokio::select! {
                () = self.broken.notified() => return,
                () = self.doubted.notified() => {}
                () = tokio::time::sleep_until(look_at) => {
                    if self.is_set_up_anew(context, goal).await {
                        return;
                    }
                    look_at = tokio::time::Instant::now() + about(SETTINGS_EVERY);
                    continue;
                }
            }
            let is_another = match goal.find(context).await {
                Ok((server, _)) => server != self.server,
                Err(_) => false,
            };
            let mut connection = self.connection.clone();
            let ping = redis::cmd("PING");
            let answers = tokio::time::timeout(PING_WITHIN, connection.send_packed_command(&ping)).await;
            if is_another || !matches!(answers, Ok(Ok(_))) {
                tracing::debug!(is_another, "the server left somebody without an answer: connecting anew");
                return;
            }
            // Whoever cancels often makes us doubt often.
            tokio::select! {
                () = self.broken.notified() => return,
                () = tokio::time::sleep(DOUBT_AGAIN) => {}
            }
        }
    }

    /// Whether the server is no longer set up as it was when the connection was made, in what a lock depends on. Whoever
    /// connects anew decides again what it may be trusted with, and writes that down for others. (A server that was told to
    /// write its file later and crashes would otherwise be known as one that has lost nothing.)
    async fn is_set_up_anew(&self, context: &Context, goal: &Goal) -> bool {
        let mut connection = self.connection.clone();
        let Ok(Ok(now)) = tokio::time::timeout(PING_WITHIN, incarnation::info(&mut connection)).await else {
            // Whoever has sent something finds out.
            return false;
        };
        let is_refused = now.check(&context.config, goal.is_node(), true, &context.address).is_err();
        let is_new = is_refused || now.keeps_its_data() != self.info.keeps_its_data();
        if is_new {
            tracing::warn!(engine = %context.address, "the server's settings were changed: connecting anew");
        }
        is_new
    }

    /// What is to be remembered of it.
    pub(super) fn past(&self) -> Past {
        let replicas = self.witness.as_ref().map_or(0, Witness::known).max(self.replicas);
        Past { run_id: self.info.run_id().to_owned(), replicas }
    }

    /// Writes the record of the server's life where whoever connects from now on looks for it.
    pub(super) async fn write_record(&self, config: &RedisConfig, goal: &Goal) {
        let Some(record) = &self.record else { return };
        let mut set = redis::cmd("SET");
        set.arg(goal.life_key(config)).arg(record);
        if let Err(error) = self.send(&set).await {
            tracing::debug!(%error, "the record of a life is not where it should be");
        }
    }
}

/// Dropped when somebody stopped waiting for an answer: then the server may hang, or no longer be the primary.
pub(super) struct Unanswered<'a>(pub(super) &'a Live);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.doubted.notify_one();
    }
}

/// The server that a link led to before.
#[derive(Debug)]
pub(super) struct Past {
    run_id: String,
    replicas: u32,
}

/// Makes a connection, to the server that `before` was, or to another one.
pub(super) async fn connect(context: &Context, goal: &Goal, before: Option<&Past>) -> Result<Live> {
    let Context { config, address, bells, .. } = context;
    let (server, known_replicas) = in_time(address, goal.find(context)).await?;
    let fail = |e: &RedisError| explain("connect", address, e, false);
    in_time(address, async {
        let broken = Arc::new(Notify::new());
        // First, because a bell may want to be confirmed by the time it arrives.
        let mut second = match config.replicas {
            Some(_) => Some(dial::server(config, &server, dial::patient(), address).await?),
            None => None,
        };
        let confirming = Arc::new(std::sync::OnceLock::<Witness>::new());
        let hear = {
            let (broken, bells, confirming) = (broken.clone(), bells.clone(), confirming.clone());
            move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    broken.notify_one();
                }
                let confirm = confirming.get().cloned().map(Witness::confirm_bell);
                bell::hear(&push, &bells, confirm);
                Ok::<(), std::convert::Infallible>(())
            }
        };
        let mut connection =
            dial::server(config, &server, dial::patient().set_push_sender(hear), address).await?;
        let info = incarnation::info(&mut connection).await.map_err(|e| fail(&e))?;
        let passing = before.is_some() || !matches!(goal, Goal::Server(_));
        info.check(config, goal.is_node(), passing, address)?;
        let replicas = known_replicas.max(info.replicas()).max(before.map_or(0, |before| before.replicas));
        let life = goal.life_key(config);
        let known = before.map(|before| before.run_id.as_str());
        let (now, record) =
            incarnation::decide(&mut connection, config, &info, &life, known, address).await?;
        let loaded = incarnation::load(&mut connection, config, now).await.map_err(|e| fail(&e))?;
        let mut witness = None;
        if let (Some(asked), Some(mut second)) = (config.replicas, second.take()) {
            // `WAIT` on another server would say nothing about this one; and it may be forbidden.
            let other = incarnation::info(&mut second).await.map_err(|e| fail(&e))?;
            if other.run_id() != info.run_id() {
                let message = "two servers answer at one address";
                return Err(Error::new(ErrorKind::Unavailable, "connect", message).at(address));
            }
            redis::cmd("WAIT").arg(0).arg(0).exec_async(&mut second).await.map_err(|e| fail(&e))?;
            let new = Witness::new(second, goal.wait_key(context), asked, replicas, address);
            let _ = confirming.set(new.clone());
            witness = Some(new);
        }
        if !goal.is_node() {
            connection.subscribe(context.channel()).await.map_err(|e| fail(&e))?;
        }
        Ok(Live {
            server: server.clone(),
            connection,
            scripts: RwLock::new(Arc::new(loaded)),
            loading: Mutex::default(),
            witness,
            info,
            replicas,
            record,
            broken,
            doubted: Notify::new(),
            outbox: Outbox::default(),
            home: Handle::current(),
            #[cfg(test)]
            clock: config.clock.clone(),
        })
    })
    .await
}
