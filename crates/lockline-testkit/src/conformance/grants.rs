//! Who is in: the table of modes, and order of arrival for every primitive.

use std::time::Duration;

use lockline::line::News;
use lockline::{Guard, Locks};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::faults::Kind;
use crate::setup::{Setup, eventually, granted, line, queue_up, soon, until_empty, until_waiting};

/// §2: "no claim stands before it": one holder at a time, and the next one only when it has left.
pub async fn mutex_has_one_holder(setup: &Setup) {
    let (ann, bob) = (setup.client().await, setup.client().await);
    let first = ann.mutex("m").lock().await.unwrap();
    let second = queue_up(&bob, "m", 1).await;
    assert!(!second.is_finished());
    assert_eq!(line(&bob, "m").await.holders.len(), 1);
    first.release().await.unwrap();
    let second = granted(second).await;
    assert!(second.is_valid());
}

/// §2 *Fair*: "order of tickets, always"; §6.7.
pub async fn mutex_is_granted_in_order(setup: &Setup) {
    let clients = [setup.client().await, setup.client().await, setup.client().await];
    let first = clients[0].mutex("m").lock().await.unwrap();
    let (sender, mut order) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for nth in 1..=9 {
        let (mutex, sender) = (clients[nth % 3].mutex("m"), sender.clone());
        tasks.spawn(async move {
            let guard = mutex.lock().await.unwrap();
            sender.send((nth, guard.fence())).unwrap();
            guard.release().await.unwrap();
        });
        until_waiting(&clients[0], "m", nth).await;
    }
    let mut newest = first.fence();
    first.release().await.unwrap();
    for nth in 1..=9 {
        let (got, fence) = soon("the next one", order.recv()).await.unwrap();
        assert_eq!(got, nth, "first come, first served");
        assert!(fence > newest, "a later holder has the larger token");
        newest = fence;
    }
    // The last release must not meet an engine whose tables are gone with the test.
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

/// §2: shared is in when "only shared claims stand before it": readers are in together.
pub async fn readers_are_in_together(setup: &Setup) {
    let (ann, bob) = (setup.client().await, setup.client().await);
    let readers = [ann.rwlock("r").read().await.unwrap(), bob.rwlock("r").read().await.unwrap()];
    assert_eq!(line(&ann, "r").await.holders.len(), 2);
    assert!(bob.rwlock("r").try_write().await.unwrap().is_none(), "no writer beside readers");
    drop(readers);
    until_empty(&ann, "when the readers are gone").await;
    let writer = bob.rwlock("r").write().await.unwrap();
    assert!(ann.rwlock("r").try_read().await.unwrap().is_none(), "no reader beside a writer");
    assert!(ann.mutex("r").try_lock().await.unwrap().is_none(), "the write side is exclusive like a mutex");
    drop(writer);
}

/// §2 *Fair*: a reader that comes after a waiting writer waits for it; the readers behind it get in together.
pub async fn reader_waits_behind_a_waiting_writer(setup: &Setup) {
    let (ann, bob) = (setup.client().await, setup.client().await);
    let reader = ann.rwlock("r").read().await.unwrap();
    let write = bob.rwlock("r");
    let writer = tokio::spawn(async move { write.write().await });
    until_waiting(&ann, "r", 1).await;
    let late = [ann.rwlock("r"), bob.rwlock("r")].map(|lock| tokio::spawn(async move { lock.read().await }));
    until_waiting(&ann, "r", 3).await;
    reader.release().await.unwrap();
    let writer = granted(writer).await;
    assert_eq!(line(&ann, "r").await.waiters.len(), 2, "the readers wait for the writer");
    writer.release().await.unwrap();
    let [one, two] = late;
    let (one, two) = (granted(one).await, granted(two).await);
    assert!(one.is_valid() && two.is_valid());
}

async fn permits(
    locks: &Locks,
    count: u32,
    limit: u32,
    nth: usize,
) -> tokio::task::JoinHandle<lockline::Result<Guard>> {
    let semaphore = locks.semaphore("s", limit);
    let asked = tokio::spawn(async move { semaphore.acquire_many(count).await });
    until_waiting(locks, "s", nth).await;
    asked
}

/// §2: permits are in when "all counts up to its own add up to at most" the limit.
pub async fn semaphore_counts_permits(setup: &Setup) {
    if setup.refuses_permits().await {
        return;
    }
    let (ann, bob) = (setup.client().await, setup.client().await);
    let two = ann.semaphore("s", 4).acquire_many(2).await.unwrap();
    let one = bob.semaphore("s", 4).acquire().await.unwrap();
    assert!(bob.semaphore("s", 4).try_acquire_many(2).await.unwrap().is_none(), "only one is left");
    let last = ann.semaphore("s", 4).try_acquire().await.unwrap().expect("one is left");
    assert!(bob.semaphore("s", 4).try_acquire().await.unwrap().is_none(), "none is left");
    two.release().await.unwrap();
    let again = bob.semaphore("s", 4).try_acquire_many(2).await.unwrap();
    assert!(again.is_some(), "two came back");
    drop((one, last));
}

/// §2: "the **smallest limit** among them" rules.
pub async fn smallest_limit_rules(setup: &Setup) {
    if setup.refuses_permits().await {
        return;
    }
    let (ann, bob) = (setup.client().await, setup.client().await);
    let careful = ann.semaphore("s", 2).acquire().await.unwrap();
    let one = bob.semaphore("s", 10).try_acquire().await.unwrap();
    assert!(one.is_some(), "two of two");
    let third = bob.semaphore("s", 10).try_acquire().await.unwrap();
    assert!(third.is_none(), "who was promised to be one of at most two is");
    careful.release().await.unwrap();
    assert!(
        bob.semaphore("s", 10).try_acquire_many(9).await.unwrap().is_some(),
        "among those who believe in ten"
    );
}

/// §2 *Fair*: who asks for many permits is not passed by those who ask for few.
pub async fn big_request_is_not_passed_by_small_ones(setup: &Setup) {
    if setup.refuses_permits().await {
        return;
    }
    let locks = setup.client().await;
    let held = locks.semaphore("s", 4).acquire_many(3).await.unwrap();
    let big = permits(&locks, 4, 4, 1).await;
    let small = permits(&locks, 1, 4, 2).await;
    assert!(
        locks.semaphore("s", 4).try_acquire().await.unwrap().is_none(),
        "one is free, but somebody waits"
    );
    held.release().await.unwrap();
    let big = granted(big).await;
    assert_eq!(line(&locks, "s").await.waiters.len(), 1);
    assert!(!small.is_finished());
    big.release().await.unwrap();
    granted(small).await.release().await.unwrap();
}

/// §2: "Different kinds on one name share one line and never fit together."
pub async fn kinds_share_one_line(setup: &Setup) {
    let (ann, bob) = (setup.client().await, setup.client().await);
    let permits = !setup.refuses_permits().await;
    if permits {
        let permit = ann.semaphore("n", 9).acquire().await.unwrap();
        assert!(bob.mutex("n").try_lock().await.unwrap().is_none());
        assert!(bob.rwlock("n").try_read().await.unwrap().is_none());
        permit.release().await.unwrap();
    }
    let reader = ann.rwlock("n").read().await.unwrap();
    assert!(!permits || bob.semaphore("n", 9).try_acquire().await.unwrap().is_none());
    let waiting = queue_up(&bob, "n", 1).await;
    reader.release().await.unwrap();
    let mutex = granted(waiting).await;
    assert!(!permits || ann.semaphore("n", 9).try_acquire().await.unwrap().is_none());
    assert!(ann.rwlock("n").try_read().await.unwrap().is_none());
    drop(mutex);
}

/// §2 *Direct handoff*: "the engine rings that one claimant's bell": no herd, no race, no second join.
pub async fn handoff_rings_one_bell(setup: &Setup) {
    let holder = setup.client().await;
    let guard = holder.mutex("m").lock().await.unwrap();
    let mut waiters = Vec::new();
    for nth in 1..=3 {
        let (locks, faults) = setup.faulty().await;
        waiters.push((queue_up(&locks, "m", nth).await, faults, locks));
    }
    guard.release().await.unwrap();
    let (first, faults, _locks) = waiters.remove(0);
    let _held = granted(first).await;
    eventually("the bell rings", async || faults.bells(News::In) == 1).await;
    assert_eq!(faults.count(Kind::Join), 1, "no second try: the place is the lock");
    tokio::time::sleep(Duration::from_millis(50)).await;
    for (asked, faults, _locks) in &waiters {
        assert!(!asked.is_finished());
        assert_eq!(faults.bells(News::In), 0, "nobody else is woken");
    }
}
