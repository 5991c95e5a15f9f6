//! Rows of one worker: *uncontended* and *reentrant*.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lockline::Mutex;

use crate::allocator::allocations;
use crate::engine::{Engine, Site};
use crate::floors::{Floor, pure_line_ns};
use crate::row::Row;
use crate::stats::Times;

/// How many of each are done in turn, so that whatever the machine does meanwhile happens to both.
const IN_TURN: u32 = 10;

/// One worker takes and releases a free lock.
///
/// # Errors
/// What the engine fails with.
pub async fn uncontended(site: &Site, window: Duration) -> Result<Row> {
    let client = site.connect().await?;
    let mutex = client.locks.mutex("uncontended");
    let mut floor = Floor::of(site).await?;
    let (mut floors, mut cycles) = (Times::default(), Times::default());
    let mut peers: Option<(&'static str, Times)> = None;
    let (mut turns, mut rounds) = (0, 0);
    let before = client.counts.now();
    let start = Instant::now();
    while start.elapsed() < window {
        for _ in 0..IN_TURN {
            let at = Instant::now();
            for _ in 0..floor.repeat() {
                floor.once().await?;
            }
            floors.add(at.elapsed(), floor.repeat());
        }
        // Whoever comes first finds a server that has only been asked for the floor, and one that writes is slower then: so
        // each comes first every other time.
        let peer_first = rounds % 2 == 1;
        if peer_first {
            peer_cycles(&mut floor, &mut peers).await?;
        }
        for _ in 0..IN_TURN {
            let at = Instant::now();
            mutex.lock().await?.release().await?;
            cycles.add(at.elapsed(), 1);
            turns += 1;
        }
        if !peer_first {
            peer_cycles(&mut floor, &mut peers).await?;
        }
        rounds += 1;
        // Nothing above waits on a memory engine, and the keeper wants to run, too.
        tokio::task::yield_now().await;
    }
    let verbs = client.counts.now().since(before).verbs;
    let engine_before = floor.engine_commands().await?;
    let allocated = allocations_of(&mutex).await?;
    let engine_after = floor.engine_commands().await?;
    let row = Row {
        engine: site.engine.name().to_owned(),
        row: "uncontended".to_owned(),
        workers: 1,
        owner_changes_per_s: Some(0.0),
        commands_per_acquisition: Some(verbs as f64 / turns as f64),
        turns_min: turns,
        turns_max: turns,
        ..Row::default()
    };
    let row = row
        .against("us", cycles.quantile_us(0.5), floor.name(), floors.quantile_us(0.5))
        .with("p99_us", cycles.quantile_us(0.99))
        .with("allocations", allocated);
    let row = match peers {
        Some((name, mut times)) => row.with(&format!("{name}_us"), times.quantile_us(0.5)),
        None => row,
    };
    Ok(match (site.engine, engine_before.zip(engine_after)) {
        (Engine::Memory, _) => row.with("pure_line_us", pure_line_ns()? / 1e3),
        #[cfg(feature = "sqlite")]
        (Engine::Sqlite, _) => row.with("thread_round_trip_us", crate::floors::thread_round_trip_us().await?),
        #[allow(unreachable_patterns)] // Without any server there is nothing left.
        (_, Some((before, after))) => {
            row.with("engine_commands_per_acquisition", (after - before) as f64 / f64::from(TIMES))
        }
        #[allow(unreachable_patterns)]
        _ => row,
    })
}

/// The same on the lock that people would use otherwise, if one is measured.
async fn peer_cycles(floor: &mut Floor, peers: &mut Option<(&'static str, Times)>) -> Result<()> {
    for _ in 0..IN_TURN {
        let at = Instant::now();
        let Some(name) = floor.peer_once().await? else { break };
        peers.get_or_insert((name, Times::default())).1.add(at.elapsed(), 1);
    }
    Ok(())
}

/// One owner takes a lock that it already holds.
///
/// # Errors
/// What the engine fails with.
pub async fn reentrant(site: &Site, window: Duration) -> Result<Row> {
    const HOLDS: usize = 100;
    let client = site.connect().await?;
    let owner = client.locks.owner("bench");
    let mutex = owner.mutex("reentrant");
    let first = mutex.lock().await?;
    let floor = tokio::sync::Mutex::new(());
    let (mut floors, mut locks, mut releases) = (Times::default(), Times::default(), Times::default());
    let mut held = Vec::with_capacity(HOLDS);
    let mut turns = 0;
    let before = client.counts.now();
    let start = Instant::now();
    while start.elapsed() < window {
        let at = Instant::now();
        for _ in 0..HOLDS {
            drop(std::hint::black_box(floor.lock().await));
        }
        floors.add(at.elapsed(), HOLDS as u32);
        let at = Instant::now();
        for _ in 0..HOLDS {
            held.push(mutex.lock().await?);
        }
        locks.add(at.elapsed(), HOLDS as u32);
        let at = Instant::now();
        for guard in held.drain(..) {
            guard.release().await?;
        }
        releases.add(at.elapsed(), HOLDS as u32);
        turns += HOLDS as u64;
        tokio::task::yield_now().await;
    }
    // Renewals of the first hold belong to it, not to the second locks.
    let sent = client.counts.now().since(before);
    ensure!(first.is_valid(), "the first hold was lost meanwhile: {:?}", first.loss());
    let allocated = allocations_of(&mutex).await?;
    first.release().await?;
    let row = Row {
        engine: site.engine.name().to_owned(),
        row: "reentrant".to_owned(),
        workers: 1,
        owner_changes_per_s: Some(0.0),
        commands_per_acquisition: Some((sent.verbs - sent.renew) as f64 / turns as f64),
        turns_min: turns,
        turns_max: turns,
        ..Row::default()
    };
    Ok(row
        .against("ns", locks.quantile_ns(0.5), "tokio::sync::Mutex lock+unlock", floors.quantile_ns(0.5))
        .with("p99_ns", locks.quantile_ns(0.99))
        .with("release_ns", releases.quantile_ns(0.5))
        .with("allocations", allocated))
}

/// How many acquisitions the counts are taken from that nothing else may be part of.
const TIMES: u32 = 100;

/// How many allocations one acquisition with its release makes, on all threads.
async fn allocations_of(mutex: &Mutex) -> Result<f64> {
    let work = async {
        for _ in 0..TIMES {
            mutex.lock().await?.release().await?;
        }
        Ok::<(), lockline::Error>(())
    };
    let (outcome, allocated) = allocations(work).await;
    outcome?;
    Ok(allocated as f64 / f64::from(TIMES))
}
