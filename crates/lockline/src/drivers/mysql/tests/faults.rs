//! Bells between clients, killed sessions, deadlocks.

use std::time::{Duration, Instant};

use super::{claim, included, is_in, open, operate, operator, place};
use crate::Locks;
use crate::driver::{Driver, Query};
use crate::drivers::mysql::wire::Value;
use crate::drivers::relational::testing::{fences_and_verdicts, take_turns};
use crate::line::{Mode, News, Standing};

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_waiter_is_woken_inside_the_server_when_another_process_leaves() {
    let Some(database) = included().await else { return };
    let (a, _) = open(database.config.clone()).await;
    let (b, heard) = open(database.config.clone()).await;
    let (first, second) = (claim("ä'\n", Mode::Exclusive, LEASE), claim("ä'\n", Mode::Exclusive, LEASE));
    assert!(is_in(&a.join(&first, true).await.unwrap()));
    let Standing::Waiting { ticket, ahead: 1, .. } = b.join(&second, true).await.unwrap() else { panic!() };
    // Long enough for its session to wait; nothing else would ring within the test.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let start = Instant::now();
    a.leave(&place(&first, None)).await.unwrap();
    let (name, bell) = heard.next().await;
    assert_eq!((name, bell.id, bell.ticket, bell.news), (second.name.clone(), second.id, ticket, News::In));
    assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
    b.leave(&place(&second, Some(ticket))).await.unwrap();
    assert!(a.view(&Query::Prefix(String::new())).await.unwrap().is_empty());
    database.done().await;
}

#[tokio::test]
async fn killed_sessions_are_made_again_and_places_are_kept() {
    let Some(database) = included().await else { return };
    let (mysql, heard) = open(database.config.clone()).await;
    let (first, second) = (claim("a", Mode::Exclusive, LEASE), claim("a", Mode::Exclusive, LEASE));
    let Standing::In { ticket } = mysql.join(&first, true).await.unwrap() else { panic!() };
    mysql.join(&second, true).await.unwrap();
    kill_all(&database).await;
    // What was under way is unknown, and asked again; what comes later finds a new session.
    let start = Instant::now();
    loop {
        match mysql.renew(&[place(&first, Some(ticket))]).await {
            Ok(standings) => {
                assert_eq!(standings, [Standing::In { ticket }]);
                break;
            }
            Err(error) => assert!(error.kind().is_transient(), "{error:?}"),
        }
        assert!(start.elapsed() < Duration::from_secs(10), "the server is not found again");
    }
    while mysql.leave(&place(&first, Some(ticket))).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(10), "the server is not found again");
    }
    assert_eq!(heard.next().await.1.id, second.id);
    database.done().await;
}

async fn kill_all(database: &super::Database) {
    let mut session = operator(&database.config).await;
    for id in database.sessions().await {
        // One that ended by itself meanwhile is no harm.
        let _ = session.query(&format!("KILL {id}")).await;
    }
}

/// What a server whose disk had been full was found with: half of a transaction. Joins went round in it for ever.
#[tokio::test]
async fn a_claim_that_stands_in_both_tables_stands_once() {
    let Some(database) = included().await else { return };
    let (mysql, _) = open(database.config.clone()).await;
    let (first, second) = (claim("a", Mode::Exclusive, LEASE), claim("a", Mode::Exclusive, LEASE));
    assert!(is_in(&mysql.join(&first, true).await.unwrap()));
    let columns = "permits, permit_limit, lease_us";
    let half = format!(
        "INSERT INTO lockline_claims (line, ticket, id, kind, {columns}, deadline_us, since_us, pid, process, owner, host) \
         SELECT line, last_ticket, alone, kind, {columns}, next_lapse_us, seen_us, pid, process, owner, host \
         FROM lockline_lines WHERE alone IS NOT NULL"
    );
    database.run(&half).await;
    let joined = tokio::time::timeout(Duration::from_secs(10), mysql.join(&second, true)).await;
    let Ok(Ok(Standing::Waiting { ticket, ahead: 1, .. })) = joined else { panic!("{joined:?}") };
    mysql.leave(&place(&first, None)).await.unwrap();
    assert!(is_in(&mysql.renew(&[place(&second, Some(ticket))]).await.unwrap()[0]));
    database.done().await;
}

