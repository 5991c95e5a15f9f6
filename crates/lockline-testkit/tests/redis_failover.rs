//! Redis servers that are killed or stopped while locks are held and waited for, if this run includes Sentinel or Cluster.
//! Each test starts servers of its own.
// A program with a harness of its own is not what clippy takes for a test.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::Arguments;
use lockline::{Guard, Locks};
use lockline_testkit::redis_servers::{self as servers, Server, WATCHED};
use lockline_testkit::server::{block_on as run, with_own_servers as test};
use lockline_testkit::setup::{until_waiting, within};
use tokio::task::JoinHandle;

/// Longer than most failovers take on a busy machine. It is also how long the restart guard lasts.
const LEASE: Duration = Duration::from_secs(10);
/// A failover, and a restart guard, and some.
const FAILED_OVER: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let trials = vec![
        test("redis-sentinel", "sentinel_primary_is_killed", sentinel_primary_is_killed),
        test("redis-sentinel", "stopped_primary_comes_back", stopped_primary_comes_back),
        test("redis-cluster", "cluster_primary_is_killed", cluster_primary_is_killed),
        test("redis-cluster", "slots_move_while_locks_are_held", slots_move_while_locks_are_held),
        test("redis-replicas", "replicas_that_are_gone_are_missed", replicas_that_are_gone_are_missed),
        test("redis-replicas", "replica_that_came_later_counts", replica_that_came_later_counts),
    ];
    // Each has up to six servers with leases and timeouts of their own: side by side they would take each other's time.
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn hosts(servers: &[Server]) -> String {
    servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect::<Vec<_>>().join(",")
}

async fn client(url: &str) -> Locks {
    Locks::builder().lease(LEASE).connect(url).await.unwrap()
}

/// Who has the lock, as everybody who gets it sees it.
#[derive(Default)]
struct Turns {
    seen: Mutex<Seen>,
    stop: AtomicBool,
}

#[derive(Default)]
struct Seen {
    holder: Option<Arc<Guard>>,
    last_token: u64,
    /// When each turn began.
    turns: Vec<Instant>,
    problems: Vec<String>,
}

impl Turns {
    /// Takes turns until it is over. An engine that cannot be reached, or promises too little, gives no turn.
    async fn take(self: Arc<Self>, locks: Locks) {
        while !self.stop.load(Ordering::SeqCst) {
            match locks.mutex("turns").try_lock_for(Duration::from_secs(2)).await {
                Ok(Some(guard)) => {
                    let guard = Arc::new(guard);
                    self.enter(&guard);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    self.seen.lock().unwrap().holder.take_if(|holder| Arc::ptr_eq(holder, &guard));
                    if let Some(guard) = Arc::into_inner(guard) {
                        let _ = guard.release().await;
                    }
                }
                Ok(None) => {}
                Err(error) => assert!(error.kind().is_transient(), "{error:?}"),
            }
        }
    }

    fn enter(&self, guard: &Arc<Guard>) {
        let mut seen = self.seen.lock().unwrap();
        if seen.holder.as_ref().is_some_and(|holder| holder.is_valid()) && guard.is_valid() {
            let problem = format!("two valid guards after {} turns", seen.turns.len());
            seen.problems.push(problem);
        }
        let token = guard.fence().token();
        if token <= seen.last_token {
            let problem = format!("token {token} after {}", seen.last_token);
            seen.problems.push(problem);
        }
        seen.last_token = token;
        seen.turns.push(Instant::now());
        seen.holder = Some(guard.clone());
    }

    fn turns_since(&self, when: Instant) -> usize {
        self.seen.lock().unwrap().turns.iter().filter(|turn| **turn > when).count()
    }

    fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
        assert_eq!(self.seen.lock().unwrap().problems, Vec::<String>::new());
    }
}

