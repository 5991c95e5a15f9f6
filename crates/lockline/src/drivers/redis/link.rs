//! A connection to one primary, which is made again for as long as it takes.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::error::is_unknown_script;
use super::live::{Context, Goal, Live, Past, connect};
use super::scripts::Script;
use crate::error::{Error, ErrorKind, Result};
use crate::line::Shut;
use crate::pause;

/// Pauses between attempts to connect again: from the first to the longest, for as long as it takes.
pub(super) const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How often a script is loaded for one call before the server is called broken.
const LOADS: usize = 3;

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

    /// The slots of its node are other ones than before: see [`Live::write_record`].
    pub(super) fn write_record(&self) {
        if let Some(live) = self.live_now() {
            let shared = self.shared.clone();
            tokio::spawn(async move { live.write_record(&shared.context.config, &shared.goal).await });
        }
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

    /// Whether nobody gets a lock there yet.
    pub(super) fn shut(&self) -> Option<Shut> {
        self.live_now()?.loaded().incarnation.guard?.shut()
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
            match live.send(&cmd).await {
                Err(e) if is_unknown_script(&e) => live.load_again(&self.shared.context, &loaded).await?,
                answer => return Ok((answer, live)),
            }
        }
        let message = "the server forgets scripts as fast as they are loaded";
        Err(Error::new(ErrorKind::Unavailable, operation, message).at(&self.shared.context.address))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.keeping.abort();
        self.shared.state.send_replace(State::Gone);
    }
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
            live.is_of_no_use(context, goal).await;
            state.send_replace(State::Down(None));
            // Nothing else of it is kept: a server that is no longer the primary must not ring bells here.
            before = Some(live.past());
            pause::before_reconnecting().await;
        }
        let mut pauses = pause::RECONNECT;
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
                    tokio::time::sleep(pauses.next()).await;
                }
            }
        }
    }
}

/// The same error for another caller.
fn again(error: &Error, operation: &'static str) -> Error {
    let copy = Error::new(error.kind(), operation, error.to_string());
    match error.hint_text() {
        Some(hint) => copy.hint(hint.to_owned()),
        None => copy,
    }
}
