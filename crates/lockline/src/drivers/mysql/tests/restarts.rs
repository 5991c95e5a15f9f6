//! A server that is killed and started again, one that stops being the primary, and one that becomes it.

use std::time::{Duration, Instant};

use super::server::{Kind, Server};
use super::{claim, included, is_in, open, operate, operator, place};
use crate::driver::Driver;
use crate::drivers::mysql::wire::Row;
use crate::drivers::mysql::{Mysql, MysqlConfig};
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
    // Each of the other sessions has to find out for itself; an answer that got lost is asked for again.
    while mysql.leave(&places[0]).await.is_err() {}
    assert_eq!(heard.next().await.1.id, claims[10].id);
    let later = claim("0", Mode::Exclusive, LEASE);
    let ticket = loop {
        match mysql.join(&later, true).await {
            Ok(standing) => break standing.ticket(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unknown, "{error:?}"),
        }
    };
    assert!(ticket > standings[10].ticket(), "tokens go on rising");
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

/// What a server keeps, line by line.
async fn rows_of(server: &Server) -> Vec<String> {
    let text = "SELECT HEX(line), last_ticket, in_through, seen_us, next_lapse_us, free, places, HEX(alone), '' FROM lockline_lines \
         UNION ALL SELECT HEX(line), ticket, deadline_us, since_us, lease_us, closed, fixed, HEX(id), owner FROM lockline_claims \
         ORDER BY 1, 2, 8";
    let rows = operate(&server.config, text).await.rows;
    let row = |row: &Row| {
        let number = |column: usize| row.try_get::<i64>(column).unwrap().to_string();
        let text = |column: usize| row.try_get::<String>(column).unwrap();
        let numbers: Vec<String> = (1..7).map(number).collect();
        format!("{} {} {} {}", text(0), numbers.join(" "), text(7), text(8))
    };
    rows.iter().map(row).collect()
}

/// A replica has what was answered, in whatever way it was written, and goes on with it.
#[tokio::test]
async fn a_replica_has_the_same_rows_and_goes_on_with_them() {
    let Some(database) = included().await else { return };
    database.done().await;
    // MySQL has a binary log of rows by itself, and nothing else soon.
    let options: &[&str] = match Kind::of_this_run() {
        Kind::Mariadb => &["--log-bin=log", "--server-id=1", "--binlog-format=MIXED"],
        Kind::Mysql => &["--server-id=1", "--gtid-mode=ON", "--enforce-gtid-consistency=ON"],
    };
    let mut of_replica = options.to_vec();
    of_replica.extend(["--server-id=2", "--read-only"]);
    let (primary, replica) = tokio::join!(Server::start_with(options), Server::start_with(&of_replica));
    let port = primary.config.port;
    let home = MysqlConfig::new("127.0.0.1", replica.config.port, "mysql");
    // What it has made itself comes from there, too.
    replica.run("DROP DATABASE locks").await;
    let follow = match Kind::of_this_run() {
        Kind::Mariadb => format!(
            "SET GLOBAL gtid_slave_pos = ''; CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, \
             MASTER_USER = 'root', MASTER_USE_GTID = slave_pos; START SLAVE"
        ),
        // Users with a password are let in by the source's public key.
        Kind::Mysql => {
            primary
                .run("CREATE USER copier IDENTIFIED BY 'secret'; GRANT REPLICATION SLAVE ON *.* TO copier")
                .await;
            format!(
                "RESET BINARY LOGS AND GTIDS; CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, \
                 SOURCE_USER = 'copier', SOURCE_PASSWORD = 'secret', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1; \
                 START REPLICA"
            )
        }
    };
    operate(&home, &follow).await;

    let (mysql, _) = open(primary.config.clone()).await;
    // One that is taken and given back by the short way, one that stays there, and one with a line.
    for _ in 0..3 {
        let short = claim("short", Mode::Exclusive, LEASE);
        let ticket = mysql.join(&short, true).await.unwrap().ticket();
        mysql.leave(&place(&short, ticket)).await.unwrap();
    }
    let mut places = Vec::new();
    for name in ["short", "line", "line", "line"] {
        let claim = claim(name, Mode::Exclusive, LEASE);
        let ticket = mysql.join(&claim, true).await.unwrap().ticket();
        places.push(place(&claim, ticket));
    }
    mysql.renew(&places).await.unwrap();
    mysql.leave(&places.remove(1)).await.unwrap();

    let (expected, start) = (rows_of(&primary).await, Instant::now());
    assert_eq!(expected.len(), 4, "{expected:?}");
    loop {
        let is_there = operator(&home).await.query("SELECT 1 FROM locks.lockline_claims").await.is_ok();
        if is_there && rows_of(&replica).await == expected {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "the replica does not follow");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop((mysql, primary));
    operate(
        &home,
        match Kind::of_this_run() {
            Kind::Mariadb => "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0",
            Kind::Mysql => "STOP REPLICA; RESET REPLICA ALL; SET GLOBAL read_only = 0",
        },
    )
    .await;
    let (mysql, _) = open(replica.config.clone()).await;
    let standings = renewed(&mysql, &places).await;
    assert!(is_in(&standings[0]) && is_in(&standings[1]) && !is_in(&standings[2]), "{standings:?}");
}

#[tokio::test]
async fn a_server_that_copies_statements_is_refused() {
    let Some(database) = included().await else { return };
    database.done().await;
    let server = Server::start_with(&["--log-bin=log", "--server-id=1", "--binlog-format=STATEMENT"]).await;
    let error =
        Mysql::connect(server.config.clone(), std::sync::Arc::new(Heard::default())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsafe, "{error:?}");
    assert!(error.hint_text().unwrap().contains("MIXED"), "{error:?}");
}
