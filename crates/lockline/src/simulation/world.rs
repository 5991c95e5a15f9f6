//! One run: clients, their workers, an operator who evicts, crashes, and the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::arena::{Arena, Hold, PERMITS};
use super::chance::{below, seeded, strikes};
use super::network::{Far, Way, Weather};
use crate::Builder;
use crate::driver::{Driver, Query};
use crate::drivers::memory::{Memory, MemoryDriver};
use crate::time::Clock;
use crate::{Guard, Locks, Result};

const LOCKS: [&str; 3] = ["mutex", "read-write", "permits"];
const CLIENTS: usize = 3;
const WORKERS: usize = 3;

/// What came of a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) found: Vec<String>,
    pub(super) acquisitions: u64,
    pub(super) faults: u64,
    pub(super) simulated: Duration,
    pub(super) history: u64,
}

/// Runs a world until its workers have had so many turns together.
pub(super) fn run(seed: u64, turns: u64) -> Outcome {
    seeded(seed, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime needs nothing but memory").block_on(live(turns))
    })
}

/// A client of this world, and those who work with it.
struct Inhabitant {
    way: Arc<Way>,
    locks: Locks,
    workers: Vec<JoinHandle<()>>,
}

struct World {
    lease: Duration,
    clock: Clock,
    memory: Memory,
    weather: Weather,
    arena: Arc<Arena>,
    fair: Arc<AtomicBool>,
    faults: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

async fn live(turns: u64) -> Outcome {
    let began = Instant::now();
    let clock = Clock::Tokio(began);
    let lease = Duration::from_millis(500 + below(4_500));
    let world = World {
        lease,
        clock,
        memory: Memory::on(clock),
        weather: Weather::by_chance(lease),
        arena: Arc::default(),
        fair: Arc::default(),
        faults: Arc::default(),
        over: Arc::default(),
    };
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        clients.push(world.inhabitant(client).await);
    }
    while world.arena.acquisitions() < turns && began.elapsed() < lease * 2_000 {
        tokio::time::sleep(lease.mul_f64(below(1_000) as f64 / 1_000.0)).await;
        let client = below(CLIENTS as u64) as usize;
        if strikes(150) {
            world.crash(&mut clients[client], client).await;
        } else if strikes(200) {
            world.faults.fetch_add(1, Ordering::Relaxed);
            clients[client].way.block(lease.mul_f64(below(2_000) as f64 / 1_000.0));
        } else if strikes(400) {
            world.evict(&clients[client].locks).await;
        }
    }
    world.end(clients).await;
    let (found, history) = world.arena.end();
    Outcome {
        found,
        acquisitions: world.arena.acquisitions(),
        faults: world.faults.load(Ordering::Relaxed),
        simulated: began.elapsed(),
        history,
    }
}

impl World {
    async fn inhabitant(&self, client: usize) -> Inhabitant {
        let way = Way::new(self.weather, self.clock, self.fair.clone(), self.faults.clone());
        let (memory, to) = (self.memory.clone(), way.clone());
        let open = async move |bells| -> Result<Arc<dyn Driver>> {
            Ok(Arc::new(Far::new(memory, to, bells)) as Arc<dyn Driver>)
        };
        let builder = Builder::on_clock(self.clock).lease(self.lease);
        let locks = builder.driver(open).await.expect("a way to memory is always there");
        let work = |_| {
            let worker = Worker {
                client,
                locks: locks.clone(),
                clock: self.clock,
                lease: self.lease,
                arena: self.arena.clone(),
                over: self.over.clone(),
            };
            tokio::spawn(worker.work())
        };
        Inhabitant { way, workers: (0..WORKERS).map(work).collect(), locks }
    }

    /// A process dies, with everything that is under way from and to it, and another one takes its place.
    async fn crash(&self, inhabitant: &mut Inhabitant, client: usize) {
        self.faults.fetch_add(1, Ordering::Relaxed);
        inhabitant.way.cut();
        inhabitant.workers.iter().for_each(JoinHandle::abort);
        self.arena.crashed(client);
        *inhabitant = self.inhabitant(client).await;
    }

    /// Somebody, holder or waiter, is asked to go: nobody may overlap.
    async fn evict(&self, locks: &Locks) {
        let Ok(mut lines) = locks.view("").await else { return };
        lines.sort_by(|a, b| a.name.cmp(&b.name));
        let claims: Vec<_> = lines
            .iter()
            .flat_map(|line| line.holders.iter().chain(&line.waiters).map(|claim| (&line.name, claim.ticket)))
            .collect();
        if !claims.is_empty() {
            let (name, ticket) = claims[below(claims.len() as u64) as usize];
            let told = locks.evict(name.as_str(), ticket, false).await;
            self.faults.fetch_add(u64::from(told.is_ok()), Ordering::Relaxed);
        }
    }

