//! A primary that is killed while locks are held, and its synchronous standby, which is promoted, with a role or a database whose
//! commits do not wait for that standby.

use std::time::{Duration, Instant};

use super::{Server, included};
use crate::driver::Exclusion;
use crate::{Guard, Locks};

/// Longer than all of it takes on a busy machine: nothing here ends by itself.
const LEASE: Duration = Duration::from_secs(90);
const DURABLE: &str = "fsync=on\nfull_page_writes=on";

/// What a client gets that asks, perhaps of a server which has just been promoted.
async fn asked(locks: &Locks, name: &str) -> Option<Guard> {
    let start = Instant::now();
    loop {
        match locks.mutex(name).try_lock().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.kind().is_transient(), "{error:?}"),
        }
        assert!(start.elapsed() < Duration::from_secs(30), "the new primary is not found");
    }
}

/// Holds one lock that the standby has, asks for another while there is no standby, and has the primary die.
async fn never_two_holders(setting: &str) {
    let mut primary = Server::start(DURABLE);
    let mut standby = Server::standby_of(&primary, "standby");
    primary.ask(setting).unwrap();
    primary.ask("ALTER SYSTEM SET synchronous_standby_names = 'standby'").unwrap();
    primary.ask("SELECT pg_reload_conf()").unwrap();
    primary.until("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "1");
    primary.until("SHOW synchronous_commit", "local");
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?failover=sync",
        primary.port, standby.port
    );
    let connect = || async { Locks::builder().lease(LEASE).connect(&url).await.unwrap() };
    let one = connect().await;
    assert_eq!(one.guarantees().exclusion, Exclusion::NoForwardStepOverFailover);
    let held = one.mutex("held").lock().await.unwrap();
    // By the short way, too, which a lock takes that was found free before.
    one.mutex("again").lock().await.unwrap().release().await.unwrap();
    let again = one.mutex("again").lock().await.unwrap();

    // What is asked for now is on the primary's disk alone. Long enough for an answer that does not wait for the standby.
    standby.kill();
    let mutex = one.mutex("asked");
    let asking = tokio::spawn(async move { mutex.lock().await });
    tokio::time::sleep(Duration::from_secs(1)).await;

    primary.kill();
    standby.start_again();
    standby.ask("SELECT pg_promote(true, 20)").unwrap();
    let other = connect().await;
    for guard in [&held, &again] {
        assert!(asked(&other, guard.name()).await.is_none(), "{setting}: {} has two holders", guard.name());
        assert!(guard.is_valid(), "{setting}: {:?}", guard.loss());
    }
    // The answer that never came is asked for again where there is a primary now: one of the two has it.
    let second = asked(&other, "asked").await;
    if let Some(second) = second {
        assert!(!asking.is_finished(), "{setting}: two holders of what only the dead primary had");
        second.release().await.unwrap();
    }
    let first = tokio::time::timeout(LEASE, asking).await.expect("its turn comes").unwrap().unwrap();
    first.release().await.unwrap();
    let before = held.fence();
    held.release().await.unwrap();
    let next = other.mutex("held").lock().await.unwrap();
    assert!(next.fence() > before, "tokens go on rising");
    next.release().await.unwrap();
    again.release().await.unwrap();
}

#[tokio::test]
async fn a_role_whose_commits_are_local_has_one_holder_after_a_promotion() {
    if included().is_none() {
        return;
    }
    never_two_holders("ALTER ROLE postgres SET synchronous_commit = 'local'").await;
}

#[tokio::test]
async fn a_database_whose_commits_are_local_has_one_holder_after_a_promotion() {
    if included().is_none() {
        return;
    }
    never_two_holders("ALTER DATABASE postgres SET synchronous_commit = 'local'").await;
}