fn take_turns(all: &[&Locks]) -> Arc<Turns> {
    let turns = Arc::new(Turns::default());
    for locks in all {
        for _ in 0..3 {
            tokio::spawn(turns.clone().take((*locks).clone()));
        }
    }
    turns
}

async fn turns_are_taken(turns: &Turns, since: Instant) {
    within(FAILED_OVER, "turns are taken", async || turns.turns_since(since) > 10).await;
}

/// Releases what was held over a failover. It was taken many turns before, so it had been copied, and is kept, unless the failover took so long that its lease may have ended.
async fn release(held: Guard, failover_took: Duration) {
    match held.loss() {
        None => held.release().await.unwrap(),
        Some(lost) => {
            assert!(failover_took > LEASE / 2, "{lost} although the failover took {failover_took:?}");
        }
    }
}

/// Whoever waited over a failover gets in. Servers may need several elections, of seconds each: who had no answer for as long as its
/// place lasts, and then none to a join for a lease, is told so, and gets in when it asks again.
async fn gets_in(
    waiter: JoinHandle<lockline::Result<Guard>>,
    locks: &Locks,
    name: &str,
    failover_took: Duration,
) {
    let got = tokio::time::timeout(FAILED_OVER, waiter).await.expect("it ends").unwrap();
    let guard = match got {
        Ok(guard) => guard,
        Err(error) => {
            assert!(error.kind().is_transient(), "{error}");
            assert!(
                failover_took > LEASE + LEASE / 2,
                "{error} although the failover took {failover_took:?}"
            );
            tokio::time::timeout(FAILED_OVER, locks.mutex(name).lock()).await.expect("it gets in").unwrap()
        }
    };
    guard.release().await.unwrap();
}

