//! Classic Redlock on real nodes: what is written where, and what a minority, or a majority, that fails does to it.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use super::{Fleet, included};
use crate::driver::{Driver, Exclusion, Fencing, Query};
use crate::drivers::redis::Layout;
use crate::drivers::redis::tests::Server;
use crate::drivers::redlock::Redlock;
use crate::drivers::testing::{Heard, claim, is_in, place};
use crate::error::{ErrorKind, LossReason};
use crate::line::{Mode, Standing, Ticket};
use crate::{Guard, Locks};

const LEASE: Duration = Duration::from_millis(2400);

async fn open(fleet: &Fleet) -> Redlock {
    let config = fleet.config_with(|node| node.layout(Layout::Plain));
    Redlock::connect(config, std::sync::Arc::new(Heard::default())).await.unwrap()
}

async fn client(fleet: &Fleet) -> Locks {
    let config = fleet.config_with(|node| node.layout(Layout::Plain));
    Locks::builder().lease(LEASE).redlock(config).await.unwrap()
}

async fn ask<T: redis::FromRedisValue>(operator: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut cmd = redis::cmd(words[0]);
    words[1..].iter().for_each(|word| {
        cmd.arg(*word);
    });
    cmd.query_async(operator).await.unwrap()
}

/// What each node has under a key, once all of them have been asked for it.
async fn values(fleet: &Fleet, key: &str) -> Vec<Option<String>> {
    // A verb is answered before the last nodes are.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut all = Vec::new();
    for server in &fleet.0 {
        all.push(ask(&mut server.operator().await, &["GET", key]).await);
    }
    all
}

