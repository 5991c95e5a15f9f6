//! Bells between clients, ended sessions, a killed server, a pooler, and what an acquisition costs.

use std::time::{Duration, Instant};

use super::{Server, claim, drop_schema, included, is_in, open, operator, place};
use crate::Locks;
use crate::driver::{Driver, Query};
use crate::drivers::relational::testing::{fences_and_verdicts, take_turns};
use crate::line::{Mode, News, Standing};

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_bell_rings_in_the_one_process_whose_claim_got_in() {
    let Some(config) = included() else { return };
    let (a, heard_a) = open(config.clone()).await;
    let (b, heard_b) = open(config.clone()).await;
    let (first, second) = (claim("ä'\n", Mode::Exclusive, LEASE), claim("ä'\n", Mode::Exclusive, LEASE));
    assert!(is_in(&a.join(&first, true).await.unwrap()));
    let Standing::Waiting { ticket, ahead: 1, .. } = b.join(&second, true).await.unwrap() else { panic!() };
    a.leave(&place(&first, None)).await.unwrap();
    let (name, bell) = heard_b.next().await;
    assert_eq!((name, bell.id, bell.ticket, bell.news), (second.name.clone(), second.id, ticket, News::In));
    let lines = a.view(&Query::Prefix(String::new())).await.unwrap();
    assert_eq!((lines.len(), lines[0].holders[0].who.owner.as_str()), (1, "te ster"));
    assert!(a.evict(&second.name, ticket, false).await.unwrap());
    assert_eq!(heard_b.next().await.1.news, News::Out);
    assert!(heard_a.take().is_empty());
    drop_schema(&config).await;
}

#[tokio::test]
async fn an_ended_session_is_made_again_and_everybody_looks() {
    let Some(config) = included() else { return };
    let (postgres, heard) = open(config.clone()).await;
    let (first, second) = (claim("a", Mode::Exclusive, LEASE), claim("a", Mode::Exclusive, LEASE));
    let Standing::In { ticket } = postgres.join(&first, true).await.unwrap() else { panic!() };
    postgres.join(&second, true).await.unwrap();
    let looks = heard.looks();
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE '%' || $1 || '%' AND pid <> pg_backend_pid()";
    let ended: i64 = operator(&config).await.query_one(end, &[&config.schema]).await.unwrap().get(0);
    assert!(ended >= 1);
    let start = Instant::now();
    while heard.looks() == looks {
        assert!(start.elapsed() < Duration::from_secs(10), "nobody was told to look");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(postgres.renew(&[place(&first, Some(ticket))]).await.unwrap(), [Standing::In { ticket }]);
    // A bell of another client comes over the new session.
    let (other, _) = open(config.clone()).await;
    other.leave(&place(&first, None)).await.unwrap();
    assert_eq!(heard.next().await.1.id, second.id);
    drop_schema(&config).await;
}

#[tokio::test]
async fn a_dropped_join_is_left_by_the_leave_behind_it() {
    let Some(config) = included() else { return };
    let (postgres, _) = open(config.clone()).await;
    for n in 0..50 {
        let claim = claim(&format!("{n}"), Mode::Exclusive, LEASE);
        let _ = tokio::time::timeout(Duration::from_micros(n * 20), postgres.join(&claim, true)).await;
        postgres.leave(&place(&claim, None)).await.unwrap();
        assert!(postgres.view(&Query::Name(claim.name.clone())).await.unwrap().is_empty());
    }
    drop_schema(&config).await;
}

#[tokio::test]
async fn a_killed_server_keeps_what_it_answered() {
    if included().is_none() {
        return;
    }
    let mut server = Server::start("");
    let (postgres, heard) = open(server.config()).await;
    let (first, second) = (claim("a", Mode::Exclusive, LEASE), claim("a", Mode::Exclusive, LEASE));
    let Standing::In { ticket } = postgres.join(&first, true).await.unwrap() else { panic!() };
    postgres.join(&second, true).await.unwrap();
    server.kill();
    // Nothing is said about a server that is down until a deadline from above ends the wait.
    let renew = [place(&first, Some(ticket))];
    let waits = tokio::time::timeout(Duration::from_millis(300), postgres.renew(&renew)).await;
    assert!(waits.is_err() || waits.unwrap().is_err());
    server.start_again();
    let start = Instant::now();
    let standings = loop {
        match tokio::time::timeout(Duration::from_secs(5), postgres.renew(&renew)).await {
            Ok(Ok(standings)) => break standings,
            other => assert!(start.elapsed() < Duration::from_secs(20), "{other:?}"),
        }
    };
    assert_eq!(standings, [Standing::In { ticket }]);
    assert!(heard.looks() > 0);
    postgres.leave(&place(&first, Some(ticket))).await.unwrap();
    assert_eq!(heard.next().await.1.id, second.id);
}

/// Two statements per acquisition, and one commit that waits for a disk: that of the join.
#[tokio::test]
async fn an_acquisition_waits_for_one_commit() {
    if included().is_none() {
        return;
    }
    let server = Server::start("fsync=on\nwal_writer_delay=10s\nautovacuum=off");
    let (postgres, _) = open(server.config()).await;
    // The first of a name makes its row.
    let warm = claim("a", Mode::Exclusive, LEASE);
    postgres.join(&warm, true).await.unwrap();
    postgres.leave(&place(&warm, None)).await.unwrap();
    let synced = || -> u64 { server.ask("SELECT wal_sync FROM pg_stat_wal").unwrap().parse().unwrap() };
    // Counters are told with a delay of up to a second when a session is idle.
    std::thread::sleep(Duration::from_millis(1500));
    let before = synced();
    for _ in 0..100 {
        let one = claim("a", Mode::Exclusive, LEASE);
        let ticket = postgres.join(&one, true).await.unwrap().ticket();
        postgres.leave(&place(&one, ticket)).await.unwrap();
    }
    std::thread::sleep(Duration::from_millis(1500));
    postgres.view(&Query::Name(warm.name.clone())).await.unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let syncs = synced() - before;
    assert!((90..=115).contains(&syncs), "{syncs} for 100 acquisitions");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_take_turns() {
    let Some(config) = included() else { return };
    let mut clients = Vec::new();
    for nth in 0..3 {
        clients.push(Locks::builder().postgres(config.clone().connections(1 + nth)).await.unwrap());
    }
    take_turns(clients, 20).await;
    drop_schema(&config).await;
}

/// The mark and the write are one transaction: a late holder's write is refused, whoever commits first.
#[tokio::test]
async fn fencing_in_the_applications_own_transaction() {
    use crate::fence::sql::{Dialect, Parameter, check};
    let Some(config) = included() else { return };
    let mut session = operator(&config).await;
    let schema = super::fresh("fence");
    let prepare =
        format!("CREATE SCHEMA {schema}; SET search_path = {schema}; {}", Dialect::Postgres.table());
    session.batch_execute(&prepare).await.unwrap();
    for (fence, passes) in fences_and_verdicts() {
        let transaction = session.transaction().await.unwrap();
        let check = check(Dialect::Postgres, "acct/ü'", fence);
        let mut changed = 0;
        for statement in check.statements() {
            let [Parameter::Resource(resource), Parameter::Token(token)] = statement.parameters[..] else {
                panic!()
            };
            changed = transaction.execute(statement.text, &[&resource, &token]).await.unwrap();
        }
        assert_eq!(check.verdict(changed).is_ok(), passes, "{fence:?}");
        if passes {
            transaction.commit().await.unwrap();
        }
    }
    session.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
}
