//! A server that is killed and started again, and one that stops being the primary.

use std::time::{Duration, Instant};

use super::server::Server;
use super::{claim, included, is_in, open, place};
use crate::driver::Driver;
use crate::drivers::mysql::Mysql;
use crate::drivers::testing::Heard;
use crate::error::ErrorKind;
use crate::line::{Mode, Place, Standing};

const LEASE: Duration = Duration::from_secs(60);

/// Asks again, as core does, until it is answered.
async fn renewed(mysql: &Mysql, places: &[Place]) -> Vec<Standing> {
    let start = Instant::now();
    loop {
        match tokio::time::timeout(Duration::from_secs(5), mysql.renew(places)).await {
            Ok(Ok(standings)) => return standings,
            Ok(Err(error)) => assert!(error.kind().is_transient(), "{error:?}"),
            Err(_) => {}
        }
        assert!(start.elapsed() < Duration::from_secs(30), "the server is not found again");
    }
}

#[tokio::test]
async fn a_killed_server_keeps_what_it_answered() {
    let Some(database) = included().await else { return };
    database.done().await;
    let mut server = Server::start().await;
    let (mysql, heard) = open(server.config.clone()).await;
    let claims: Vec<_> = (0..20).map(|n| claim(&format!("{}", n % 10), Mode::Exclusive, LEASE)).collect();
    let mut standings = Vec::new();
    for claim in &claims {
        standings.push(mysql.join(claim, true).await.unwrap());
    }
    server.kill();
    server.start_again().await;
    let places: Vec<_> =
        claims.iter().zip(&standings).map(|(claim, standing)| place(claim, standing.ticket())).collect();
    for (before, after) in standings.iter().zip(renewed(&mysql, &places).await) {
        assert_eq!(before.ticket(), after.ticket());
        assert_eq!(is_in(before), is_in(&after));
    }
    // Another connection may still have to find out; an answer that got lost is asked for again.
    while mysql.leave(&places[0]).await.is_err() {}
    assert_eq!(heard.next().await.1.id, claims[10].id);
    let later = claim("0", Mode::Exclusive, LEASE);
    assert!(mysql.join(&later, true).await.unwrap().ticket() > standings[10].ticket(), "tokens go on rising");
}

/// The procedures run with the rights of whoever made them, who may write to a read-only server: they must not.
#[tokio::test]
async fn a_server_that_became_read_only_is_refused() {
    let Some(database) = included().await else { return };
    database.done().await;
    let server = Server::start().await;
    let (mysql, _) = open(server.config.clone()).await;
    let held = claim("a", Mode::Exclusive, LEASE);
    let ticket = mysql.join(&held, true).await.unwrap().ticket();
    server.run("SET GLOBAL read_only = 1").await;
    // A verb waits for a primary for as long as its caller does; whoever is told is told why.
    let within = Duration::from_secs(2);
    for _ in 0..2 {
        let other = claim("b", Mode::Exclusive, LEASE);
        if let Ok(answer) = tokio::time::timeout(within, mysql.join(&other, true)).await {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            assert!(error.hint_text().unwrap().contains("primary"), "{error:?}");
        }
        let renewed = tokio::time::timeout(within, mysql.renew(&[place(&held, ticket)])).await;
        assert!(!matches!(renewed, Ok(Ok(_))), "{renewed:?}");
    }
    let error =
        Mysql::connect(server.config.clone(), std::sync::Arc::new(Heard::default())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    server.run("SET GLOBAL read_only = 0").await;
    assert_eq!(renewed(&mysql, &[place(&held, ticket)]).await, [Standing::In { ticket: ticket.unwrap() }]);
}
