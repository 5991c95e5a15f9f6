//! A synchronous standby that takes over: nothing that was answered is lost.

use std::time::{Duration, Instant};

use super::{Server, claim, included, open, place};
use crate::driver::Driver;
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
