//! What the server's settings keep, and what the row says of it.

use std::time::Duration;

use super::server::Server;
use super::{claim, included, is_in, open, place};
use crate::driver::{Driver, Exclusion, Fencing};
use crate::line::Mode;

const LEASE: Duration = Duration::from_secs(60);
/// Said after what tests' servers are started with.
const DURABLE: [&str; 2] = ["--innodb-flush-method=fsync", "--innodb-flush-log-at-trx-commit=1"];

#[tokio::test]
async fn a_server_that_loses_what_it_answered_is_trusted_less_while_it_does() {
    let Some(database) = included().await else { return };
    database.done().await;
    let server = Server::start_with(&DURABLE).await;
    let (mysql, _) = open(server.config.clone()).await;
    assert_eq!(mysql.guarantees().exclusion, Exclusion::NoForwardStep);
    assert_eq!(mysql.guarantees().fencing, Fencing::Always);
    let held = claim("a", Mode::Exclusive, LEASE);
    let held = place(&held, mysql.join(&held, true).await.unwrap().ticket());
    for weaker in [0, 2] {
        // The next renewal says it.
        server.run(&format!("SET GLOBAL innodb_flush_log_at_trx_commit = {weaker}")).await;
        assert!(is_in(&mysql.renew(std::slice::from_ref(&held)).await.unwrap()[0]));
        assert_eq!(mysql.guarantees().exclusion, Exclusion::Probable);
        assert_eq!(mysql.guarantees().fencing, Fencing::ClockBounded);
        server.run("SET GLOBAL innodb_flush_log_at_trx_commit = 1").await;
        assert!(is_in(&mysql.renew(std::slice::from_ref(&held)).await.unwrap()[0]));
        assert_eq!(mysql.guarantees().exclusion, Exclusion::NoForwardStep);
    }
    // So does the next join, by the short way, too.
    for _ in 0..2 {
        let other = claim("b", Mode::Exclusive, LEASE);
        server.run("SET GLOBAL innodb_flush_log_at_trx_commit = 0").await;
        let ticket = mysql.join(&other, true).await.unwrap().ticket();
        assert_eq!(mysql.guarantees().exclusion, Exclusion::Probable);
        mysql.leave(&place(&other, ticket)).await.unwrap();
        server.run("SET GLOBAL innodb_flush_log_at_trx_commit = 1").await;
        let another = claim("c", Mode::Exclusive, LEASE);
        let ticket = mysql.join(&another, true).await.unwrap().ticket();
        assert_eq!(mysql.guarantees().exclusion, Exclusion::NoForwardStep);
        mysql.leave(&place(&another, ticket)).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_syncs_nothing_is_trusted_less_from_the_start() {
    let Some(database) = included().await else { return };
    database.done().await;
    let log = ["--log-bin=log", "--server-id=1", "--sync-binlog=0"];
    for options in [&["--innodb-flush-method=nosync"][..], &["--skip-innodb-doublewrite"], &log] {
        let server = Server::start_with(&[&DURABLE[..], options].concat()).await;
        let (mysql, _) = open(server.config.clone()).await;
        assert_eq!(mysql.guarantees().exclusion, Exclusion::Probable, "{options:?}");
    }
}
