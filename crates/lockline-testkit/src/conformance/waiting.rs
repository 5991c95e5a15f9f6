//! Trying, waiting for a while, waiting for as long as it takes; and bells, which are only hints.

use std::time::{Duration, Instant};

use lockline::Ticket;
use lockline::line::News;

use crate::faults::{Fault, Kind};
use crate::setup::{Setup, eventually, granted, line, queue_up, soon, until_empty, until_waiting};

/// §1: "busy is a value, not an error", and §4: "wait = false leaves nothing behind".
pub async fn try_lock_is_busy_and_leaves_nothing(setup: &Setup) {
    let (ann, bob) = (setup.client().await, setup.client().await);
    let guard = ann.mutex("m").lock().await.unwrap();
    for _ in 0..3 {
        assert!(bob.mutex("m").try_lock().await.unwrap().is_none());
        assert!(line(&ann, "m").await.waiters.is_empty(), "it never stood in line");
    }
    guard.release().await.unwrap();
    assert!(bob.mutex("m").try_lock().await.unwrap().is_some());
}

/// §2 *Fair*: "Nobody barges, `try_lock` included."
pub async fn try_lock_does_not_barge(setup: &Setup) {
    let (ann, bob) = (setup.client().await, setup.client().await);
    let reader = ann.rwlock("r").read().await.unwrap();
    let writer = queue_up(&bob, "r", 1).await;
    assert!(ann.rwlock("r").try_read().await.unwrap().is_none(), "a reader would fit, but a writer waits");
    reader.release().await.unwrap();
    granted(writer).await.release().await.unwrap();

    if setup.refuses_permits().await {
        return;
    }
    let permit = ann.semaphore("s", 2).acquire().await.unwrap();
    let big = bob.semaphore("s", 2);
    let big = tokio::spawn(async move { big.acquire_many(2).await });
    until_waiting(&ann, "s", 1).await;
    assert!(ann.semaphore("s", 2).try_acquire().await.unwrap().is_none(), "one is free, but somebody waits");
    permit.release().await.unwrap();
    granted(big).await.release().await.unwrap();
}

/// §1: "None = timed out", and §2: giving up is leaving.
pub async fn timed_wait_gives_up_and_leaves_nothing(setup: &Setup) {
    let (ann, bob) = (setup.client().await, setup.client().await);
    let guard = ann.mutex("m").lock().await.unwrap();
    let began = Instant::now();
    assert!(bob.mutex("m").try_lock_for(Duration::from_millis(120)).await.unwrap().is_none());
    assert!(began.elapsed() >= Duration::from_millis(120), "it waited for its time");
    assert!(bob.rwlock("m").try_read_for(Duration::from_millis(20)).await.unwrap().is_none());
    assert!(
        setup.refuses_permits().await
            || bob
                .semaphore("m", 3)
                .try_acquire_many_for(2, Duration::from_millis(20))
                .await
                .unwrap()
                .is_none()
    );
    eventually("it left the line", async || line(&ann, "m").await.waiters.is_empty()).await;
    guard.release().await.unwrap();
    until_empty(&ann, "after the holder left").await;
}

/// §1: `try_lock_for` waits its turn and gets in like anybody else.
pub async fn timed_wait_gets_in(setup: &Setup) {
    let (ann, bob) = (setup.client().await, setup.client().await);
    let guard = ann.mutex("m").lock().await.unwrap();
    let mutex = bob.mutex("m");
    let timed = tokio::spawn(async move { mutex.try_lock_for(Duration::from_secs(60)).await });
    until_waiting(&ann, "m", 1).await;
    guard.release().await.unwrap();
    let got = soon("the timed wait ends", timed).await.unwrap().unwrap();
    assert!(got.expect("it got in before its time was over").is_valid());
}

/// §1, §7 (`-w 0` is `-n`): waiting for no time at all is not to stand in line at all.
pub async fn waiting_for_zero_is_trying(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    let guard = locks.mutex("m").try_lock_for(Duration::ZERO).await.unwrap().expect("it is free");
    assert!(!faults.last_join_waits(), "the engine was told not to let it wait");
    assert!(locks.mutex("m").try_lock_for(Duration::ZERO).await.unwrap().is_none());
    assert_eq!(faults.count(Kind::Join), 2);
    drop(guard);
}

