//! How many sessions a client takes, and what waits for what in them.

use std::time::{Duration, Instant};

use super::{claim, included, is_in, open, place};
use crate::driver::Driver;
use crate::line::{Mode, Standing};

const LEASE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn who_waits_for_one_lock_has_one_session_and_is_woken_in_it() {
    let Some(database) = included().await else { return };
    let (holder, _) = open(database.config.clone()).await;
    let held = claim("a", Mode::Exclusive, LEASE);
    let ticket = holder.join(&held, true).await.unwrap().ticket();
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let (client, heard) = open(database.config.clone()).await;
        let waiter = claim("a", Mode::Exclusive, LEASE);
        let Standing::Waiting { ticket, .. } = client.join(&waiter, true).await.unwrap() else { panic!() };
        waiting.push((client, heard, place(&waiter, Some(ticket))));
    }
    // Longer than one of them waits inside the server, with what clients do meanwhile. A waiter's renewal may stand for a second behind what
    // its session waits for: four rounds of three can be longer than the holder's lease.
    let held = place(&held, ticket);
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert!(is_in(&holder.renew(std::slice::from_ref(&held)).await.unwrap()[0]));
        for (client, _, place) in &waiting {
            let standing = client.renew(std::slice::from_ref(place)).await.unwrap()[0];
            assert!(matches!(standing, Standing::Waiting { .. }), "{standing:?}");
        }
    }
    assert_eq!(database.sessions().await.len(), 4, "one each");
    let mut before = (&holder, held);
    for (client, heard, place) in &waiting {
        let start = Instant::now();
        before.0.leave(&before.1).await.unwrap();
        assert_eq!(heard.next().await.1.id, place.id);
        assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
        before = (client, place.clone());
    }
    assert_eq!(database.sessions().await.len(), 4, "one each");
    before.0.leave(&before.1).await.unwrap();
    drop(holder);
    drop(waiting);
    database.done().await;
}

/// What one lock is waited for in delays nothing of another, however short its lease is.
#[tokio::test]
async fn another_lock_does_not_wait_where_one_is_waited_for() {
    let Some(database) = included().await else { return };
    let (holder, _) = open(database.config.clone()).await;
    let held = claim("a", Mode::Exclusive, LEASE);
    let ticket = holder.join(&held, true).await.unwrap().ticket();
    let (client, heard) = open(database.config.clone()).await;
    let waiter = claim("a", Mode::Exclusive, LEASE);
    let next = client.join(&waiter, true).await.unwrap().ticket();
    for round in 0..5 {
        tokio::time::sleep(Duration::from_millis(130)).await;
        let other = claim(&format!("other {round}"), Mode::Exclusive, Duration::from_millis(500));
        let start = Instant::now();
        let standing = client.join(&other, true).await.unwrap();
        assert!(is_in(&standing));
        let place = place(&other, standing.ticket());
        assert!(is_in(&client.renew(std::slice::from_ref(&place)).await.unwrap()[0]));
        client.leave(&place).await.unwrap();
        assert!(start.elapsed() < Duration::from_millis(600), "{:?}", start.elapsed());
    }
    holder.leave(&place(&held, ticket)).await.unwrap();
    assert_eq!(heard.next().await.1.id, waiter.id);
    client.leave(&place(&waiter, next)).await.unwrap();
    database.done().await;
}

/// A client that waits for a lock may evict its holder at once.
#[tokio::test]
async fn an_eviction_does_not_wait_for_what_its_client_waits_for() {
    let Some(database) = included().await else { return };
    let (holder, _) = open(database.config.clone()).await;
    let held = claim("a", Mode::Exclusive, LEASE);
    let ticket = holder.join(&held, true).await.unwrap().ticket().unwrap();
    let (client, heard) = open(database.config.clone()).await;
    let waiter = claim("a", Mode::Exclusive, LEASE);
    let next = client.join(&waiter, true).await.unwrap().ticket();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let start = Instant::now();
    assert!(client.evict(&held.name, ticket, true).await.unwrap());
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    assert_eq!(heard.next().await.1.id, waiter.id);
    client.leave(&place(&waiter, next)).await.unwrap();
    database.done().await;
}
