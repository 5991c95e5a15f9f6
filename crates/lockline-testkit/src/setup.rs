//! What every behaviour is given: clients of one fresh engine, faulty ones, and child processes.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lockline::line::LineView;
use lockline::{Builder, Guard, Locks};
use tokio::task::JoinHandle;

use crate::engine::Engine;
use crate::faults::Faults;
use crate::peer::Peer;

/// A lease that ends in no test: what must not depend on a lease is tested on it.
pub const LONG: Duration = Duration::from_secs(60);

/// A lease that ends soon, for tests of its end. Not shorter: a busy machine stops a process for 100 ms and more.
pub const SHORT: Duration = Duration::from_millis(600);

/// How long anything may take that should happen soon: far above what it takes, and below the first renewal of a [`LONG`]
/// lease, so that what a bell should have told cannot be told by a renewal instead.
pub const SOON: Duration = Duration::from_secs(10);

/// After this a test is stuck.
const STUCK: Duration = Duration::from_secs(90);

/// One fresh engine, and the program for child processes.
#[derive(Debug)]
pub struct Setup {
    engine: Engine,
    peer: PathBuf,
}

impl Setup {
    /// Runs one behaviour on a fresh engine; one that hangs fails.
    ///
    /// # Panics
    /// If the behaviour is not as it should be.
    pub async fn run(engine: Engine, peer: &str, behaviour: impl AsyncFnOnce(&Setup)) {
        let setup = Setup { engine, peer: PathBuf::from(peer) };
        let ran = tokio::time::timeout(STUCK, behaviour(&setup)).await;
        assert!(ran.is_ok(), "the test was stuck for {STUCK:?}");
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Whether the engine has no permits. Then that it refuses them, before anything stands in line, is what is tested.
    ///
    /// # Panics
    /// If it does not refuse them.
    pub async fn refuses_permits(&self) -> bool {
        if self.engine.counts_permits() {
            return false;
        }
        let locks = self.client().await;
        let refused = locks.semaphore("permits", 4).acquire_many(2).await.expect_err("it refuses permits");
        assert_eq!(refused.kind(), lockline::ErrorKind::Unsupported, "{refused:?}");
        assert!(refused.hint_text().is_some(), "{refused:?}");
        assert!(locks.show("permits").await.expect("it shows a line").waiters.is_empty());
        true
    }

    /// A client with a [`LONG`] lease.
    pub async fn client(&self) -> Locks {
        self.client_with(|builder| builder).await
    }

    /// A client with options; the lease is [`LONG`] unless they say otherwise.
    pub async fn client_with(&self, options: impl FnOnce(Builder) -> Builder) -> Locks {
        let builder = options(Locks::builder().lease(LONG));
        builder.connect(self.engine.url()).await.expect("the engine can be reached")
    }

    /// A client whose way to the engine can be disturbed.
    pub async fn faulty(&self) -> (Locks, Faults) {
        self.faulty_with(|builder| builder).await
    }

    /// A client with options whose way to the engine can be disturbed.
    pub async fn faulty_with(&self, options: impl FnOnce(Builder) -> Builder) -> (Locks, Faults) {
        let faults = Faults::default();
        let put_between = async |bells| faults.put_between(bells, |bells| self.engine.open(bells)).await;
        let locks = options(Locks::builder().lease(LONG))
            .driver(put_between)
            .await
            .expect("the engine can be reached");
        (locks, faults)
    }

    /// A child process with a client on the same engine.
    pub async fn peer(&self, label: &str) -> Peer {
        self.peer_with(label, LONG).await
    }

    /// A child process whose client has this lease.
    pub async fn peer_with(&self, label: &str, lease: Duration) -> Peer {
        Peer::start(&self.peer, self.engine.url(), label, lease).await
    }
}

/// Looks again and again until it is so.
///
/// # Panics
/// If it is not so [`SOON`].
pub async fn eventually(what: impl fmt::Display, is_so: impl AsyncFnMut() -> bool) {
    within(SOON, what, is_so).await;
}

/// Looks again and again until it is so, and tells how long that took.
///
/// # Panics
/// If it is not so in time.
pub async fn within(
    limit: Duration,
    what: impl fmt::Display,
    mut is_so: impl AsyncFnMut() -> bool,
) -> Duration {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    began.elapsed()
}

/// Awaits something that must happen [`SOON`].
///
/// # Panics
/// If it does not.
pub async fn soon<T>(what: impl fmt::Display, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(SOON, work).await {
        Ok(value) => value,
        Err(_) => panic!("not within {SOON:?}: {what}"),
    }
}

/// The line of a lock.
pub async fn line(locks: &Locks, name: &str) -> LineView {
    locks.show(name).await.expect("the line can be viewed")
}

/// Waits until so many claims wait for a lock.
pub async fn until_waiting(locks: &Locks, name: &str, count: usize) {
    eventually(format_args!("{count} wait for {name:?}"), async || {
        line(locks, name).await.waiters.len() == count
    })
    .await;
}

/// Waits until nothing at all is left in the engine: nobody holds, nobody waits.
pub async fn until_empty(locks: &Locks, when: impl fmt::Display) {
    eventually(format_args!("nothing is left {when}"), async || {
        locks.view("").await.expect("a view").is_empty()
    })
    .await;
}

/// Asks for a mutex in the background, and returns once it waits as the `nth` in line.
pub async fn queue_up(locks: &Locks, name: &str, nth: usize) -> JoinHandle<lockline::Result<Guard>> {
    let mutex = locks.mutex(name);
    let asked = tokio::spawn(async move { mutex.lock().await });
    until_waiting(locks, name, nth).await;
    asked
}

/// The guard that a task got.
///
/// # Panics
/// If it got none [`SOON`].
pub async fn granted(asked: JoinHandle<lockline::Result<Guard>>) -> Guard {
    soon("the lock is granted", asked).await.expect("the task ends well").expect("the lock is granted")
}
