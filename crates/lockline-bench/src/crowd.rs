//! Rows of many workers: *spread*, *contended*, and *clients*, where each has a client of its own.

use std::time::Duration;

use anyhow::Result;

use crate::engine::{Engine, Site};
use crate::floors::{Floor, serial_rate, timer_rate};
use crate::row::Row;
use crate::servers::{self, Pairs, Peers};
use crate::workers::{Arena, Ours, Tally, TokioMutexes, contest};

/// How many clients a server's own tool is told to have.
const TOOL_WORKERS: usize = 64;
/// How often ours and the floor take turns.
const ROUNDS: u32 = 4;

/// How many workers, on which names, for how long each.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// The row's name.
    pub row: &'static str,
    /// How many workers.
    pub workers: usize,
    /// Whether they all want the same lock.
    pub one_name: bool,
    /// Whether each has a client of its own, as if it were a process of its own.
    pub apart: bool,
    /// How long each holds it.
    pub hold: Duration,
}

impl Crowd {
    /// A name for each.
    pub const fn spread(workers: usize) -> Crowd {
        Crowd { row: "spread", workers, one_name: false, apart: false, hold: Duration::ZERO }
    }

    /// One name for all.
    pub const fn contended(workers: usize, hold_ms: u64) -> Crowd {
        let hold = Duration::from_millis(hold_ms);
        Crowd { row: "contended", workers, one_name: true, apart: false, hold }
    }

    /// One name for all, and a client for each.
    pub const fn clients(workers: usize, hold_ms: u64) -> Crowd {
        Crowd { row: "clients", apart: true, ..Crowd::contended(workers, hold_ms) }
    }

    fn arena(&self) -> std::sync::Arc<Arena> {
        if self.one_name { Arena::shared(self.workers) } else { Arena::apart(self.workers) }
    }

    fn names(&self) -> usize {
        if self.one_name { 1 } else { self.workers }
    }

    /// In how many parts it is measured. What a machine does beside it comes and goes within a second, and would be taken for a
    /// difference; but a line of many must form anew for each part.
    fn rounds(&self) -> u32 {
        if self.one_name { 1 } else { ROUNDS }
    }
}

/// Measures it, in rounds: half of the floor, ours, the other half of the floor.
///
/// # Errors
/// What the engine fails with.
pub async fn crowd(site: &Site, crowd: Crowd, window: Duration) -> Result<Row> {
    let part = window / crowd.rounds();
    let (mut tallies, mut floors, mut seen) = (Vec::new(), Vec::new(), Seen::default());
    let mut floor = "";
    for _ in 0..crowd.rounds() {
        let (name, before) = self::floor(site, crowd, part / 2).await?;
        let (tally, now) = ours(site, crowd, part).await?;
        let (_, after) = self::floor(site, crowd, part / 2).await?;
        (floor, seen) = (name, now);
        tallies.push(tally);
        floors.push((before + after) / 2.0);
    }
    let (ours, floor_rate) = (Tally::of_all(&tallies), floors.iter().sum::<f64>() / floors.len() as f64);
    let row = Row {
        engine: site.engine.name().to_owned(),
        row: crowd.row.to_owned(),
        workers: crowd.workers,
        hold_ms: crowd.hold.as_millis() as u64,
        owner_changes_per_s: Some(crate::row::rounded(ours.changes_per_s)),
        commands_per_acquisition: ours.commands_per_acquisition.map(crate::row::rounded),
        turns_min: ours.turns_min,
        turns_max: ours.turns_max,
        violations: ours.violations,
        ..Row::default()
    };
    let value = if crowd.one_name { ours.changes_per_s } else { ours.acquisitions_per_s };
    let row = row.against("1/s", value, floor, floor_rate);
    let row = row.with("acquisitions_per_s", ours.acquisitions_per_s);
    if site.engine.is_embedded() {
        return Ok(row);
    }
    let row = match seen.commands_per_acquisition {
        Some(commands) => row.with("engine_commands_per_acquisition", commands),
        None => row,
    };
    let row = match seen.sessions {
        Some(sessions) => row.with("sessions", sessions as f64),
        None => row,
    };
    let row = against_peer(site, crowd, window, row).await?;
    if crowd.one_name || crowd.workers != TOOL_WORKERS {
        return Ok(row);
    }
    Ok(match servers::connect(site).await?.own_tool().await? {
        Some((tool, rate)) => row.with(tool, rate),
        None => row,
    })
}