#[tokio::test]
async fn who_stands_alone_is_renewed_where_it_stands_and_beside_others_all_the_same() {
    let Some(database) = included().await else { return };
    let (mysql, _) = open(database.config.clone()).await;
    let holders: Vec<_> = (0..3).map(|n| claim(&format!("line {n}"), Mode::Exclusive, LEASE)).collect();
    let mut places = Vec::new();
    for holder in &holders {
        let Standing::In { ticket } = mysql.join(holder, true).await.unwrap() else { panic!() };
        places.push(place(holder, Some(ticket)));
    }
    let waiter = claim("line 2", Mode::Exclusive, LEASE);
    let Standing::Waiting { ticket, .. } = mysql.join(&waiter, true).await.unwrap() else { panic!() };
    places.push(place(&waiter, Some(ticket)));
    // As if nobody had renewed them for a while.
    database.run("UPDATE lockline_lines SET next_lapse_us = next_lapse_us - 20000000").await;
    database.run("UPDATE lockline_claims SET deadline_us = deadline_us - 20000000").await;
    let standings = mysql.renew(&places).await.unwrap();
    assert!(
        standings[..3].iter().all(is_in) && matches!(standings[3], Standing::Waiting { .. }),
        "{standings:?}"
    );
    let alone = operate(&database.config, "SELECT COUNT(*) FROM lockline_lone_claims").await;
    let alone: i64 = alone.rows[0].try_get(0).unwrap();
    assert_eq!(alone, 2, "two of them still stand alone");
    let lines = mysql.view(&Query::Prefix(String::new())).await.unwrap();
    let all: Vec<_> = lines.iter().flat_map(|line| line.holders.iter().chain(&line.waiters)).collect();
    assert_eq!(all.len(), 4);
    assert!(all.iter().all(|claim| claim.remaining > LEASE / 2), "all of them were extended: {all:?}");
    database.done().await;
}

#[tokio::test]
async fn a_dropped_join_is_left_by_the_leave_behind_it() {
    let Some(database) = included().await else { return };
    let (mysql, _) = open(database.config.clone()).await;
    for n in 0..30 {
        let claim = claim(&format!("{n}"), Mode::Exclusive, LEASE);
        let _ = tokio::time::timeout(Duration::from_micros(n * 40), mysql.join(&claim, true)).await;
        mysql.leave(&place(&claim, None)).await.unwrap();
        assert!(mysql.view(&Query::Name(claim.name.clone())).await.unwrap().is_empty());
    }
    database.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_take_turns_without_a_deadlock() {
    let Some(database) = included().await else { return };
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(Locks::builder().mysql(database.config.clone()).await.unwrap());
    }
    take_turns(clients, 15).await;
    database.done().await;
}

/// The mark and the write are one transaction: a late holder's write is refused, whoever commits first.
#[tokio::test]
async fn fencing_in_the_applications_own_transaction() {
    use crate::fence::sql::{Dialect, Parameter, check};
    let Some(database) = included().await else { return };
    let mut session = operator(&database.config).await;
    session.query(Dialect::Mysql.table()).await.unwrap();
    for (fence, passes) in fences_and_verdicts() {
        session.query("START TRANSACTION").await.unwrap();
        let check = check(Dialect::Mysql, "acct/ü'", fence);
        let mut changed = 0;
        for statement in check.statements() {
            let value = |parameter: &Parameter| match parameter {
                Parameter::Resource(resource) => Value::Bytes(resource.as_bytes().to_vec()),
                Parameter::Token(token) => Value::Int(*token),
            };
            let values: Vec<Value> = statement.parameters.iter().map(value).collect();
            changed = session.run(statement.text, &values).await.unwrap().changed;
        }
        assert_eq!(check.verdict(changed).is_ok(), passes, "{fence:?}");
        session.query(if passes { "COMMIT" } else { "ROLLBACK" }).await.unwrap();
    }
    database.done().await;
}
