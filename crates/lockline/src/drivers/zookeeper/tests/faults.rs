//! Servers that die, hang and come back while locks are held and waited for; answers that get lost.

use std::time::{Duration, Instant};

use super::proxy::Proxy;
use super::{Ensemble, claim, included, is_in, open, place, within};
use crate::driver::{Driver, Query};
use crate::drivers::zookeeper::ZookeeperConfig;
use crate::drivers::zookeeper::node::{Data, Node};
use crate::line::{Mode, Standing};
use crate::{Guard, Locks, LossReason};

const LEASE: Duration = Duration::from_secs(6);

async fn locks(ensemble: &Ensemble, lease: Duration) -> Locks {
    Locks::builder().lease(lease).connect(&ensemble.url()).await.unwrap()
}

/// Somebody who holds a lock, and somebody who waits for it.
async fn held_and_waited_for(locks: &Locks) -> (Guard, tokio::task::JoinHandle<crate::Result<Guard>>) {
    let guard = locks.mutex("m").lock().await.unwrap();
    let mutex = locks.mutex("m");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    within(LEASE, "it waits", async || locks.show("m").await.unwrap().waiters.len() == 1).await;
    (guard, waiting)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_is_killed_and_nobody_loses_anything() {
    if !included() {
        return;
    }
    let mut ensemble = Ensemble::start(3);
    let locks = locks(&ensemble, LEASE).await;
    let (guard, waiting) = held_and_waited_for(&locks).await;
    ensemble.kill(ensemble.leader());
    // For longer than a lease: it was renewed by the new leader.
    tokio::time::sleep(LEASE + LEASE / 4).await;
    assert_eq!(guard.loss(), None);
    let token = guard.fence();
    guard.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().fence() > token, "in its turn, with a larger token");
}

/// Sessions end by the servers' monotonic clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wall_clocks_are_stepped_and_nobody_notices() {
    if !included() {
        return;
    }
    let ensemble = Ensemble::start(1);
    let locks = locks(&ensemble, LEASE).await;
    let (guard, waiting) = held_and_waited_for(&locks).await;
    for step in [3_600_000, -7_200_000] {
        ensemble.clock.step(step).unwrap();
        let told = ensemble.wall_clock_ms().await - now_ms();
        assert!((told - step).abs() < 60_000, "the server's clock is {told} ms off, not {step}");
        tokio::time::sleep(LEASE / 2 + LEASE / 4).await;
        assert_eq!(guard.loss(), None, "{step}");
        assert!(!waiting.is_finished(), "{step}");
    }
    let token = guard.fence();
    guard.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().fence() > token);
}

fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_is_stopped_and_its_clients_go_on_elsewhere() {
    if !included() {
        return;
    }
    let ensemble = Ensemble::start(3);
    let follower = (ensemble.leader() + 1) % 3;
    let mut held = Vec::new();
    let lease = Duration::from_secs(10);
    // So many that some are connected to it.
    for nth in 0..6 {
        let locks = locks(&ensemble, lease).await;
        held.push((locks.mutex(format!("m/{nth}")).lock().await.unwrap(), locks));
    }
    ensemble.stop(follower);
    tokio::time::sleep(lease + lease / 4).await;
    let lost: Vec<_> = held.iter().filter_map(|(guard, _)| guard.loss()).collect();
    ensemble.go_on(follower);
    assert!(lost.is_empty(), "{lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_is_lost_for_a_moment_and_nobody_loses_anything() {
    if !included() {
        return;
    }
    let mut ensemble = Ensemble::start(3);
    let lease = Duration::from_secs(30);
    let locks = locks(&ensemble, lease).await;
    let (guard, waiting) = held_and_waited_for(&locks).await;
    ensemble.kill(0);
    ensemble.kill(1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    ensemble.up(0);
    ensemble.up(1);
    ensemble.until_all_serve();
    within(lease / 2, "it answers again", async || locks.show("m").await.is_ok()).await;
    assert_eq!(guard.loss(), None);
    guard.release().await.unwrap();
    let next = tokio::time::timeout(lease, waiting).await.expect("it gets in").unwrap().unwrap();
    assert!(next.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_is_lost_for_longer_than_a_lease_and_holders_know_in_time() {
    if !included() {
        return;
    }
    let mut ensemble = Ensemble::start(3);
    let lease = Duration::from_secs(3);
    let locks = locks(&ensemble, lease).await;
    let (guard, waiting) = held_and_waited_for(&locks).await;
    let before = Instant::now();
    ensemble.kill(0);
    ensemble.kill(1);
    // Of the last answer at most a lease is left, and none can come any more.
    let lost = tokio::time::timeout(lease + Duration::from_millis(200), guard.lost()).await;
    assert_eq!(lost.expect("not when the client library finally says so").reason, LossReason::Unreachable);
    assert!(before.elapsed() <= lease + Duration::from_millis(200));
    ensemble.up(0);
    ensemble.up(1);
    ensemble.until_all_serve();
    drop(guard);
    let next = tokio::time::timeout(lease * 5, waiting).await.expect("it gets in").unwrap();
    match next {
        Ok(next) => assert!(next.is_valid()),
        // It had waited for a whole lease without an answer.
        Err(error) => assert!(error.kind().is_transient(), "{error:?}"),
    }
    let next =
        tokio::time::timeout(lease * 5, locks.mutex("n").lock()).await.expect("locks can be had again");
    assert!(next.unwrap().is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_ends_guards_before_the_session_can_end() {
    if !included() {
        return;
    }
    let ensemble = Ensemble::start(1);
    let lease = Duration::from_secs(2);
    let locks = locks(&ensemble, lease).await;
    let guard = locks.mutex("m").lock().await.unwrap();
    let stopped = Instant::now();
    ensemble.stop(0);
    guard.lost().await;
    let took = stopped.elapsed();
    ensemble.go_on(0);
    assert!(took <= lease + Duration::from_millis(100), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_a_create_makes_no_second_place() {
    if !included() {
        return;
    }
    let ensemble = Ensemble::start(1);
    let proxy = Proxy::to(ensemble.ports[0]);
    let (driver, _) = open(ZookeeperConfig::new([format!("127.0.0.1:{}", proxy.port)])).await;
    // So that the line is there, and the next request makes the claim.
    let first = claim("m", Mode::Exclusive, LEASE);
    assert!(is_in(&driver.join(&first, true).await.unwrap()));
    for lost in 1..=5 {
        let second = claim("m", Mode::Exclusive, LEASE);
        proxy.lose_an_answer();
        let standing = driver.join(&second, true).await.unwrap();
        assert_eq!(proxy.lost(), lost);
        let lines = driver.view(&Query::Name(first.name.clone())).await.unwrap();
        assert_eq!((lines[0].holders.len(), lines[0].waiters.len()), (1, 1), "one place each");
        assert_eq!(standing.ticket(), Some(lines[0].waiters[0].ticket));
        driver.leave(&place(&second, None)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_znode_with_our_id_from_another_session_is_not_ours() {
    if !included() {
        return;
    }
    let ensemble = Ensemble::start(1);
    let (driver, _) = open(ensemble.config()).await;
    let (first, second) = (claim("m", Mode::Exclusive, LEASE), claim("m", Mode::Exclusive, LEASE));
    driver.join(&first, true).await.unwrap();
    let stranger = ensemble.stranger().await;
    let options =
        zookeeper_client::CreateMode::EphemeralSequential.with_acls(zookeeper_client::Acls::anyone_all());
    let path = format!("/lockline/m/{}", Node::prefix(&second));
    let (_, number) = stranger.create(&path, b"", &options).await.unwrap();
    let session = driver.inner.session("test", LEASE).await.unwrap();
    let data = Data::of(&second);
    let found = driver.inner.find_own(&session, "/lockline/m", &second, &data).await.unwrap();
    assert!(found.is_none(), "the id is ours, but not the session");
    assert_eq!(stranger.check_stat(&format!("{path}{number}")).await.unwrap(), None, "and it is gone");
    let standing = driver.join(&second, true).await.unwrap();
    let found = driver.inner.find_own(&session, "/lockline/m", &second, &data).await.unwrap();
    assert_eq!(found.map(|found| found.ticket), standing.ticket());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_knows_everybody() {
    if !included() {
        return;
    }
    let mut ensemble = Ensemble::start(1);
    let (driver, heard) = open(ensemble.config()).await;
    // Nobody renews here, and a server takes its time to start.
    let lease = Duration::from_secs(40);
    let (first, second) = (claim("m", Mode::Exclusive, lease), claim("m", Mode::Exclusive, lease));
    let Standing::In { ticket } = driver.join(&first, true).await.unwrap() else { panic!() };
    driver.join(&second, true).await.unwrap();
    ensemble.kill(0);
    ensemble.up(0);
    ensemble.until_all_serve();
    assert_eq!(driver.renew(&[place(&first, Some(ticket))]).await.unwrap(), [Standing::In { ticket }]);
    driver.leave(&place(&first, None)).await.unwrap();
    assert_eq!(heard.next().await.1.id, second.id);
}
