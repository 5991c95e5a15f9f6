//! Standbys that take over, and servers that stop taking writes.

use std::time::{Duration, Instant};

use super::{Server, claim, included, open, place};
use crate::driver::{Driver, Exclusion, Fencing};
use crate::drivers::postgres::Postgres;
use crate::drivers::testing::Heard;
use crate::error::ErrorKind;
use crate::line::{Mode, Standing};

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_promoted_standby_has_everything() {
    if included().is_none() {
        return;
    }
    let mut primary = Server::start("");
    let standby = Server::standby_of(&primary, "standby");
    primary.ask("ALTER SYSTEM SET synchronous_standby_names = 'standby'").unwrap();
    primary.ask("SELECT pg_reload_conf()").unwrap();
    primary.until("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "1");

    let alone = Postgres::connect(standby.config(), std::sync::Arc::new(Heard::default())).await.unwrap_err();
    assert_eq!(alone.kind(), ErrorKind::Unavailable, "{alone:?}");

    let (postgres, heard) = open(primary.config().or_host("127.0.0.1", standby.port)).await;
    let claims: Vec<_> = (0..20).map(|n| claim(&format!("{}", n % 10), Mode::Exclusive, LEASE)).collect();
    let mut standings = Vec::new();
    for claim in &claims {
        standings.push(postgres.join(claim, true).await.unwrap());
    }
    primary.kill();
    standby.ask("SELECT pg_promote(true, 10)").unwrap();
    let places: Vec<_> =
        claims.iter().zip(&standings).map(|(claim, standing)| place(claim, standing.ticket())).collect();
    let start = Instant::now();
    let after = loop {
        match tokio::time::timeout(Duration::from_secs(5), postgres.renew(&places)).await {
            Ok(Ok(after)) => break after,
            other => assert!(start.elapsed() < Duration::from_secs(30), "{other:?}"),
        }
    };
    for (before, after) in standings.iter().zip(&after) {
        assert_eq!(before.ticket(), after.ticket());
        assert_eq!(matches!(before, Standing::In { .. }), matches!(after, Standing::In { .. }));
    }
    assert!(heard.looks() > 0);
    // Tokens go on rising.
    postgres.leave(&places[0]).await.unwrap();
    assert_eq!(heard.next().await.1.id, claims[10].id);
    let later = postgres.join(&claim("0", Mode::Exclusive, LEASE), true).await.unwrap();
    assert!(later.ticket() > standings[10].ticket());
}

/// What an asynchronous standby had not received is forgotten, and said to be; tokens go on rising by the clock.
#[tokio::test]
async fn a_promoted_asynchronous_standby_forgets_and_says_so() {
    if included().is_none() {
        return;
    }
    let mut primary = Server::start("");
    let mut standby = Server::standby_of(&primary, "standby");
    let (postgres, _) = open(primary.config().or_host("127.0.0.1", standby.port)).await;
    assert_eq!(postgres.guarantees().exclusion, Exclusion::Probable);
    assert_eq!(postgres.guarantees().fencing, Fencing::ClockBounded);
    let (kept, lost) = (claim("kept", Mode::Exclusive, LEASE), claim("lost", Mode::Exclusive, LEASE));
    let kept_at = postgres.join(&kept, true).await.unwrap().ticket();
    primary.until("SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()", "1");
    standby.kill();
    let lost_at = postgres.join(&lost, true).await.unwrap().ticket();
    primary.kill();
    standby.start_again();
    standby.ask("SELECT pg_promote(true, 10)").unwrap();
    let places = [place(&kept, kept_at), place(&lost, lost_at)];
    let start = Instant::now();
    let after = loop {
        match tokio::time::timeout(Duration::from_secs(5), postgres.renew(&places)).await {
            Ok(Ok(after)) => break after,
            other => assert!(start.elapsed() < Duration::from_secs(30), "{other:?}"),
        }
    };
    assert_eq!(after, [Standing::In { ticket: kept_at.unwrap() }, Standing::Lapsed]);
    let next = postgres.join(&claim("lost", Mode::Exclusive, LEASE), true).await.unwrap();
    assert!(matches!(next, Standing::In { .. }) && next.ticket() > lost_at, "{next:?} after {lost_at:?}");
}

/// A primary that takes no writes any more, in sessions that were made before.
#[tokio::test]
async fn a_server_that_became_read_only_is_refused() {
    if included().is_none() {
        return;
    }
    let server = Server::start("");
    let (postgres, _) = open(server.config()).await;
    let held = claim("a", Mode::Exclusive, LEASE);
    let ticket = postgres.join(&held, true).await.unwrap().ticket();
    server.ask("ALTER SYSTEM SET default_transaction_read_only = on").unwrap();
    server.ask("SELECT pg_reload_conf()").unwrap();
    let start = Instant::now();
    let error = loop {
        // A session hears of it with its next statement.
        match tokio::time::timeout(Duration::from_secs(2), postgres.renew(&[place(&held, ticket)])).await {
            Ok(Err(error)) => break error,
            _ => assert!(start.elapsed() < Duration::from_secs(30), "never refused"),
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.hint_text().unwrap().contains("primary"), "{error:?}");
    let again = Postgres::connect(server.config(), std::sync::Arc::new(Heard::default())).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Unavailable, "{again:?}");
    server.ask("ALTER SYSTEM RESET default_transaction_read_only").unwrap();
    server.ask("SELECT pg_reload_conf()").unwrap();
    let start = Instant::now();
    loop {
        match tokio::time::timeout(Duration::from_secs(5), postgres.renew(&[place(&held, ticket)])).await {
            Ok(Ok(standings)) => {
                assert_eq!(standings, [Standing::In { ticket: ticket.unwrap() }]);
                break;
            }
            other => assert!(start.elapsed() < Duration::from_secs(30), "{other:?}"),
        }
    }
}
