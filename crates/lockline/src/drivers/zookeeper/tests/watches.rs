//! How claims are woken, and what that costs.

use std::sync::Arc;
use std::time::Duration;

use super::{Ensemble, claim, included, is_in, open, place};
use crate::Locks;
use crate::driver::Driver;
use crate::line::{Claim, Mode, News, Standing};

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_bell_rings_in_the_one_process_whose_claim_got_in() {
    if !included() {
        return;
    }
    let ensemble = Ensemble::start(1);
    let ((a, heard_a), (b, heard_b)) = (open(ensemble.config()).await, open(ensemble.config()).await);
    let claims = [(); 3].map(|()| claim("ä {b}\n", Mode::Exclusive, LEASE));
    assert!(is_in(&a.join(&claims[0], true).await.unwrap()));
    let Standing::Waiting { ticket, ahead: 1, .. } = b.join(&claims[1], true).await.unwrap() else {
        panic!()
    };
    a.join(&claims[2], true).await.unwrap();
    a.leave(&place(&claims[0], None)).await.unwrap();
    let (name, bell) = heard_b.next().await;
    assert_eq!(
        (name, bell.id, bell.ticket, bell.news),
        (claims[1].name.clone(), claims[1].id, ticket, News::In)
    );
    // Long enough for its own znode to be watched.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(a.evict(&claims[1].name, ticket, false).await.unwrap());
    assert_eq!(heard_b.next().await.1.news, News::Out);
    assert!(heard_a.take().is_empty());
}

/// Nobody asks again here: every bell comes from a watch.
#[tokio::test]
async fn permits_wake_one_another() {
    if !included() {
        return;
    }
    let ensemble = Ensemble::start(1);
    let (driver, heard) = open(ensemble.config()).await;
    let permits = |count| claim("s", Mode::Permits { count, limit: 4 }, LEASE);
    let (one, three) = (permits(1), permits(3));
    assert!(is_in(&driver.join(&one, true).await.unwrap()));
    assert!(is_in(&driver.join(&three, true).await.unwrap()));
    let waiting: Vec<Claim> = [2, 1, 1, 4].map(permits).into();
    for claim in &waiting {
        assert!(!is_in(&driver.join(claim, true).await.unwrap()));
    }
    driver.leave(&place(&three, None)).await.unwrap();
    let mut woken = [heard.next().await.1.id, heard.next().await.1.id];
    woken.sort();
    let mut expected = [waiting[0].id, waiting[1].id];
    expected.sort();
    assert_eq!(woken, expected, "two and one of four, beside the one that is still in");
    driver.leave(&place(&one, None)).await.unwrap();
    assert_eq!(heard.next().await.1.id, waiting[2].id);
    for claim in &waiting[..3] {
        driver.leave(&place(claim, None)).await.unwrap();
    }
    assert_eq!(heard.next().await.1.id, waiting[3].id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncontended_lock_costs_three_requests() {
    if !included() {
        return;
    }
    let ensemble = Ensemble::start(1);
    let locks = Locks::connect(&ensemble.url()).await.unwrap();
    // Somebody stays in the line's folder, or it would vanish now and then: a lock below it.
    let _stays = locks.mutex("m/x").lock().await.unwrap();
    locks.mutex("m").lock().await.unwrap().release().await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    const TURNS: u64 = 200;
    let before = ensemble.received();
    for _ in 0..TURNS {
        locks.mutex("m").lock().await.unwrap().release().await.unwrap();
    }
    let requests = ensemble.received() - before;
    // Pings, renewals of the lock below, and this question are few.
    assert!(requests <= TURNS * 3 + TURNS / 5, "{requests} requests for {TURNS} turns");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_do_not_grow_with_the_waiters() {
    if !included() {
        return;
    }
    let ensemble = Ensemble::start(1);
    let mut costs = Vec::new();
    for waiters in [4u64, 32] {
        let locks = Arc::new(Locks::builder().lease(LEASE).connect(&ensemble.url()).await.unwrap());
        let before = ensemble.received();
        let turns = 320 / waiters;
        let tasks: Vec<_> = (0..waiters)
            .map(|_| {
                let locks = locks.clone();
                tokio::spawn(async move {
                    for _ in 0..turns {
                        locks.mutex("m").lock().await.unwrap().release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        costs.push((ensemble.received() - before) as f64 / 320.0);
    }
    // Making, listing, watching, listing again, leaving: five. A slow machine adds looks of those who waited for a second.
    assert!(costs.iter().all(|cost| *cost <= 7.0), "requests per turn with 4 and with 32 waiters: {costs:?}");
}
