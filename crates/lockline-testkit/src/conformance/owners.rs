//! Owners: reentrancy counted in the process, and one place for an identity that processes share.

use std::time::Duration;

use lockline::{ErrorKind, LossReason, Ticket};

use crate::faults::{Fault, Kind};
use crate::setup::{SHORT, Setup, eventually, granted, line, soon, until_empty, until_waiting};

/// §2 *Reentrancy*: "counted in the process (0 round trips)".
pub async fn second_lock_costs_no_command(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    let me = locks.owner("me");
    let outer = me.mutex("m").lock().await.unwrap();
    let before = faults.count(Kind::Join) + faults.count(Kind::Leave);
    for _ in 0..100 {
        let inner = me.mutex("m").lock().await.unwrap();
        assert_eq!(inner.fence(), outer.fence());
        assert!(me.mutex("m").try_lock().await.unwrap().is_some());
        assert!(me.mutex("m").try_lock_for(Duration::from_secs(1)).await.unwrap().is_some());
        inner.release().await.unwrap();
    }
    assert_eq!(faults.count(Kind::Join) + faults.count(Kind::Leave), before, "not one word to the engine");
}

/// §2: the lock is let go with the last guard, in whatever order they go.
pub async fn holds_count_down(setup: &Setup) {
    let locks = setup.client().await;
    let me = locks.owner("me");
    let first = me.mutex("m").lock().await.unwrap();
    let second = me.mutex("m").lock().await.unwrap();
    let third = me.mutex("m").lock().await.unwrap();
    first.release().await.unwrap();
    drop(second);
    assert!(locks.mutex("m").try_lock().await.unwrap().is_none(), "one is left");
    third.release().await.unwrap();
    assert!(locks.mutex("m").try_lock().await.unwrap().is_some(), "none is left");
}

/// §1 `release`: it "waits until the engine knows", also when two guards of one hold are released at the same moment.
pub async fn releasing_two_guards_at_once_waits_for_the_engine(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    let other = setup.client().await;
    faults.always(Kind::Leave, Fault::Delay(Duration::from_millis(1)));
    for turn in 0..400 {
        let me = locks.owner("me");
        let guards = [me.mutex("m").lock().await.unwrap(), me.mutex("m").lock().await.unwrap()];
        let barrier = std::sync::Arc::new(std::sync::Barrier::new(2));
        let releases = guards.map(|guard| {
            let barrier = barrier.clone();
            tokio::task::spawn_blocking(move || {
                barrier.wait();
                tokio::runtime::Handle::current().block_on(guard.release())
            })
        });
        for release in releases {
            release.await.unwrap().unwrap();
        }
        let next = other.mutex("m").try_lock().await.unwrap();
        next.unwrap_or_else(|| panic!("turn {turn}: both were released")).release().await.unwrap();
    }
}

/// §1: "after the last release always a new id", hence a new ticket.
pub async fn after_the_last_release_a_new_claim(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    let me = locks.owner("me");
    let first = me.mutex("m").lock().await.unwrap();
    let token = first.fence();
    first.release().await.unwrap();
    let second = me.mutex("m").lock().await.unwrap();
    assert!(second.fence() > token);
    let joined = faults.joined();
    assert_ne!(joined[0].id, joined[1].id);
}

/// §2: reentrant "only while the claim is valid": after a loss the owner stands in line like anybody else.
pub async fn lost_hold_is_not_entered_again(setup: &Setup) {
    let locks = setup.client().await;
    let me = locks.owner("me");
    let lost = me.mutex("m").lock().await.unwrap();
    assert!(locks.evict("m", Ticket::new(lost.fence().token()), true).await.unwrap());
    soon("it is told", lost.lost()).await;
    let again = soon("a new claim", me.mutex("m").lock()).await.unwrap();
    assert!(again.fence() > lost.fence());
    assert!(again.is_valid() && !lost.is_valid());
    drop(lost);
    assert!(again.is_valid(), "the old guard takes nothing along");
    assert!(locks.mutex("m").try_lock().await.unwrap().is_none());
    let inner = me.mutex("m").lock().await.unwrap();
    assert_eq!(inner.fence(), again.fence(), "the new hold is entered");
}

/// §1: "an owner is a value": another owner waits, also of the same client and with the same label.
pub async fn another_owner_waits(setup: &Setup) {
    let locks = setup.client().await;
    let (me, namesake, other) = (locks.owner("me"), locks.owner("me"), locks.owner("other"));
    let held = me.mutex("m").lock().await.unwrap();
    assert!(namesake.mutex("m").try_lock().await.unwrap().is_none());
    assert!(other.mutex("m").try_lock().await.unwrap().is_none());
    assert!(locks.mutex("m").try_lock().await.unwrap().is_none());
    let mutex = other.mutex("m");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&locks, "m", 1).await;
    held.release().await.unwrap();
    assert!(granted(waiting).await.is_valid());
}

