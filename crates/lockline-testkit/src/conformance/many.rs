//! Many at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::setup::{Setup, until_empty};

/// Issue 2: 1 000 waiters on one name of one client are all served, in order, one at a time.
pub async fn thousand_waiters_are_served_in_order(setup: &Setup) {
    const WAITERS: usize = 1000;
    let locks = setup.client().await;
    let first = locks.mutex("m").lock().await.unwrap();
    let inside = Arc::new(AtomicI64::new(0));
    let (sender, mut served) = mpsc::unbounded_channel();
    for _ in 0..WAITERS {
        let (mutex, sender, inside) = (locks.mutex("m"), sender.clone(), inside.clone());
        tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::AcqRel), 0, "somebody else is inside");
            sender.send(guard.fence().token()).unwrap();
            inside.fetch_sub(1, Ordering::AcqRel);
            guard.release().await.unwrap();
        });
    }
    let limit = Duration::from_secs(60);
    crate::setup::within(limit, "all stand in line", async || {
        tokio::time::sleep(Duration::from_millis(50)).await;
        locks.show("m").await.unwrap().waiters.len() == WAITERS
    })
    .await;
    let order: Vec<u64> =
        locks.show("m").await.unwrap().waiters.iter().map(|claim| claim.ticket.get()).collect();
    first.release().await.unwrap();
    let mut got = Vec::new();
    while got.len() < WAITERS {
        got.push(tokio::time::timeout(limit, served.recv()).await.expect("all are served").unwrap());
    }
    assert_eq!(got, order, "in the order of the line");
    until_empty(&locks, "of a thousand").await;
}

/// What the modes allow, checked from inside: a writer alone, permits within their limit.
#[derive(Default)]
struct Checker {
    exclusive: AtomicI64,
    shared: AtomicI64,
    permits: AtomicI64,
    newest: AtomicU64,
}

impl Checker {
    const LIMIT: i64 = 3;

    fn check(&self) {
        let [exclusive, shared, permits] =
            [&self.exclusive, &self.shared, &self.permits].map(|count| count.load(Ordering::SeqCst));
        assert!(exclusive <= 1, "{exclusive} exclusive holders");
        assert!(
            exclusive == 0 || shared + permits == 0,
            "an exclusive holder beside {shared} readers, {permits} permits"
        );
        assert!(shared == 0 || permits == 0, "{shared} readers beside {permits} permits");
        assert!(permits <= Checker::LIMIT, "{permits} permits");
    }
}

/// §2: two clients with random modes for a while: the table of modes is never broken, exclusive tokens rise.
pub async fn random_modes_never_break_the_table(setup: &Setup) {
    const TURNS: u64 = 50;
    let checker = Arc::new(Checker::default());
    let clients = [setup.client().await, setup.client().await];
    let permits = !setup.refuses_permits().await;
    // For a while, and until so many turns mean something, however slow the machine is: only a lock that stands still fails.
    let turns = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let (at_least, limit) = (Duration::from_secs(2), Duration::from_secs(60));
    let mut tasks = Vec::new();
    for seed in 0..8u64 {
        let (locks, checker) = (clients[usize::from(seed % 2 == 0)].clone(), checker.clone());
        let turns = turns.clone();
        tasks.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            let goes_on = || match began.elapsed() {
                so_far if so_far < at_least => true,
                so_far => so_far < limit && turns.load(Ordering::SeqCst) < TURNS,
            };
            while goes_on() {
                let count = random.i64(1..=Checker::LIMIT);
                let (guard, counter, by) = match random.u8(..4) {
                    0 => (locks.rwlock("m").read().await, &checker.shared, 1),
                    1 if permits => {
                        (locks.semaphore("m", 3).acquire_many(count as u32).await, &checker.permits, count)
                    }
                    2 => (locks.rwlock("m").write().await, &checker.exclusive, 1),
                    _ => (locks.mutex("m").lock().await, &checker.exclusive, 1),
                };
                let guard = guard.unwrap();
                counter.fetch_add(by, Ordering::SeqCst);
                checker.check();
                if guard.fence().is_exclusive() {
                    let before = checker.newest.swap(guard.fence().token(), Ordering::SeqCst);
                    assert!(before < guard.fence().token(), "exclusive tokens rise");
                }
                if random.bool() {
                    tokio::task::yield_now().await;
                }
                checker.check();
                counter.fetch_sub(by, Ordering::SeqCst);
                if random.bool() {
                    guard.release().await.unwrap();
                }
                turns.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let turns = turns.load(Ordering::SeqCst);
    assert!(turns >= TURNS, "only {turns} turns in {limit:?}");
    until_empty(&clients[0], "of the stress").await;
}
