//! Quorums whose nodes are killed, paused, slow, wiped and restarted, while locks are held and waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Fleet, included};
use crate::drivers::redis::RestartGuard;
use crate::drivers::redis::tests::Server;
use crate::error::{ErrorKind, LossReason};
use crate::{Guard, Locks};

const LEASE: Duration = Duration::from_millis(2400);

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Killed,
    Paused,
    Slow,
    Wiped,
}

async fn client(fleet: &Fleet) -> Locks {
    Locks::builder().lease(LEASE).redlock(fleet.config()).await.unwrap()
}

/// Has the server answer only now and then, until this is dropped.
struct Slowed(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Slowed {
    fn new(servers: &[Server]) -> Slowed {
        let go_on = Arc::new(AtomicBool::new(true));
        let (go, pids) = (go_on.clone(), servers.iter().map(Server::pid).collect::<Vec<_>>());
        let thread = std::thread::spawn(move || {
            while go.load(Ordering::Relaxed) {
                pids.iter().for_each(|pid| Server::signal(*pid, true));
                std::thread::sleep(Duration::from_millis(60));
                pids.iter().for_each(|pid| Server::signal(*pid, false));
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        Slowed(go_on, Some(thread))
    }
}

impl Drop for Slowed {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
        self.1.take().map(std::thread::JoinHandle::join);
    }
}

async fn wipe(server: &Server) {
    redis::cmd("FLUSHALL").exec_async(&mut server.operator().await).await.unwrap();
}

async fn in_time(what: &str, lock: tokio::task::JoinHandle<crate::Result<Guard>>) -> Guard {
    tokio::time::timeout(LEASE * 2, lock)
        .await
        .unwrap_or_else(|_| panic!("{what} is stuck"))
        .unwrap()
        .unwrap()
}

/// A minority of the nodes fails while one holds, and two wait.
async fn a_minority_fails(nodes: usize, fault: Fault) {
    if !included() {
        return;
    }
    let minority = (nodes - 1) / 2;
    let mut fleet = Fleet::start(nodes);
    let clients = [client(&fleet).await, client(&fleet).await, client(&fleet).await];
    let held = clients[0].mutex("m").lock().await.unwrap();
    let mut waiting = Vec::new();
    for (nth, locks) in clients[1..].iter().enumerate() {
        let mutex = locks.mutex("m");
        waiting.push(tokio::spawn(async move { mutex.lock().await }));
        while clients[0].show("m").await.unwrap().waiters.len() <= nth {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let mut slowed = None;
    match fault {
        Fault::Killed => fleet.0[..minority].iter_mut().for_each(Server::kill),
        Fault::Paused => fleet.0[..minority].iter().for_each(|server| server.pause(true)),
        Fault::Slow => slowed = Some(Slowed::new(&fleet.0[..minority])),
        Fault::Wiped => {
            for server in &fleet.0[..minority] {
                wipe(server).await;
            }
        }
    }
    tokio::time::sleep(LEASE + LEASE / 2).await;
    assert!(held.is_valid(), "a majority renews it");
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "nobody else is in");
    let mut token = held.fence();
    held.release().await.unwrap();
    for (nth, waiting) in waiting.into_iter().enumerate() {
        let next = in_time(&format!("waiter {nth}"), waiting).await;
        assert!(next.fence() > token);
        token = next.fence();
        next.release().await.unwrap();
    }
    // And locks that are not contended cost no waiting for the dead.
    let began = Instant::now();
    for _ in 0..5 {
        let guard = clients[1].mutex("n").lock().await.unwrap();
        guard.release().await.unwrap();
    }
    assert!(began.elapsed() < LEASE / 2, "{:?}", began.elapsed());
    let late = client(&fleet).await;
    assert!(late.mutex("m").lock().await.unwrap().fence() > token);

    drop(slowed);
    match fault {
        Fault::Killed => fleet.0[..minority].iter_mut().for_each(Server::up),
        Fault::Paused => fleet.0[..minority].iter().for_each(|server| server.pause(false)),
        Fault::Slow | Fault::Wiped => {}
    }
    // The others fail now: those that are back must do their part.
    tokio::time::sleep(LEASE).await;
    fleet.0[nodes - minority..].iter_mut().for_each(Server::kill);
    let guard = in_time("with those that came back", {
        let mutex = clients[2].mutex("m");
        tokio::spawn(async move { mutex.lock().await })
    })
    .await;
    assert!(guard.fence() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_three_is_killed() {
    a_minority_fails(3, Fault::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_three_is_paused() {
    a_minority_fails(3, Fault::Paused).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_three_is_slow() {
    a_minority_fails(3, Fault::Slow).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_three_is_wiped() {
    a_minority_fails(3, Fault::Wiped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_five_are_killed() {
    a_minority_fails(5, Fault::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_five_are_paused() {
    a_minority_fails(5, Fault::Paused).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_five_are_slow() {
    a_minority_fails(5, Fault::Slow).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_five_are_wiped() {
    a_minority_fails(5, Fault::Wiped).await;
}

/// A majority fails while one holds and another one waits: everybody is told in time, and it goes on when they are back.
async fn a_majority_fails(nodes: usize, fail: fn(&mut Server), heal: fn(&mut Server)) {
    if !included() {
        return;
    }
    let minority = (nodes - 1) / 2;
    let mut fleet = Fleet::start(nodes);
    let (holder, waits, other) = (client(&fleet).await, client(&fleet).await, client(&fleet).await);
    let held = holder.mutex("m").lock().await.unwrap();
    let token = held.fence();
    let mutex = waits.mutex("m");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    while holder.show("m").await.unwrap().waiters.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fleet.0[minority..].iter_mut().for_each(fail);
    let began = Instant::now();
    let refused = other.mutex("n").lock().await.unwrap_err();
    assert!(refused.kind().is_transient(), "{refused:?}");
    assert!(refused.to_string().contains("majority"), "{refused}");
    assert!(began.elapsed() < LEASE + LEASE / 2, "{:?}", began.elapsed());
    let lost = tokio::time::timeout(LEASE * 2, held.lost()).await.expect("it is lost in time");
    assert_eq!(lost.reason, LossReason::Unreachable);
    let told = tokio::time::timeout(LEASE * 2, waiting).await.expect("the waiter is told in time").unwrap();
    assert!(told.as_ref().is_err_and(|error| error.kind().is_transient()), "{told:?}");
    let unreachable = Locks::builder().redlock(fleet.config()).await.unwrap_err();
    assert_eq!(unreachable.kind(), ErrorKind::Unavailable);
    fleet.0[minority..].iter_mut().for_each(heal);
    let mutex = other.mutex("m");
    let next = tokio::spawn(async move {
        loop {
            match mutex.lock().await {
                Err(error) if error.kind().is_transient() => {}
                done => return done,
            }
        }
    });
    assert!(in_time("after the nodes came back", next).await.fence() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_majority_fails_closed_in_time_and_comes_back() {
    a_majority_fails(3, Server::kill, Server::up).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_majority_fails_closed_in_time_and_comes_back() {
    a_majority_fails(5, |server| server.pause(true), |server| server.pause(false)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_forgot_sit_out_the_longest_lease() {
    if !included() {
        return;
    }
    let longest = Duration::from_secs(3);
    let mut fleet = Fleet::start(3);
    tokio::time::sleep(longest + Duration::from_millis(1100)).await;
    let config = fleet.config_with(|node| node.max_lease(longest).restart_guard(RestartGuard::For(longest)));
    let locks = Locks::builder().lease(LEASE).redlock(config).await.unwrap();
    let held = locks.mutex("m").lock().await.unwrap();
    for server in &mut fleet.0[..2] {
        server.kill();
        server.up();
    }
    let restarted = Instant::now();
    let mutex = locks.owner("other").mutex("m");
    // A majority may not vote: that is no reason to call the lock busy.
    let told = loop {
        match mutex.try_lock().await {
            Err(error) if error.retry_after().is_none() => assert!(error.kind().is_transient(), "{error}"),
            Err(error) => break error,
            Ok(_) => assert!(restarted.elapsed() < longest, "it was never told"),
        }
    };
    assert_eq!(told.kind(), ErrorKind::Unavailable, "{told:?}");
    assert!(told.retry_after().unwrap() <= longest + Duration::from_millis(100), "{told:?}");
    assert!(told.to_string().contains("redlock restarted"), "{told}");
    let next = loop {
        match mutex.lock().await {
            Err(error) if error.kind().is_transient() => {}
            done => break done.unwrap(),
        }
    };
    assert!(!held.is_valid(), "nobody overlaps");
    assert!(restarted.elapsed() > longest - Duration::from_secs(1), "{:?}", restarted.elapsed());
    assert!(next.fence() > held.fence());
    // It is told for a moment too long rather than too short.
    let open = Instant::now();
    while locks.shut().is_some() {
        assert!(open.elapsed() < Duration::from_secs(5), "{:?}", locks.shut());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// How often each node was asked to run a script.
async fn scripts_run(fleet: &Fleet) -> Vec<u64> {
    let mut calls = Vec::new();
    for server in &fleet.0 {
        let stats: String =
            redis::cmd("INFO").arg("commandstats").query_async(&mut server.operator().await).await.unwrap();
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        calls.push(line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap()));
    }
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_few() {
    if !included() {
        return;
    }
    let fleet = Fleet::start(5);
    let locks = Locks::builder().redlock(fleet.config()).await.unwrap();
    for _ in 0..10 {
        locks.mutex("free").lock().await.unwrap().release().await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(scripts_run(&fleet).await, [20; 5], "one to acquire, one to release");

    let refused = locks.semaphore("s", 2).acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert_eq!(scripts_run(&fleet).await, [20; 5], "refused before anything is sent");

    let mut tasks = Vec::new();
    for _ in 0..64 {
        let mutex = locks.mutex("busy");
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                mutex.lock().await.unwrap().release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    for calls in scripts_run(&fleet).await {
        let each = (calls - 20) as f64 / 640.0;
        assert!(each <= 4.0, "{each} commands per node and acquisition with 64 waiters");
        println!("{each} commands per node and acquisition with 64 waiters");
    }
}
