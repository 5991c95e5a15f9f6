//! The row *renewal*: many held locks, and what an acquirer notices of them.

use std::time::{Duration, Instant};

use anyhow::Result;
use lockline::Mutex;

use crate::engine::{Engine, Site};
use crate::row::{Row, rounded};
use crate::servers;
use crate::stats::Times;

/// How many locks are held. A quorum renews each of them at five servers, which share one machine here and would have five.
pub fn held_on(engine: Engine) -> usize {
    if engine.is_quorum() { 2_000 } else { 10_000 }
}

/// Short, so that a run of a few seconds sees several rounds; each is renewed at a third of it.
const LEASE: Duration = Duration::from_secs(3);

/// Holds many locks, and measures an acquirer before, meanwhile and after.
///
/// # Errors
/// What the engine fails with.
pub async fn renewal(site: &Site, window: Duration) -> Result<Row> {
    let (tick, many) = (LEASE / 3, held_on(site.engine));
    let window = window.max(3 * tick);
    let holder = site.connect_with(LEASE).await?;
    let acquirer = site.connect().await?;
    let mutex = acquirer.locks.mutex("renewal/acquirer");

    let memory = Memory::of(site).await?;
    let mut alone = cycles(&mutex, window / 2).await?;
    let free = memory.used().await?;
    let mut guards = Vec::with_capacity(many);
    for n in 0..many {
        guards.push(holder.locks.mutex(format!("renewal/{n}")).lock().await?);
    }
    let held = memory.used().await?;
    let (before, own_before, start) = (holder.counts.now(), acquirer.counts.now(), Instant::now());
    let mut meanwhile = cycles(&mutex, window).await?;
    let (sent, own) = (holder.counts.now().since(before), acquirer.counts.now().since(own_before));
    let ticks = start.elapsed().as_secs_f64() / tick.as_secs_f64();
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
    for guard in guards {
        guard.release().await?;
    }
    alone.extend(cycles(&mutex, window / 2).await?);
    // On the usual lease: a thousand that join at once may take a server longer than this short one.
    let waiting = memory.of_waiters(&acquirer.locks).await?;

    let turns = meanwhile.len() as u64;
    let row = Row {
        engine: site.engine.name().to_owned(),
        row: "renewal".to_owned(),
        workers: 1,
        owner_changes_per_s: Some(0.0),
        commands_per_acquisition: Some(rounded(own.verbs as f64 / turns as f64)),
        turns_min: turns,
        turns_max: turns,
        ..Row::default()
    };
    let row = row
        .against("us", meanwhile.quantile_us(0.5), "the same with nothing held", alone.quantile_us(0.5))
        .with("p99_us", meanwhile.quantile_us(0.99))
        .with("p99_floor_us", alone.quantile_us(0.99))
        .with("held", many as f64)
        .with("lost", lost as f64)
        .with("renew_commands_per_tick", sent.renew as f64 / ticks)
        .with("renew_commands_per_lock_and_tick", sent.renew as f64 / ticks / many as f64)
        .with("batch_mean", sent.renewed as f64 / sent.renew.max(1) as f64)
        .with("batch_max", holder.counts.largest_batch() as f64);
    Ok(match (free.zip(held), waiting) {
        (Some((free, held)), Some(waiting)) => row
            .with("engine_bytes_per_held_lock", (held - free) / many as f64)
            .with("engine_bytes_per_waiter", waiting),
        _ => row,
    })
}

/// The engine's memory, where it is a server that tells.
struct Memory(Option<servers::Shared>);

impl Memory {
    async fn of(site: &Site) -> Result<Memory> {
        let server = if site.engine.is_embedded() { None } else { Some(servers::connect(site).await?) };
        Ok(Memory(server))
    }

    async fn used(&self) -> Result<Option<f64>> {
        let Some(server) = &self.0 else { return Ok(None) };
        Ok(server.memory().await?.map(|bytes| bytes as f64))
    }

    /// What each of a thousand who wait for one lock takes.
    async fn of_waiters(&self, locks: &lockline::Locks) -> Result<Option<f64>> {
        const WAITERS: usize = 1_000;
        let Some(before) = self.used().await? else { return Ok(None) };
        let held = locks.mutex("renewal/waited-for").lock().await?;
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..WAITERS {
            let mutex = locks.mutex("renewal/waited-for");
            waiting.spawn(async move { mutex.lock().await?.release().await });
        }
        while locks.view("renewal/waited-for").await?.first().is_none_or(|line| line.waiters.len() < WAITERS)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let after = self.used().await?;
        held.release().await?;
        while let Some(done) = waiting.join_next().await {
            done??;
        }
        Ok(after.map(|after| (after - before) / WAITERS as f64))
    }
}

async fn cycles(mutex: &Mutex, window: Duration) -> Result<Times> {
    let mut times = Times::default();
    let start = Instant::now();
    while start.elapsed() < window {
        let at = Instant::now();
        mutex.lock().await?.release().await?;
        times.add(at.elapsed(), 1);
        tokio::task::coop::consume_budget().await;
    }
    Ok(times)
}