/// The port of the primary that most Sentinels name.
fn primary(sentinels: &[Server]) -> Option<u16> {
    let ports: Vec<String> = sentinels
        .iter()
        .filter_map(|one| one.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", WATCHED]).ok())
        .filter_map(|says| says.lines().nth(1).map(str::to_owned))
        .collect();
    let agree = ports.iter().collect::<BTreeSet<_>>().len() == 1;
    ports.first().filter(|_| agree)?.parse().ok()
}

/// The primary dies. Holders keep what was copied, waiters get in behind them, and everybody finds the new primary.
fn sentinel_primary_is_killed(home: &Path) {
    run(async {
        let (mut all, sentinels) = servers::watched(home, servers::QUICK).unwrap();
        let url = format!("redis-sentinel://{}/{WATCHED}?max_lease=10s&restart_guard=10s", hosts(&sentinels));
        let (one, other) = (client(&url).await, client(&url).await);
        let turns = take_turns(&[&one, &other]);
        let held = one.mutex("held").lock().await.unwrap();
        let mutex = other.mutex("held");
        let waiter = tokio::spawn(async move { mutex.lock().await });
        until_waiting(&one, "held", 1).await;
        turns_are_taken(&turns, Instant::now()).await;

        let old = all[0].port;
        all[0].kill();
        let killed = Instant::now();
        let another = async || primary(&sentinels).is_some_and(|port| port != old);
        let took = within(FAILED_OVER, "another primary", another).await;
        turns_are_taken(&turns, killed).await;
        assert!(killed.elapsed() > LEASE - Duration::from_secs(1), "the restart guard holds everybody off");
        release(held, took).await;
        gets_in(waiter, &other, "held", took).await;
        turns.end();
    });
}

/// The primary is stopped, another takes its place, and it comes back and believes for a while that nothing has happened.
fn stopped_primary_comes_back(home: &Path) {
    run(async {
        let (all, sentinels) = servers::watched(home, servers::QUICK).unwrap();
        let url = format!(
            "redis-sentinel://{}/{WATCHED}?max_lease=10s&restart_guard=10s&replicas=all",
            hosts(&sentinels)
        );
        let (one, other) = (client(&url).await, client(&url).await);
        let turns = take_turns(&[&one, &other]);
        turns_are_taken(&turns, Instant::now()).await;

        let old = all[0].port;
        all[0].pause().unwrap();
        within(FAILED_OVER, "another primary", async || primary(&sentinels).is_some_and(|port| port != old))
            .await;
        // Somebody who knows nothing of the failover, and asks the old primary the moment it is back.
        let stray = format!("redis://127.0.0.1:{old}?restart_guard=off&replicas=all");
        let asking = tokio::spawn(async move {
            let until = Instant::now() + Duration::from_secs(4);
            let mut asked = 0;
            while Instant::now() < until {
                let Ok(locks) = Locks::builder().lease(LEASE).connect(&stray).await else { continue };
                let mutex = locks.mutex("turns").lease(Duration::from_millis(600));
                if let Ok(got) = mutex.try_lock().await {
                    assert!(got.is_none(), "the old primary grants a lock that no replica has");
                }
                asked += 1;
            }
            asked
        });
        all[0].go_on().unwrap();
        let back = Instant::now();
        asking.await.unwrap();
        turns_are_taken(&turns, back).await;
        let guard = one.mutex("new").lock().await.unwrap();
        assert_eq!(guard.replicas(), Some(2));
        guard.release().await.unwrap();
        turns.end();
    });
}

const NAMES: usize = 12;

/// A primary of a cluster dies. Locks elsewhere notice nothing; its own go on with its replica.
fn cluster_primary_is_killed(home: &Path) {
    run(async {
        let mut nodes = servers::cluster(home, servers::QUICK).unwrap();
        let url = format!("redis-cluster://{}?max_lease=10s&restart_guard=10s", hosts(&nodes[..3]));
        let (one, other) = (client(&url).await, client(&url).await);
        let turns = take_turns(&[&one, &other]);
        let mut held = Vec::new();
        let mut waiters = Vec::new();
        for n in 0..NAMES {
            held.push(one.mutex(format!("{n}")).lock().await.unwrap());
            let mutex = other.mutex(format!("{n}"));
            waiters.push(tokio::spawn(async move { mutex.lock().await }));
            until_waiting(&one, &format!("{n}"), 1).await;
        }
        let waited_for = one.view("").await.unwrap().iter().filter(|line| !line.waiters.is_empty()).count();
        assert!(waited_for >= NAMES, "a view shows the lines of all primaries");
        turns_are_taken(&turns, Instant::now()).await;

        nodes[0].kill();
        let killed = Instant::now();
        let new = |node: &Server| node.cli(&["ROLE"]).is_ok_and(|role| role.starts_with("master"));
        let took = within(FAILED_OVER, "the replica is promoted", async || new(&nodes[3])).await;
        turns_are_taken(&turns, killed).await;
        for guard in held {
            release(guard, took).await;
        }
        for (n, waiter) in waiters.into_iter().enumerate() {
            gets_in(waiter, &other, &format!("{n}"), took).await;
        }
        turns.end();
    });
}

/// All slots of one node move to another, key by key, while locks are held and taken in turns.
fn slots_move_while_locks_are_held(home: &Path) {
    run(async {
        let nodes = servers::cluster(home, servers::QUICK).unwrap();
        let url = format!("redis-cluster://{}?restart_guard=off", hosts(&nodes[..1]));
        let (one, other) = (client(&url).await, client(&url).await);
        let turns = take_turns(&[&one, &other]);
        let mut held = Vec::new();
        for n in 0..NAMES {
            held.push(one.mutex(format!("{n}")).lock().await.unwrap());
        }
        let (from, to) = (&nodes[0], &nodes[1]);
        let ids = [from.cli(&["CLUSTER", "MYID"]).unwrap(), to.cli(&["CLUSTER", "MYID"]).unwrap()];
        // Those with locks in them, and some without.
        let filled: Vec<u16> = (0..=5461)
            .filter(|slot| from.cli(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).unwrap() != "0")
            .chain([0, 5461])
            .collect();
        for slot in filled.iter().map(u16::to_string) {
            to.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]).unwrap();
            from.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]).unwrap();
            loop {
                let keys = from.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"]).unwrap();
                let Some(key) = keys.lines().next() else { break };
                let port = to.port.to_string();
                from.cli(&["MIGRATE", "127.0.0.1", &port, key, "0", "1000", "REPLACE"]).unwrap();
            }
            for node in [to, from] {
                node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &ids[1]]).unwrap();
            }
        }
        let moved = Instant::now();
        turns_are_taken(&turns, moved).await;
        // Longer than a lease: each of them is renewed where it is now.
        tokio::time::sleep(LEASE + LEASE / 5).await;
        for guard in held {
            assert!(guard.is_valid(), "{}: {:?}", guard.name(), guard.loss());
            guard.release().await.unwrap();
        }
        turns.end();
    });
}

