//! The least that an engine could cost.
//!
//! - memory: an uncontended `tokio::sync::Mutex`, locked and unlocked. It has no lease, no token and no name; it is what
//!   a program of one process would use otherwise. Our own pure line would be a kinder floor, but one that gets worse
//!   whenever the line does.
//! - sqlite: one `BEGIN IMMEDIATE; UPDATE; COMMIT` on a lock row, in WAL mode with `synchronous = NORMAL` as the driver
//!   has it, called directly on the worker's thread. An acquisition and its release need two.
//! - servers: one round trip of the cheapest command there is, on a connection like the driver's. An acquisition and its
//!   release need two.

use std::time::{Duration, Instant};

use anyhow::Result;
use lockline::Name;
use lockline::line::{Claim, ClaimId, Line, Mode, Now, Primitive, Ticket, Who};
use lockline::time::BootClock;

use crate::engine::{Engine, Site};
use crate::servers;
use crate::stats::Times;

/// One operation of the engine, bare.
#[derive(Debug)]
pub enum Floor {
    /// `tokio::sync::Mutex::lock` and unlock.
    TokioMutex(tokio::sync::Mutex<()>),
    /// A transaction that updates a row.
    #[cfg(feature = "sqlite")]
    Transaction(rusqlite::Connection),
    /// A round trip to a server.
    RoundTrip(servers::Shared),
}

impl Floor {
    /// The floor of this engine.
    ///
    /// # Errors
    /// If the floor's own file cannot be made, or the server does not answer.
    pub async fn of(site: &Site) -> Result<Floor> {
        match site.engine {
            Engine::Memory => Ok(Floor::TokioMutex(tokio::sync::Mutex::new(()))),
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => {
                let db = rusqlite::Connection::open(site.dir.join("floor.db"))?;
                db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
                db.pragma_update(None, "synchronous", "NORMAL")?;
                db.execute_batch(
                    "CREATE TABLE IF NOT EXISTS lock (id INTEGER PRIMARY KEY, owner INTEGER NOT NULL);
                     INSERT OR REPLACE INTO lock VALUES (1, 0);",
                )?;
                Ok(Floor::Transaction(db))
            }
            #[allow(unreachable_patterns)] // Without any server there is nothing left.
            _ => Ok(Floor::RoundTrip(servers::connect(site).await?)),
        }
    }

    /// What it is, for people.
    pub fn name(&self) -> &'static str {
        match self {
            Floor::TokioMutex(_) => "tokio::sync::Mutex lock+unlock",
            #[cfg(feature = "sqlite")]
            Floor::Transaction(_) => "one bare WAL transaction",
            Floor::RoundTrip(server) => server.round_trip_is(),
        }
    }

    /// How many operations to time together: a clock costs as much as an uncontended mutex.
    pub fn repeat(&self) -> u32 {
        match self {
            Floor::TokioMutex(_) => 100,
            #[cfg(feature = "sqlite")]
            Floor::Transaction(_) => 1,
            Floor::RoundTrip(_) => 1,
        }
    }

    /// One operation.
    ///
    /// # Errors
    /// What the engine fails with.
    pub async fn once(&mut self) -> Result<()> {
        match self {
            Floor::TokioMutex(mutex) => drop(std::hint::black_box(mutex.lock().await)),
            #[cfg(feature = "sqlite")]
            Floor::Transaction(db) => transaction(db)?,
            Floor::RoundTrip(server) => server.round_trip().await?,
        }
        Ok(())
    }

    /// One turn on a peer's lock, if one is measured on this engine: what its figures are called.
    ///
    /// # Errors
    /// What the peer fails with.
    pub async fn peer_once(&mut self) -> Result<Option<&'static str>> {
        let Floor::RoundTrip(server) = self else { return Ok(None) };
        if server.peer().is_some() {
            server.peer_turn(0, "uncontended", Box::pin(std::future::ready(Ok(())))).await?;
        }
        Ok(server.peer())
    }

    /// How many commands for locks the engine has counted itself, if it counts.
    ///
    /// # Errors
    /// What the engine fails with.
    pub async fn engine_commands(&mut self) -> Result<Option<u64>> {
        match self {
            Floor::RoundTrip(server) => server.commands().await,
            #[allow(unreachable_patterns)]
            _ => Ok(None),
        }
    }
}

#[cfg(feature = "sqlite")]
fn transaction(db: &rusqlite::Connection) -> Result<()> {
    db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    db.prepare_cached("UPDATE lock SET owner = owner + 1 WHERE id = 1")?.execute([])?;
    db.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}

/// How often a second the engine does one bare operation after the other, for engines where all workers share what is
/// scarce (a file has one writer at a time), so that more workers would only be slower.
///
/// # Errors
/// What the engine fails with.
pub async fn serial_rate(mut floor: Floor, window: Duration) -> Result<f64> {
    let start = Instant::now();
    let mut done = 0u64;
    while start.elapsed() < window {
        floor.once().await?;
        done += 1;
        tokio::task::coop::consume_budget().await;
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

/// The most turns a second that the timer allows if each lasts this long: a sleep is longer than asked for.
pub async fn timer_rate(hold: Duration, window: Duration) -> f64 {
    let start = Instant::now();
    let mut done = 0u64;
    while start.elapsed() < window {
        tokio::time::sleep(hold).await;
        done += 1;
    }
    done as f64 / start.elapsed().as_secs_f64()
}

/// What the pure line alone takes to join and leave, with a random id and the clocks read, in nanoseconds: between the
/// floor and ours lies this, and the waiting, renewing and losing around it.
pub fn pure_line_ns() -> Result<f64> {
    const TIMES: u32 = 10_000;
    let mut line = Line::after(Ticket::ZERO);
    let who = std::sync::Arc::new(Who { owner: "bench".to_owned(), host: "here".to_owned(), pid: 1 });
    let name = Name::new("bench")?;
    let start = Instant::now();
    for _ in 0..TIMES {
        let now = || Now { at: BootClock.now(), ticket_us: 1 };
        let claim = Claim {
            name: name.clone(),
            id: ClaimId::random(),
            mode: Mode::Exclusive,
            lease: Duration::from_secs(10),
            who: who.clone(),
            identity: None,
            primitive: Primitive::Mutex,
        };
        std::hint::black_box(line.join(now(), &claim, true));
        std::hint::black_box(line.leave(now(), claim.id));
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(TIMES))
}

/// What it takes to ask another thread and to be woken by its answer, in microseconds: an embedded engine that serves its
/// file on a thread of its own pays this for each verb, and on a busy machine it is most of what a cycle takes.
///
/// # Errors
/// If no thread can be started.
pub async fn thread_round_trip_us() -> Result<f64> {
    let (ask, asked) = std::sync::mpsc::channel::<tokio::sync::oneshot::Sender<()>>();
    std::thread::Builder::new().spawn(move || {
        while let Ok(reply) = asked.recv() {
            // An error means that nobody waits for it any more.
            let _ = reply.send(());
        }
    })?;
    let mut times = Times::default();
    for _ in 0..2_000 {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let at = Instant::now();
        ask.send(reply)?;
        answer.await?;
        times.add(at.elapsed(), 1);
    }
    Ok(times.quantile_us(0.5))
}
