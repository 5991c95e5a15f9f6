//! The shared core of a `Locks` value: its driver, its claims, and how they leave.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::bells::Board;
use super::keeper;
use super::meters::Meters;
use super::promises::Promises;
use super::spot::Spot;
use crate::driver::Driver;
use crate::error::{Error, ErrorKind, LossReason, Result};
use crate::line::{Place, Who};
use crate::pause::Pauses;
use crate::time::{Clock, Time};

/// What a client was told when it was made.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) lease: Duration,
    pub(crate) prefix: String,
    pub(crate) who: Arc<Who>,
    pub(crate) most_claims: usize,
}

/// A connection to an engine, and all claims made through it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) board: Arc<Board>,
    pub(crate) clock: Clock,
    pub(crate) settings: Settings,
    pub(crate) meters: Arc<Meters>,
    promises: Promises,
    runtime: Handle,
    /// The process that made it: in a fork nothing here is ours.
    pid: u32,
    pub(crate) departures: Arc<Departures>,
}

/// What a shutdown waits for: claims that are on their way out in the background, and those whose join is not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    under_way: AtomicUsize,
    none_left: Notify,
}

impl Departures {
    pub(crate) fn one_more(self: &Arc<Self>) -> Departing {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        Departing(self.clone())
    }

    /// Waits until none is under way.
    pub(crate) async fn all_gone(&self) {
        loop {
            let mut none_left = std::pin::pin!(self.none_left.notified());
            none_left.as_mut().enable();
            if self.under_way.load(Ordering::Acquire) == 0 {
                return;
            }
            none_left.await;
        }
    }
}

/// Counts one departure for as long as it lives, also when the runtime drops its task.
#[derive(Debug)]
pub(crate) struct Departing(Arc<Departures>);

impl Drop for Departing {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none_left.notify_waiters();
        }
    }
}

impl Client {
    /// Puts a client around a driver. Must be called on a tokio runtime, on which its background work will run.
    pub(crate) fn start(
        driver: Arc<dyn Driver>,
        board: Arc<Board>,
        clock: Clock,
        settings: Settings,
        promises: Promises,
    ) -> Arc<Client> {
        let client = Arc::new(Client {
            meters: Arc::new(Meters::new(driver.info().driver)),
            driver,
            board: board.clone(),
            clock,
            settings,
            promises,
            runtime: Handle::current(),
            pid: std::process::id(),
            departures: Arc::default(),
        });
        client.spawn(keeper::run(Arc::downgrade(&client), board, clock));
        client
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Whether this is a fork of the process that made the client: its connections are not ours to use, and its guards
    /// are the parent's.
    pub(crate) fn is_forked(&self) -> bool {
        std::process::id() != self.pid
    }

    pub(crate) fn check_open(&self, operation: &'static str) -> Result<()> {
        let problem = if self.is_forked() {
            "this process is a fork of the one that made the client; make a new client here"
        } else if self.board.is_closed() {
            "the client was shut down"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Closed, operation, problem))
    }

    /// Whether the engine still promises what was demanded, looked at after an answer of it.
    pub(crate) fn promises_are_kept(&self) -> bool {
        let offered = self.driver.guarantees();
        self.promises.note(offered, &self.driver.info().address);
        self.promises.are_kept(offered)
    }

    /// The same before something is granted.
    pub(crate) fn check_promises(&self) -> Result<()> {
        self.promises.check("lock", self.driver.guarantees()).map_err(|e| self.explain(e))
    }

    /// Adds to an error what only the client knows.
    pub(crate) fn explain(&self, error: Error) -> Error {
        error.at(&self.driver.info().address)
    }

    /// Calls a verb with a deadline. Whether a call that ran out of time was done is unknown.
    pub(crate) async fn call<T>(
        &self,
        operation: &'static str,
        lease: Duration,
        verb: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let deadline = if mutant!(CallWithoutDeadline) { Duration::MAX } else { call_deadline(lease) };
        match tokio::time::timeout(deadline, verb).await {
            Ok(result) => result.map_err(|e| self.explain(e)),
            Err(_) => Err(self.explain(Error::new(
                ErrorKind::Unknown,
                operation,
                format!("the engine did not answer within {}", crate::words::told(deadline)),
            ))),
        }
    }

    /// Calls a verb that no lease hangs on: people can wait a little longer than a holder.
    pub(crate) async fn ask<T>(
        &self,
        operation: &'static str,
        verb: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.call(operation, LONGEST_CALL * 6, verb).await
    }

    /// Spawns work that outlives its caller. Without a runtime (it was shut down) the lease does the work.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(self.clock.runs(work));
    }

    /// Takes a claim off the board and out of its line, in the background.
    pub(crate) fn depart(self: &Arc<Self>, spot: &Spot) {
        if self.is_forked() || !self.board.take_off(spot.claim.id) {
            return;
        }
        self.leave_later(spot.place());
    }

    /// Leaves a place, in the background.
    pub(crate) fn leave_later(self: &Arc<Self>, place: Place) {
        let departing = self.departures.one_more();
        let client = self.clone();
        self.spawn(async move {
            if let Err(error) = client.leave(&place).await {
                tracing::debug!(lock = %place.name, %error, "could not leave; the lease will do it");
            }
            drop(departing);
        });
    }

    /// Leaves a place, trying again for as long as the place can still be there.
    pub(crate) async fn leave(&self, place: &Place) -> Result<()> {
        let lease = if place.lease.is_zero() { self.settings.lease } else { place.lease };
        let gone_by = self.now() + lease;
        let mut pauses = PAUSES;
        loop {
            let error = match self.call("leave", lease, self.driver.leave(place)).await {
                Ok(()) => return Ok(()),
                Err(error) => error.about(&place.name),
            };
            let pause = pauses.next();
            if !error.kind().is_transient() || self.now() + pause >= gone_by {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Gives up everything and waits until it has left, but no longer than `within`.
    pub(crate) async fn shutdown(self: &Arc<Self>, within: Duration) -> Result<()> {
        let now = self.now();
        for spot in self.board.close() {
            if !mutant!(ShutdownKeepsGuards) {
                spot.lose(now, LossReason::Shutdown);
            }
            self.depart(&spot);
        }
        tokio::time::timeout(within, self.departures.all_gone()).await.map_err(|_| {
            let left = self.departures.under_way.load(Ordering::Acquire);
            self.explain(Error::new(
                ErrorKind::Unknown,
                "shutdown",
                format!("{left} claims had not left in time; their leases will end them"),
            ))
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The keeper holds only a weak reference, and ends when it finds nobody there.
        self.board.keeper.notify_one();
    }
}

/// How long one call may take: a sixth of the lease, so that a holder has several tries before its lease ends.
pub(crate) fn call_deadline(lease: Duration) -> Duration {
    (lease / 6).clamp(Duration::from_millis(15), LONGEST_CALL)
}

const LONGEST_CALL: Duration = Duration::from_secs(5);

/// The pauses after calls that failed.
pub(crate) const PAUSES: Pauses = Pauses::new(Duration::from_millis(5), Duration::from_millis(250));