/// §2: read under write is covered; "asks to upgrade a read to a write: a clear error before sending, never a deadlock".
pub async fn upgrade_is_refused_before_sending(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    let me = locks.owner("me");
    let write = me.rwlock("r").write().await.unwrap();
    let read = me.rwlock("r").read().await.unwrap();
    assert_eq!(read.fence(), write.fence(), "a writer may read");
    drop((write, read));
    let read = me.rwlock("r").read().await.unwrap();
    let (sent, refused) = (faults.count(Kind::Join), me.rwlock("r").write().await.unwrap_err());
    assert_eq!(refused.kind(), ErrorKind::Deadlock);
    assert_eq!(me.mutex("r").try_lock().await.unwrap_err().kind(), ErrorKind::Deadlock);
    assert_eq!(faults.count(Kind::Join), sent, "before sending");
    assert!(read.is_valid());
    drop(read);

    if setup.refuses_permits().await {
        return;
    }
    let permit = me.semaphore("s", 4).acquire().await.unwrap();
    let (sent, refused) = (faults.count(Kind::Join), me.semaphore("s", 4).acquire().await.unwrap_err());
    assert_eq!(refused.kind(), ErrorKind::Deadlock, "permits taken one by one can deadlock");
    assert_eq!(faults.count(Kind::Join), sent);
    drop(permit);
    until_empty(&locks, "afterwards").await;
}

/// §2: two tasks of one owner that ask at the same time share one claim.
pub async fn two_tasks_of_one_owner_share_a_hold(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    faults.always(Kind::Join, Fault::Delay(Duration::from_millis(30)));
    let me = locks.owner("me");
    let tasks = [me.clone(), me.clone(), me.clone()]
        .map(|me| tokio::spawn(async move { me.mutex("m").lock().await }));
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(granted(task).await);
    }
    assert!(guards.iter().all(|guard| guard.fence() == guards[0].fence()));
    assert_eq!(faults.count(Kind::Join), 1);
    // The one that was getting it may be dropped: the next task of the owner goes on with it.
    drop(guards);
    until_empty(&locks, "when all tasks are done").await;
    let held = setup.client().await.mutex("m").lock().await.unwrap();
    let first = tokio::spawn({
        let me = me.clone();
        async move { me.mutex("m").lock().await }
    });
    until_waiting(&locks, "m", 1).await;
    let second = tokio::spawn(async move { me.mutex("m").lock().await });
    first.abort();
    eventually("the second task stands in line itself", async || faults.count(Kind::Join) == 3).await;
    held.release().await.unwrap();
    assert!(granted(second).await.is_valid());
}

/// §2: entering, leaving and asking for several at once from many threads of one owner neither blocks nor mixes up.
pub async fn owner_survives_a_race_of_its_tasks(setup: &Setup) {
    let locks = setup.client().await;
    let me = locks.owner("me");
    let until = std::time::Instant::now() + Duration::from_millis(1500);
    // Plain threads: one that is stuck for ever must fail this test, not hang its runtime.
    let (sender, mut done) = tokio::sync::mpsc::unbounded_channel();
    for nth in 0..4 {
        let (me, sender, runtime) = (me.clone(), sender.clone(), tokio::runtime::Handle::current());
        std::thread::spawn(move || {
            runtime.block_on(async {
                while std::time::Instant::now() < until {
                    if nth % 2 == 0 {
                        drop(me.mutex("b").try_lock().await);
                    } else {
                        // Refused while another thread is at "b": what matters is that it is answered.
                        drop(me.all(["a", "b"]).try_lock().await);
                    }
                }
            });
            // The test may be over if this thread was stuck.
            let _ = sender.send(nth);
        });
    }
    for _ in 0..4 {
        soon("no task of the owner is stuck", done.recv()).await;
    }
    until_empty(&locks, "when all are done").await;
}

/// §2: a shared identity: "one place per owner, holds are a **set** of ids on it, … all with the place's ticket".
pub async fn shared_identity_is_one_place(setup: &Setup) {
    let (ann, bob) = (setup.client().await, setup.client().await);
    let [first, second] = [&ann, &bob].map(|locks| locks.shared_owner("job", "job-7"));
    let one = first.mutex("m").lock().await.unwrap();
    let two = soon("it enters", second.mutex("m").lock()).await.unwrap();
    assert_eq!(one.fence(), two.fence(), "the place's ticket");
    let stranger = setup.client().await;
    assert!(stranger.shared_owner("job", "job-8").mutex("m").try_lock().await.unwrap().is_none());
    one.release().await.unwrap();
    assert!(two.is_valid());
    assert!(stranger.mutex("m").try_lock().await.unwrap().is_none(), "both must release");
    two.release().await.unwrap();
    assert!(stranger.mutex("m").try_lock().await.unwrap().is_some());
}

/// §2: each hold of a shared place has "its own deadline": one that is lost takes nobody along.
pub async fn shared_holds_have_their_own_deadlines(setup: &Setup) {
    let ann = setup.client().await;
    let bob = setup.client().await;
    let one = ann.shared_owner("job", "job-7").mutex("m").lock().await.unwrap();
    let two = bob.shared_owner("job", "job-7").mutex("m").lease(SHORT).fixed().lock().await.unwrap();
    assert_eq!(soon("the fixed one ends", two.lost()).await.reason, LossReason::Expired);
    assert!(one.is_valid());
    eventually("its hold is gone", async || line(&ann, "m").await.holders.len() == 1).await;
    assert!(bob.mutex("m").try_lock().await.unwrap().is_none(), "the other one still holds");
    let refused = bob.shared_owner("job", "job-7").rwlock("m").read().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Deadlock, "another mode would wait for itself");
}
