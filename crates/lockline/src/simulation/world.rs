//! One run: clients and those who work with them, what is done to them, and the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::arena::Arena;
use super::chance::{below, seeded, strikes};
use super::engine::Engine;
use super::faults::{Counts, Fault, Faults};
use super::host::{self, Host};
use super::network::{Far, FarBells, Way, Weather};
use super::worker::{LOCKS, MUTEXES, Worker};
use crate::Builder;
use crate::driver::Driver;
use crate::time::Clock;
use crate::{Locks, Result};

/// What came of a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) found: Vec<String>,
    pub(super) acquisitions: u64,
    pub(super) faults: Counts,
    pub(super) simulated: Duration,
    pub(super) history: u64,
}

/// Runs a world until its workers have had so many turns together.
pub(super) fn run(seed: u64, turns: u64) -> Outcome {
    seeded(seed, || {
        host::forget_all();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime needs nothing but memory").block_on(live(turns))
    })
}

/// A client of this world, and those who work with it.
struct Inhabitant {
    host: Host,
    way: Arc<Way>,
    bells: Arc<FarBells>,
    locks: Locks,
    workers: Vec<JoinHandle<()>>,
}

struct World {
    began: Instant,
    lease: Duration,
    engine: Arc<Engine>,
    weather: Weather,
    arena: Arc<Arena>,
    faults: Arc<Faults>,
    over: Arc<AtomicBool>,
    workers: u64,
    mutexes: usize,
    stay: u64,
    haste: u64,
    /// Whether the engine may forget, and by how much its clock may still be set back. A clock that is set back by more than
    /// the restart guard, of an engine that forgets as well, is what no engine promises anything for.
    forgets: bool,
    may_step_back: Duration,
}

async fn live(turns: u64) -> Outcome {
    let mut world = World::by_chance();
    let mut clients = Vec::new();
    for _ in 0..2 + below(3) {
        clients.push(world.inhabitant().await);
    }
    // So that a world whose faults leave hardly a turn to anybody comes to an end.
    let latest = world.lease * 300;
    // Where turns are short there are more of them, so that as much happens meanwhile.
    let turns = if world.haste > 0 { 4 * turns } else { turns };
    let pace = 300 + below(4_000);
    while world.arena.acquisitions() < turns && world.began.elapsed() < latest {
        sleep(world.part_of_a_lease(pace)).await;
        let client = below(clients.len() as u64) as usize;
        let within = world.lease * 60;
        if tokio::time::timeout(within, world.strike(&mut clients[client])).await.is_err() {
            world.arena.finds("an operator waits for ever");
        }
    }
    world.heal(&clients).await;
    world.end(clients).await;
    let (found, history) = world.arena.end();
    Outcome {
        found,
        acquisitions: world.arena.acquisitions(),
        faults: world.faults.counts(),
        simulated: world.began.elapsed(),
        history,
    }
}

impl World {
    fn by_chance() -> World {
        let began = Instant::now();
        let lease = Duration::from_millis(500 + below(4_500));
        let arena = Arc::new(Arena::new(&LOCKS));
        let forgets = strikes(500);
        World {
            began,
            lease,
            engine: Arc::new(Engine::new(Host::new(began), lease, &LOCKS, arena.clone())),
            weather: Weather::by_chance(lease),
            arena,
            faults: Arc::default(),
            over: Arc::default(),
            workers: 1 + below(4),
            mutexes: 1 + below(MUTEXES as u64) as usize,
            stay: if strikes(200) { 300 } else { 20 + below(30) },
            haste: if strikes(600) { 850 } else { 0 },
            forgets,
            may_step_back: if forgets { lease.mul_f64(0.9) } else { Duration::from_secs(100 * 86_400) },
        }
    }

    fn part_of_a_lease(&self, most_per_mille: u64) -> Duration {
        self.lease.mul_f64(below(most_per_mille) as f64 / 1_000.0)
    }

