//! A connection to one primary, which is made again for as long as it takes.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, PushInfo, PushKind, RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::AbortHandle;

use super::address::Address;
use super::bell;
use super::config::RedisConfig;
use super::dial::{self, in_time};
use super::error::{explain, is_unknown_script};
use super::incarnation::{self, Info};
use super::outbox::Outbox;
use super::replicas::Witness;
use super::scripts::{Loaded, Script};
use super::sentinel;
use crate::driver::Bells;
use crate::error::{Error, ErrorKind, Result};

/// Pauses between attempts to connect again: from the first to the longest, for as long as it takes.
pub(super) const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How long a server that left somebody without an answer has to answer a `PING`.
const PING_WITHIN: Duration = Duration::from_secs(1);
/// How long a server that did answer is not doubted again.
const DOUBT_AGAIN: Duration = Duration::from_millis(250);
/// How often a script is loaded for one call before the server is called broken.
const LOADS: usize = 3;

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
    /// To this node of a cluster, which keeps this slot and has had so many replicas. Messages come another way.
    Node { server: Address, tag: String, replicas: u32 },
}

impl Goal {
    /// A key of ours, beside the locks, that the server keeps.
    fn key(&self, config: &RedisConfig, what: &str) -> String {
        match self {
            Goal::Server(_) | Goal::Watched(..) => format!("{}:{what}", config.space),
            Goal::Node { tag, .. } => format!("{}:{{{tag}}}:{what}", config.space),
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

/// A way to one primary.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    keeping: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    context: Arc<Context>,
    goal: Goal,
    state: watch::Sender<State>,
}

#[derive(Clone, Debug)]
enum State {
    Up(Arc<Live>),
    /// For now, or until somebody sees to what is wrong.
    Down(Option<Arc<Error>>),
    /// Nobody keeps this link any more.
    Gone,
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
    /// How many replicas its server has had.
    replicas: u32,
    broken: Arc<Notify>,
    doubted: Notify,
    pub(super) outbox: Outbox,
    /// Where its tasks run.
    pub(super) home: Handle,
    #[cfg(test)]
    clock: Option<Arc<std::sync::atomic::AtomicU64>>,
}

impl Link {
    /// Connects. Fails if the first attempt does; later ones go on for ever.
    pub(super) async fn open(context: &Arc<Context>, goal: Goal) -> Result<Link> {
        let live = connect(context, &goal, None).await?;
        Ok(Link::keep(context, goal, State::Up(Arc::new(live))))
    }

    /// Starts to connect. Verbs wait until it has come about.
    pub(super) fn start(context: &Arc<Context>, goal: Goal) -> Link {
        Link::keep(context, goal, State::Down(None))
    }

    fn keep(context: &Arc<Context>, goal: Goal, state: State) -> Link {
        let shared = Arc::new(Shared { context: context.clone(), goal, state: watch::Sender::new(state) });
        let keeping = tokio::spawn(keep(shared.clone())).abort_handle();
        Link { shared, keeping }
    }

    pub(super) fn is_up(&self) -> bool {
        self.live_now().is_some()
    }

    /// The connection, if there is one.
    pub(super) fn live_now(&self) -> Option<Arc<Live>> {
        match &*self.shared.state.borrow() {
            State::Up(live) => Some(live.clone()),
            State::Down(_) | State::Gone => None,
        }
    }

    /// Waits until there is a connection. Fails if there will be none before somebody sees to it.
    pub(super) async fn live(&self, operation: &'static str) -> Result<Arc<Live>> {
        // The common case without a receiver, which would have to be counted.
        if let Some(live) = self.live_now() {
            return Ok(live);
        }
        let mut states = self.shared.state.subscribe();
        loop {
            match &*states.borrow_and_update() {
                State::Up(live) => return Ok(live.clone()),
                State::Down(None) => {}
                State::Down(Some(error)) => return Err(again(error, operation)),
                State::Gone => return Err(self.gone(operation)),
            }
            if states.changed().await.is_err() {
                return Err(self.gone(operation));
            }
        }
    }

    fn gone(&self, operation: &'static str) -> Error {
        let message = "the server keeps these locks no longer";
        Error::new(ErrorKind::Unavailable, operation, message).at(&self.shared.context.address)
    }

    /// Runs a script. `fill` adds the number of keys, the keys and the arguments. Gives the connection it ran on, too.
    ///
    /// The command is sent when the future is first polled, in one order for all callers: a verb that is called after
    /// the future of another was dropped comes behind it, or the other was never sent.
    pub(super) async fn run(
        &self,
        operation: &'static str,
        script: Script,
        asking: bool,
        fill: &(impl Fn(&mut Cmd) + Sync),
    ) -> Result<(RedisResult<Value>, Arc<Live>)> {
        for _ in 0..LOADS {
            let live = self.live(operation).await?;
            let loaded = live.loaded();
            // Room for most of them, so that it does not grow argument by argument.
            let mut cmd = Cmd::with_capacity(8, 400);
            cmd.arg("EVALSHA").arg(loaded.sha(script));
            fill(&mut cmd);
            if let Some(now) = live.told_time() {
                cmd.arg(now);
            }
            match live.send(&cmd, asking).await {
                Err(e) if is_unknown_script(&e) => self.load_again(&live, &loaded).await?,
                answer => return Ok((answer, live)),
            }
        }
        let message = "the server forgets scripts as fast as they are loaded";
        Err(Error::new(ErrorKind::Unavailable, operation, message).at(&self.shared.context.address))
    }

    /// The server does not know our scripts although it is the one we connected to: somebody told it to forget them.
    async fn load_again(&self, live: &Live, unknown: &Arc<Loaded>) -> Result<()> {
        let _loading = live.loading.lock().await;
        if !Arc::ptr_eq(&live.loaded(), unknown) {
            return Ok(());
        }
        let Context { config, address, .. } = &*self.shared.context;
        let mut connection = live.connection.clone();
        let loaded = incarnation::load(&mut connection, config, unknown.incarnation.clone())
            .await
            .map_err(|e| explain("load", address, &e, false))?;
        *live.scripts.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.keeping.abort();
        self.shared.state.send_replace(State::Gone);
    }
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

    fn loaded(&self) -> Arc<Loaded> {
        self.scripts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a command; with `asking` to a node that is about to get its slot.
    pub(super) async fn send(&self, cmd: &Cmd, asking: bool) -> RedisResult<Value> {
        let mut connection = self.connection.clone();
        let unanswered = Unanswered(self);
        let answer = if asking {
            let mut both = redis::pipe();
            both.cmd("ASKING").ignore().add_command(cmd.clone());
            let answers = connection.send_packed_commands(&both, 0, 2).await;
            answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil))
        } else {
            connection.send_packed_command(cmd).await
        };
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
}

/// Dropped when somebody stopped waiting for an answer: then the server may hang, or no longer be the primary.
pub(super) struct Unanswered<'a>(pub(super) &'a Live);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.0.doubted.notify_one();
    }
}