    /// In fair weather everybody comes to an end, and nothing is left.
    async fn end(&self, clients: Vec<Inhabitant>) {
        self.fair.store(true, Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
        for inhabitant in clients {
            for worker in inhabitant.workers {
                let ended = tokio::time::timeout(self.lease * 30, worker).await;
                if ended.is_err() {
                    self.arena.finds("somebody waits for ever");
                }
            }
        }
        tokio::time::sleep(self.lease * 4).await;
        let operator = MemoryDriver::new(self.memory.clone(), Arc::new(Nobody));
        let left = operator.view(&Query::Prefix(String::new())).await.unwrap_or_default();
        if !left.is_empty() {
            self.arena.finds("something is left behind");
        }
    }
}

#[derive(Debug)]
struct Nobody;

impl crate::driver::BellBoard for Nobody {
    fn ring(&self, _: &crate::Name, _: &crate::line::Bell) {}
    fn acknowledged(&self, _: crate::line::ClaimId, _: u32) {}
    fn look_now(&self, _: crate::line::ClaimId) {}
    fn look_at_all(&self) {}
}

struct Worker {
    client: usize,
    locks: Locks,
    clock: Clock,
    lease: Duration,
    arena: Arc<Arena>,
    over: Arc<AtomicBool>,
}

impl Worker {
    async fn work(self) {
        while !self.over.load(Ordering::Relaxed) {
            let (lock, hold) = match below(8) {
                0..4 => (LOCKS[0], Hold::Alone),
                4 => (LOCKS[1], Hold::Alone),
                5 => (LOCKS[1], Hold::Shared),
                6 if strikes(300) => (LOCKS[2], Hold::Alone),
                _ => (LOCKS[2], Hold::Permit),
            };
            let got = self.get(lock, hold).await;
            self.arena.note(self.clock.now(), &[self.client as u64, u64::from(matches!(got, Ok(Some(_))))]);
            match got {
                Ok(Some(guard)) => self.hold(lock, hold, guard).await,
                Ok(None) => {}
                // An eviction, or an engine that did not answer for a lease.
                Err(_) => tokio::time::sleep(self.part_of_a_lease(200)).await,
            }
        }
    }

    fn part_of_a_lease(&self, most_per_mille: u64) -> Duration {
        self.lease.mul_f64(below(most_per_mille) as f64 / 1_000.0)
    }

    /// Asks in one of the ways there are; sometimes it changes its mind and drops the future.
    async fn get(&self, lock: &str, hold: Hold) -> Result<Option<Guard>> {
        let wait = self.part_of_a_lease(1_500);
        let way = below(10);
        let asking = async {
            let mutex = self.locks.mutex(lock);
            match (hold, way) {
                (Hold::Alone, 0) => mutex.try_lock().await,
                (Hold::Alone, 1) => mutex.try_lock_for(wait).await,
                (Hold::Alone, 3) => mutex.lease(self.lease / 2).fixed().lock().await.map(Some),
                (Hold::Alone, 4) => mutex.max_hold(self.lease).lock().await.map(Some),
                (Hold::Alone, _) => mutex.lock().await.map(Some),
                (Hold::Shared, 0) => self.locks.rwlock(lock).try_read().await,
                (Hold::Shared, 1) => self.locks.rwlock(lock).try_read_for(wait).await,
                (Hold::Shared, _) => self.locks.rwlock(lock).read().await.map(Some),
                (Hold::Permit, 0) => self.locks.semaphore(lock, PERMITS as u32).try_acquire().await,
                (Hold::Permit, _) => self.locks.semaphore(lock, PERMITS as u32).acquire().await.map(Some),
            }
        };
        if way == 2 {
            return tokio::time::timeout(wait, asking).await.unwrap_or(Ok(None));
        }
        asking.await
    }

    async fn hold(&self, lock: &'static str, hold: Hold, guard: Guard) {
        let guard = self.arena.enters(lock, self.client, hold, guard);
        for _ in 0..below(3) {
            // Now and then for longer than a lease, without a look.
            let most = if strikes(200) { 1_500 } else { 40 };
            tokio::time::sleep(self.part_of_a_lease(most)).await;
            self.arena.look(lock);
        }
        self.arena.leaves(lock, &guard);
        if let Some(guard) = Arc::into_inner(guard)
            && strikes(500)
        {
            // It may find that the lock was lost.
            let _ = guard.release().await;
        }
    }
}