/// §2 *One lease rule*: "a place, waiting or in, lives until its deadline and is renewed the same way".
pub async fn waiting_is_renewed_like_holding(setup: &Setup) {
    let lease = Duration::from_millis(1500);
    let ann = setup.client().await;
    let bob = setup.client_with(|builder| builder.lease(lease)).await;
    let guard = ann.mutex("m").lock().await.unwrap();
    let waiting = queue_up(&bob, "m", 1).await;
    let ticket = line(&ann, "m").await.waiters[0].ticket;
    tokio::time::sleep(lease * 5 / 2).await;
    assert_eq!(
        line(&ann, "m").await.waiters.first().map(|claim| claim.ticket),
        Some(ticket),
        "the same place"
    );
    guard.release().await.unwrap();
    assert_eq!(granted(waiting).await.fence().token(), ticket.get());
}

/// §4: "Bells are hints: truth is `renew`, asked again after `look_again`" (§3 faults: message lost).
pub async fn lost_bell_is_found_by_looking_again(setup: &Setup) {
    let ann = setup.client().await;
    let (bob, faults) = setup.faulty().await;
    faults.lose_bells();
    let guard = ann.mutex("m").lock().await.unwrap();
    let waiting = queue_up(&bob, "m", 1).await;
    guard.release().await.unwrap();
    let got = granted(waiting).await;
    assert!(got.is_valid());
    assert_eq!(faults.count(Kind::Join), 1, "by renewing, not by joining again");
}

/// §4: "a bell that comes before the first answer is kept and counts once an answer names that ticket".
pub async fn bell_before_the_first_answer_counts(setup: &Setup) {
    let ann = setup.client().await;
    let (bob, faults) = setup.faulty().await;
    let guard = ann.mutex("m").lock().await.unwrap();
    faults.once(Kind::Join, Fault::DelayReply(Duration::from_millis(600)));
    faults.always(Kind::Renew, Fault::Hang);
    let waiting = queue_up(&bob, "m", 1).await;
    guard.release().await.unwrap();
    eventually("the bell rings", async || faults.bells(News::In) == 1).await;
    // No renewal can tell: only the bell that came before the answer.
    let got = granted(waiting).await;
    assert!(got.is_valid());
    assert_eq!(faults.count(Kind::Join), 1);
}

/// §2: "A client believes an answer or a bell only for the ticket it knows: a smaller one is an old story".
pub async fn bell_for_an_older_ticket_is_ignored(setup: &Setup) {
    let ann = setup.client().await;
    let (bob, faults) = setup.faulty().await;
    let guard = ann.mutex("m").lock().await.unwrap();
    let waiting = queue_up(&bob, "m", 1).await;
    let claim = faults.joined().pop().unwrap();
    let ticket = line(&ann, "m").await.waiters[0].ticket;
    faults.ring("m", claim.id, Ticket::new(ticket.get() - 1), News::In);
    faults.ring("m", claim.id, Ticket::new(ticket.get() - 1), News::Out);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished(), "it neither got in nor gave up");
    guard.release().await.unwrap();
    assert_eq!(granted(waiting).await.fence().token(), ticket.get(), "its own place counts");
}

/// §2: "a larger one means its own place is gone: lost, leave, join anew with a new id".
pub async fn bell_for_a_newer_ticket_means_joining_anew(setup: &Setup) {
    let ann = setup.client().await;
    let (bob, faults) = setup.faulty().await;
    let guard = ann.mutex("m").lock().await.unwrap();
    let waiting = queue_up(&bob, "m", 1).await;
    let claim = faults.joined().pop().unwrap();
    let ticket = line(&ann, "m").await.waiters[0].ticket;
    faults.ring("m", claim.id, Ticket::new(ticket.get() + 1_000_000_000), News::In);
    eventually("it joined anew", async || faults.count(Kind::Join) == 2).await;
    assert!(!waiting.is_finished(), "a bell for a ticket it does not know does not let it in");
    let again = faults.joined().pop().unwrap();
    assert_ne!(again.id, claim.id, "a new id");
    eventually("the old place is left", async || {
        let waiters = line(&ann, "m").await.waiters;
        waiters.len() == 1 && waiters[0].ticket > ticket
    })
    .await;
    guard.release().await.unwrap();
    assert!(granted(waiting).await.fence().token() > ticket.get());
}