/// The server that a link led to before.
struct Past {
    run_id: String,
    replicas: u32,
}

/// Keeps a link for as long as it lives.
async fn keep(shared: Arc<Shared>) {
    let Shared { context, goal, state } = &*shared;
    let mut before: Option<Past> = None;
    loop {
        let live = match &*state.borrow() {
            State::Up(live) => Some(live.clone()),
            State::Down(_) | State::Gone => None,
        };
        if let Some(live) = live {
            watch_over(context, goal, &live).await;
            state.send_replace(State::Down(None));
            // Nothing else of it is kept: a server that is no longer the primary must not ring bells here.
            before = Some(Past { run_id: live.info.run_id().to_owned(), replicas: live.replicas });
        }
        let mut pause = PAUSES.0;
        loop {
            match connect(context, goal, before.as_ref()).await {
                Ok(live) => {
                    state.send_replace(State::Up(Arc::new(live)));
                    // Bells may have been lost; from now on they come again, so whoever looks now misses none.
                    context.bells.look_at_all();
                    break;
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot connect again yet");
                    let terminal = Some(error).filter(|e| !e.kind().is_transient()).map(Arc::new);
                    state.send_replace(State::Down(terminal));
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }
}

/// Returns when a connection is of no use any more.
async fn watch_over(context: &Context, goal: &Goal, live: &Live) {
    loop {
        tokio::select! {
            () = live.broken.notified() => return,
            () = live.doubted.notified() => {}
        }
        let is_another = match goal.find(context).await {
            Ok((server, _)) => server != live.server,
            Err(_) => false,
        };
        let mut connection = live.connection.clone();
        let ping = redis::cmd("PING");
        let answers = tokio::time::timeout(PING_WITHIN, connection.send_packed_command(&ping)).await;
        if is_another || !matches!(answers, Ok(Ok(_))) {
            tracing::debug!(is_another, "the server left somebody without an answer: connecting anew");
            return;
        }
        // Whoever cancels often makes us doubt often.
        tokio::select! {
            () = live.broken.notified() => return,
            () = tokio::time::sleep(DOUBT_AGAIN) => {}
        }
    }
}

async fn connect(context: &Context, goal: &Goal, before: Option<&Past>) -> Result<Live> {
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
        let life = goal.key(config, "life");
        let known = before.map(|before| before.run_id.as_str());
        let now =
            incarnation::decide(&mut connection, config, &info, &life, known).await.map_err(|e| fail(&e))?;
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
            let key = goal.key(config, &format!("wait:{}", context.process));
            let new = Witness::new(second, key, asked.needed(replicas), address);
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

/// The same error for another caller.
fn again(error: &Error, operation: &'static str) -> Error {
    let copy = Error::new(error.kind(), operation, error.to_string());
    match error.hint_text() {
        Some(hint) => copy.hint(hint.to_owned()),
        None => copy,
    }
}