    async fn inhabitant(&self) -> Inhabitant {
        let host = Host::new(self.began);
        let way = Way::new(self.weather, host, self.faults.clone());
        let (engine, to, mut bells) = (self.engine.clone(), way.clone(), None);
        let open = async |board| -> Result<Arc<dyn Driver>> {
            let (far, rings) = Far::new(engine, to, board);
            bells = Some(rings);
            Ok(Arc::new(far) as Arc<dyn Driver>)
        };
        let builder = Builder::on_clock(Clock::Simulated(host)).lease(self.lease).owner("somebody");
        let locks = builder.driver(open).await.expect("a way to a simulated engine is always there");
        let owner = locks.owner("everybody here");
        let work = |_| {
            let worker = Worker {
                host,
                way: way.clone(),
                locks: locks.clone(),
                owner: owner.clone(),
                engine: self.engine.clone(),
                lease: self.lease,
                arena: self.arena.clone(),
                faults: self.faults.clone(),
                over: self.over.clone(),
                mutexes: self.mutexes,
                stay: self.stay,
                haste: self.haste,
            };
            tokio::spawn(host.runs(worker.work()))
        };
        let workers = (0..self.workers).map(work).collect();
        Inhabitant { host, way, bells: bells.expect("opened above"), locks, workers }
    }

    /// Something is done to a client, or to the engine; or nothing.
    async fn strike(&mut self, client: &mut Inhabitant) {
        match below(20) {
            0 => self.crash(client).await,
            1 => self.shut_down(client).await,
            2..4 => self.partition(client),
            4..7 => self.pause(client.host),
            7..10 => self.evict(&client.locks).await,
            10 if self.forgets => {
                self.faults.count(Fault::Amnesia);
                self.engine.forget();
            }
            11 => self.step_back(),
            _ => {}
        }
    }

    /// A process dies, with everything that is under way from and to it, and another one takes its place.
    async fn crash(&self, client: &mut Inhabitant) {
        self.faults.count(Fault::Crash);
        client.way.cut();
        client.workers.iter().for_each(JoinHandle::abort);
        // What is left of it must come to an end, like everything else in this process.
        client.host.go_on();
        self.arena.died(client.host);
        *client = self.inhabitant().await;
    }

    /// A client is shut down, as before a deployment: its workers are told, and nothing of it is valid any more.
    async fn shut_down(&self, client: &mut Inhabitant) {
        self.faults.count(Fault::Shutdown);
        client.host.go_on();
        let _ = client.locks.shutdown(self.lease / 4).await;
        self.arena.was_shut_down(client.host);
        let after = self.inhabitant().await;
        let before = std::mem::replace(client, after);
        for worker in before.workers {
            if tokio::time::timeout(self.lease * 10, worker).await.is_err() {
                self.arena.finds("somebody did not hear that the client was shut down");
            }
        }
    }

    fn partition(&self, client: &Inhabitant) {
        self.faults.count(Fault::Partition);
        let time = self.part_of_a_lease(2_000);
        client.way.block(time);
        let bells = client.bells.clone();
        tokio::spawn(async move {
            sleep(time).await;
            bells.connected_again();
        });
    }

    fn pause(&self, host: Host) {
        self.faults.count(Fault::Pause);
        let time = self.part_of_a_lease(2_000);
        host.stop();
        tokio::spawn(async move {
            sleep(time).await;
            host.go_on();
        });
    }

    fn step_back(&mut self) {
        let most = if strikes(500) { self.lease } else { self.lease * 100 };
        let by = most.mul_f64(below(1_000) as f64 / 1_000.0).min(self.may_step_back / 2);
        self.may_step_back -= by;
        self.faults.count(Fault::ClockStep);
        self.engine.step_back(by);
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
            if locks.evict(name.as_str(), ticket, false).await.is_ok() {
                self.faults.count(Fault::Eviction);
            }
        }
    }

    /// Nothing goes wrong any more. The latest message comes after two and a half leases, and may make a place that lapses
    /// after one more; from then on everything must go smoothly, and does so for some time.
    async fn heal(&self, clients: &[Inhabitant]) {
        self.faults.end();
        clients.iter().for_each(|client| client.host.go_on());
        sleep(self.lease * 4).await;
        self.arena.settle();
        self.engine.settle();
        sleep(self.lease * 2).await;
    }

    /// Everybody comes to an end, and nothing is left: not because its lease ran out, but because it was left.
    async fn end(&self, clients: Vec<Inhabitant>) {
        self.over.store(true, Ordering::Relaxed);
        for client in clients {
            for worker in client.workers {
                match tokio::time::timeout(self.lease * 30, worker).await {
                    Ok(Ok(())) => {}
                    Ok(Err(panic)) => self.arena.finds(format!("somebody panicked: {panic}")),
                    Err(_) => self.arena.finds("somebody waits for ever"),
                }
            }
        }
        sleep(Duration::from_millis(100)).await;
        if !self.engine.is_deserted() {
            self.arena.finds("something is left behind");
        }
    }
}