/// Another client takes the lock at these nodes.
async fn taken_by_another(servers: &[Server], key: &str) {
    for server in servers {
        let words = ["SET", key, "another", "NX", "PX", "30000"];
        assert_eq!(ask::<String>(&mut server.operator().await, &words).await, "OK");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_value_stands_at_all_nodes() {
    if !included() {
        return;
    }
    let fleet = Fleet::start(5);
    let quorum = open(&fleet).await;
    assert_eq!(quorum.guarantees().fencing, Fencing::None);
    assert_eq!(quorum.guarantees().exclusion, Exclusion::Probable, "these nodes forget");
    let mine = claim("jobs/7", Mode::Exclusive, LEASE);
    let Standing::In { ticket } = quorum.join(&mine, true).await.unwrap() else { panic!() };
    let written = values(&fleet, "jobs/7").await;
    assert!(written[0].as_ref().unwrap().starts_with(&format!("{:032x} ", mine.id.as_u128())), "{written:?}");
    assert!(written.iter().all(|value| *value == written[0]), "{written:?}");
    let rest: i64 = ask(&mut fleet.0[4].operator().await, &["PTTL", "jobs/7"]).await;
    assert!((1_500..=2_400).contains(&rest), "{rest}");
    // An answer that got lost is settled by asking: the same place, and no other.
    assert_eq!(quorum.join(&mine, true).await.unwrap(), Standing::In { ticket });
    let next = claim("jobs/7", Mode::Exclusive, LEASE);
    assert_eq!(quorum.join(&next, false).await.unwrap(), Standing::Out);
    assert_eq!(values(&fleet, "jobs/7").await, written, "who does not get it takes nothing away");
    let seen = quorum.view(&Query::Prefix(String::new())).await.unwrap();
    assert_eq!((seen.len(), seen[0].holders[0].ticket), (1, ticket));
    quorum.leave(&place(&mine, Some(ticket))).await.unwrap();
    assert_eq!(values(&fleet, "jobs/7").await, vec![None; 5]);

    let readers = claim("r", Mode::Shared, LEASE);
    assert_eq!(quorum.join(&readers, true).await.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_decides_and_a_minority_is_given_back() {
    if !included() {
        return;
    }
    let fleet = Fleet::start(5);
    let quorum = open(&fleet).await;
    taken_by_another(&fleet.0[..3], "theirs").await;
    let late = claim("theirs", Mode::Exclusive, LEASE);
    assert_eq!(quorum.join(&late, false).await.unwrap(), Standing::Out);
    assert_eq!(values(&fleet, "theirs").await[3..], [None, None], "what it got, it gave back");
    assert!(matches!(
        quorum.join(&late, true).await.unwrap(),
        Standing::Waiting { ticket: Ticket::ZERO, .. }
    ));
    assert!(matches!(quorum.renew(&[place(&late, None)]).await.unwrap()[..], [Standing::Waiting { .. }]));
    assert_eq!(values(&fleet, "theirs").await[3..], [None, None], "it waits with empty hands");
    ask::<i64>(&mut fleet.0[0].operator().await, &["DEL", "theirs"]).await;
    assert!(is_in(&quorum.renew(&[place(&late, None)]).await.unwrap()[0]), "three of five are a majority");
    quorum.leave(&place(&late, None)).await.unwrap();
    let left = values(&fleet, "theirs").await;
    assert_eq!(left.iter().flatten().collect::<Vec<_>>(), ["another"; 2], "the others' are not touched");

    // A holder whose majority is gone has lost.
    let mine = claim("m", Mode::Exclusive, LEASE);
    let stands = quorum.join(&mine, true).await.unwrap();
    for server in &fleet.0[..2] {
        ask::<i64>(&mut server.operator().await, &["DEL", "m"]).await;
    }
    let held = [place(&mine, stands.ticket())];
    assert_eq!(quorum.renew(&held).await.unwrap(), [stands], "three are enough");
    ask::<i64>(&mut fleet.0[2].operator().await, &["DEL", "m"]).await;
    assert_eq!(quorum.renew(&held).await.unwrap(), [Standing::Lapsed]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evicting_a_holder_needs_a_majority_that_names_it() {
    if !included() {
        return;
    }
    let fleet = Fleet::start(3);
    let quorum = open(&fleet).await;
    let mine = claim("m", Mode::Exclusive, LEASE);
    let ticket = quorum.join(&mine, true).await.unwrap().ticket().unwrap();
    assert!(!quorum.evict(&mine.name, Ticket::new(1), true).await.unwrap());
    assert!(quorum.evict(&mine.name, ticket, false).await.unwrap());
    assert_eq!(quorum.renew(&[place(&mine, Some(ticket))]).await.unwrap(), [Standing::Out]);
    let next = claim("m", Mode::Exclusive, LEASE);
    assert_eq!(quorum.join(&next, false).await.unwrap(), Standing::Out, "nobody overlaps its lease");
    assert!(quorum.evict(&mine.name, ticket, true).await.unwrap());
    assert!(is_in(&quorum.join(&next, false).await.unwrap()));
}

async fn lock(locks: &Locks) -> Guard {
    let mutex = locks.mutex("m");
    tokio::time::timeout(LEASE * 2, async move {
        loop {
            match mutex.lock().await {
                Err(error) if error.kind().is_transient() => {}
                done => return done,
            }
        }
    })
    .await
    .expect("it is stuck")
    .unwrap()
}

/// Two of five nodes fail while one holds, and another one waits; then a third one does, and comes back.
async fn nodes_fail(fail: fn(&mut Server), heal: fn(&mut Server)) {
    if !included() {
        return;
    }
    let mut fleet = Fleet::start(5);
    let clients = [client(&fleet).await, client(&fleet).await];
    let held = clients[0].mutex("m").lock().await.unwrap();
    let waits = clients[1].mutex("m");
    let waiting = tokio::spawn(async move { waits.lock().await });
    fleet.0[..2].iter_mut().for_each(fail);
    tokio::time::sleep(LEASE + LEASE / 2).await;
    assert!(held.is_valid() && !waiting.is_finished(), "a majority renews it");
    held.release().await.unwrap();
    let next = tokio::time::timeout(LEASE * 2, waiting).await.expect("the waiter is stuck").unwrap().unwrap();

    fail(&mut fleet.0[2]);
    let began = Instant::now();
    let refused = clients[0].mutex("n").lock().await.unwrap_err();
    assert!(refused.kind().is_transient() && refused.to_string().contains("majority"), "{refused:?}");
    assert!(began.elapsed() < LEASE + LEASE / 2, "{:?}", began.elapsed());
    let lost = tokio::time::timeout(LEASE * 2, next.lost()).await.expect("it is lost in time");
    assert_eq!(lost.reason, LossReason::Unreachable);
    heal(&mut fleet.0[2]);
    lock(&clients[0]).await.release().await.unwrap();
    fleet.0[..2].iter_mut().for_each(heal);
    lock(&clients[1]).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_killed() {
    nodes_fail(Server::kill, Server::up).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_paused() {
    nodes_fail(|server| server.pause(true), |server| server.pause(false)).await;
}