/// With too few replicas nobody gets a lock, and is told how many there were; with enough again, all goes on.
fn replicas_that_are_gone_are_missed(home: &Path) {
    run(async {
        let all = servers::replicated(home, 2).unwrap();
        let url = format!("redis://127.0.0.1:{}?restart_guard=off&replicas=all", all[0].port);
        let locks = client(&url).await;
        let held = locks.mutex("held").lock().await.unwrap();
        assert_eq!(held.replicas(), Some(2));
        let mutex = locks.mutex("held");
        let waiter = tokio::spawn(async move { mutex.lock().await });
        until_waiting(&locks, "held", 1).await;

        all[2].pause().unwrap();
        let error = locks.mutex("new").try_lock().await.unwrap_err();
        assert_eq!(error.kind(), lockline::ErrorKind::Unavailable);
        assert!(error.message().contains("1 of 2 replicas"), "{error}");
        assert!(locks.show("new").await.unwrap().holders.is_empty(), "the claim left");
        let lost = tokio::time::timeout(LEASE + Duration::from_secs(1), held.lost())
            .await
            .expect("it is lost in time");
        assert_eq!(lost.reason, lockline::LossReason::Unreachable);

        all[2].go_on().unwrap();
        drop(held);
        if let Ok(next) = tokio::time::timeout(FAILED_OVER, waiter).await.expect("it ends").unwrap() {
            assert_eq!(next.replicas(), Some(2));
            next.release().await.unwrap();
        }
        let next = locks.mutex("held").lock().await.unwrap();
        assert_eq!(next.replicas(), Some(2));
        next.release().await.unwrap();
    });
}

/// A replica that follows when the client has connected already may be the one that is promoted.
fn replica_that_came_later_counts(home: &Path) {
    run(async {
        let all = servers::replicated(home, 1).unwrap();
        let url = format!("redis://127.0.0.1:{}?restart_guard=off&replicas=all", all[0].port);
        let locks = client(&url).await;
        let held = locks.mutex("held").lock().await.unwrap();
        assert_eq!(held.replicas(), Some(1));

        let later = Server::start(home, "later", &[]).unwrap();
        later.cli(&["REPLICAOF", "127.0.0.1", &all[0].port.to_string()]).unwrap();
        let follows = || {
            all[0].cli(&["INFO", "replication"]).is_ok_and(|says| says.matches("state=online").count() == 2)
        };
        within(FAILED_OVER, "the new replica follows", async || follows()).await;
        // The primary says so with the first answer that is waited for, and from then on both must have it.
        let next = locks.mutex("next").lock().await.unwrap();
        assert_eq!(next.replicas(), Some(2));
        later.pause().unwrap();
        let error = locks.mutex("new").try_lock().await.unwrap_err();
        assert!(error.message().contains("1 of 2 replicas"), "{error}");
        later.go_on().unwrap();
        // Neither could be renewed meanwhile, for as long as a lease: they may be lost.
        drop((next, held));
    });
}