/// What a peer reaches with as many workers, if one is measured on this engine.
async fn against_peer(site: &Site, crowd: Crowd, window: Duration, row: Row) -> Result<Row> {
    let mut servers = vec![servers::connect(site).await?];
    let Some(name) = servers[0].peer() else { return Ok(row) };
    if crowd.one_name && crowd.workers > servers[0].peer_up_to() {
        return Ok(row);
    }
    while crowd.apart && servers.len() < crowd.workers {
        servers.push(servers::connect(site).await?);
    }
    let arena = crowd.arena();
    let peers = Peers { servers, arena: arena.clone(), names: crowd.names(), hold: crowd.hold };
    let tally = contest(peers, arena, None, window).await?;
    if !crowd.one_name {
        return Ok(row.with(&format!("{name}_per_s"), tally.acquisitions_per_s));
    }
    let fair = tally.turns_min as f64 / tally.turns_max.max(1) as f64;
    let row = row.with(&format!("{name}_acquisitions_per_s"), tally.acquisitions_per_s);
    let row = row.with(&format!("{name}_per_s"), tally.changes_per_s);
    Ok(row.with(&format!("{name}_turns_min_of_max"), fair))
}

/// What the server itself saw of a run.
#[derive(Debug, Default)]
struct Seen {
    commands_per_acquisition: Option<f64>,
    sessions: Option<u64>,
}

async fn ours(site: &Site, crowd: Crowd, window: Duration) -> Result<(Tally, Seen)> {
    let mut clients = vec![site.connect().await?];
    while crowd.apart && clients.len() < crowd.workers {
        clients.push(clients[0].alike(site).await?);
    }
    let arena = crowd.arena();
    let mutex = |n: usize| {
        let name = format!("{}/{}", crowd.row, n % crowd.names());
        clients[n % clients.len()].locks.mutex(name)
    };
    let mutexes = (0..clients.len().max(crowd.names())).map(mutex).collect();
    let ours = Ours { mutexes, arena: arena.clone(), hold: crowd.hold };
    let running = contest(ours, arena.clone(), Some(clients[0].counts.clone()), window);
    if site.engine.is_embedded() {
        return Ok((running.await?, Seen::default()));
    }
    let server = servers::connect(site).await?;
    let before = server.commands().await?;
    let (tally, sessions) = tokio::join!(running, async {
        tokio::time::sleep(window / 2).await;
        server.sessions().await
    });
    let counted = before.zip(server.commands().await?).map(|(before, after)| after - before);
    let turns: u64 = arena.turns().iter().sum();
    let commands_per_acquisition = counted.map(|commands| commands as f64 / turns.max(1) as f64);
    Ok((tally?, Seen { commands_per_acquisition, sessions: sessions? }))
}

async fn floor(site: &Site, crowd: Crowd, window: Duration) -> Result<(&'static str, f64)> {
    if !crowd.hold.is_zero() {
        return Ok(("the most turns the timer allows", timer_rate(crowd.hold, window).await));
    }
    match site.engine {
        Engine::Memory => {
            let arena = crowd.arena();
            let mutexes = (0..crowd.names()).map(|_| tokio::sync::Mutex::new(())).collect();
            let tally = contest(TokioMutexes { mutexes, arena: arena.clone() }, arena, None, window).await?;
            Ok(if crowd.one_name {
                ("tokio::sync::Mutex among as many tasks", tally.changes_per_s)
            } else {
                ("as many tokio::sync::Mutexes", tally.acquisitions_per_s)
            })
        }
        #[allow(unreachable_patterns)] // Without any server there is nothing left.
        engine if !engine.is_embedded() && !crowd.one_name => {
            let (server, arena) = (servers::connect(site).await?, crowd.arena());
            let name = server.pair_is();
            let tally = contest(Pairs { server, arena: arena.clone() }, arena, None, window).await?;
            Ok((name, tally.acquisitions_per_s))
        }
        // A file has one writer at a time, and one lock one owner: each change is at least one operation after the other.
        #[allow(unreachable_patterns)]
        _ => {
            let floor = Floor::of(site).await?;
            Ok((floor.name(), serial_rate(floor, window).await?))
        }
    }
}
