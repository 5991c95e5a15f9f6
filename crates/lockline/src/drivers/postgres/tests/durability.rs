//! What the server's settings keep, and what the row says of it.

use std::time::{Duration, Instant};

use super::{Server, claim, included, is_in, open, place};
use crate::driver::{Driver, Exclusion, Fencing};
use crate::drivers::postgres::{Pooler, Postgres, PostgresConfig};
use crate::line::{Mode, Place};
use crate::url::EngineUrl;

const LEASE: Duration = Duration::from_secs(60);
/// Behind what tests' servers are started with.
const DURABLE: &str = "fsync=on\nfull_page_writes=on";

/// Changes a setting of the running server.
fn set(server: &Server, setting: &str) {
    server.ask(&format!("ALTER SYSTEM SET {setting}")).unwrap();
    server.ask("SELECT pg_reload_conf()").unwrap();
}

/// Renews until the row says this, as a client does that holds a lock.
async fn renewed_until(postgres: &Postgres, held: &Place, exclusion: Exclusion) {
    let start = Instant::now();
    while postgres.guarantees().exclusion != exclusion {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", postgres.guarantees());
        assert!(is_in(&postgres.renew(std::slice::from_ref(held)).await.unwrap()[0]));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_server_that_loses_what_it_answered_is_trusted_less_while_it_does() {
    if included().is_none() {
        return;
    }
    let server = Server::start(DURABLE);
    let (postgres, _) = open(server.config()).await;
    assert_eq!(postgres.guarantees().exclusion, Exclusion::NoForwardStep);
    assert_eq!(postgres.guarantees().fencing, Fencing::Always);
    let held = claim("a", Mode::Exclusive, LEASE);
    let held = place(&held, postgres.join(&held, true).await.unwrap().ticket());
    for setting in ["fsync", "full_page_writes"] {
        set(&server, &format!("{setting} = off"));
        renewed_until(&postgres, &held, Exclusion::Probable).await;
        assert_eq!(postgres.guarantees().fencing, Fencing::ClockBounded);
        set(&server, &format!("{setting} = on"));
        renewed_until(&postgres, &held, Exclusion::NoForwardStep).await;
    }
}

/// A client that holds nothing hears of it by its own joins, by the short way, too.
#[tokio::test]
async fn a_join_says_what_the_server_keeps() {
    if included().is_none() {
        return;
    }
    let server = Server::start(DURABLE);
    let (postgres, _) = open(server.config()).await;
    set(&server, "fsync = off");
    let start = Instant::now();
    while postgres.guarantees().exclusion != Exclusion::Probable {
        assert!(start.elapsed() < Duration::from_secs(20), "no join has said it");
        let one = claim("a", Mode::Exclusive, LEASE);
        let ticket = postgres.join(&one, true).await.unwrap().ticket();
        postgres.leave(&place(&one, ticket)).await.unwrap();
    }
}

/// Whatever the role's own setting is: what was answered is on the standby's disk.
#[tokio::test]
async fn no_join_is_answered_that_the_synchronous_standby_does_not_have() {
    if included().is_none() {
        return;
    }
    for (setting, pooler) in [
        ("local", Pooler::None),
        ("local", Pooler::Transaction),
        ("remote_write", Pooler::None),
        ("off", Pooler::Transaction),
    ] {
        let primary = Server::start(DURABLE);
        let mut standby = Server::standby_of(&primary, "standby");
        primary.ask(&format!("ALTER ROLE postgres SET synchronous_commit = '{setting}'")).unwrap();
        set(&primary, "synchronous_standby_names = 'standby'");
        primary.until("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "1");
        let url = format!(
            "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?failover=sync",
            primary.port, standby.port
        );
        let config = PostgresConfig::from_url(EngineUrl::parse(&url).unwrap()).unwrap().pooler(pooler);
        let (postgres, _) = open(config).await;
        assert_eq!(postgres.guarantees().exclusion, Exclusion::NoForwardStepOverFailover);
        // By the short way, too.
        let first = claim("a", Mode::Exclusive, LEASE);
        let ticket = postgres.join(&first, true).await.unwrap().ticket();
        postgres.leave(&place(&first, ticket)).await.unwrap();
        // Without its standby the primary answers nothing that only it would keep.
        standby.kill();
        let held = claim("a", Mode::Exclusive, LEASE);
        let join = tokio::time::timeout(Duration::from_secs(1), postgres.join(&held, true)).await;
        assert!(!matches!(join, Ok(Ok(_))), "{setting} behind {pooler:?}: {join:?}");
    }
}

#[tokio::test]
async fn a_failover_is_not_promised_without_a_synchronous_standby() {
    if included().is_none() {
        return;
    }
    let server = Server::start(DURABLE);
    let standby = Server::standby_of(&server, "standby");
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres?failover=sync", server.port);
    let (postgres, _) = open(PostgresConfig::from_url(EngineUrl::parse(&url).unwrap()).unwrap()).await;
    assert_eq!(postgres.guarantees().exclusion, Exclusion::Probable);
    let held = claim("a", Mode::Exclusive, LEASE);
    let held = place(&held, postgres.join(&held, true).await.unwrap().ticket());
    set(&server, "synchronous_standby_names = 'standby'");
    renewed_until(&postgres, &held, Exclusion::NoForwardStepOverFailover).await;
    set(&server, "synchronous_standby_names = ''");
    renewed_until(&postgres, &held, Exclusion::Probable).await;
    drop(standby);
}
