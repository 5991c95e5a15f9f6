//! Several locks at once: sorted, all or nothing, never a deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockline::{ErrorKind, Ticket};

use crate::faults::Kind;
use crate::setup::{Setup, eventually, granted, line, soon, until_empty, until_waiting};

/// §2 *Several names*: "sorted, without duplicates".
pub async fn all_is_sorted_without_duplicates(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    let guard = locks.all(["c", "a", "b", "a", "c"]).lock().await.unwrap();
    let joined: Vec<_> = faults.joined().iter().map(|claim| claim.name.as_str().to_owned()).collect();
    assert_eq!(joined, ["a", "b", "c"]);
    assert_eq!(guard.fences().count(), 3);
    guard.release().await.unwrap();
    assert!(locks.view("").await.unwrap().is_empty(), "released together");
    assert_eq!(locks.all([""; 0]).lock().await.unwrap_err().kind(), ErrorKind::Invalid);
}

/// §2: "join the next only when in the one before (never pipelined)".
pub async fn all_joins_one_at_a_time(setup: &Setup) {
    let holder = setup.client().await;
    let (locks, faults) = setup.faulty().await;
    let held = holder.mutex("a").lock().await.unwrap();
    let all = locks.all(["a", "b"]);
    let waiting = tokio::spawn(async move { all.lock().await });
    until_waiting(&holder, "a", 1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(faults.count(Kind::Join), 1, "it does not stand in the second line yet");
    assert!(holder.mutex("b").try_lock().await.unwrap().is_some());
    held.release().await.unwrap();
    assert!(granted(waiting).await.is_valid());
}

/// §1: "all or nothing": one that is busy leaves nothing of the others.
pub async fn all_or_nothing(setup: &Setup) {
    let (ann, bob) = (setup.client().await, setup.client().await);
    let held = ann.mutex("b").lock().await.unwrap();
    assert!(bob.all(["a", "b", "c"]).try_lock().await.unwrap().is_none());
    eventually("nothing of the others is left", async || ann.view("").await.unwrap().len() == 1).await;
    assert!(bob.all(["a", "b", "c"]).try_lock_for(Duration::from_millis(50)).await.unwrap().is_none());
    eventually("nothing of the others is left", async || {
        let lines = ann.view("").await.unwrap();
        lines.len() == 1 && lines[0].waiters.is_empty()
    })
    .await;
    held.release().await.unwrap();
    assert!(bob.all(["a", "b", "c"]).try_lock().await.unwrap().is_some());
}

/// §2: "If the owner already holds a name that sorts after one still missing …: a clear error before sending".
pub async fn wrong_order_is_refused_before_sending(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    let me = locks.owner("me");
    let late = me.mutex("b").lock().await.unwrap();
    let sent = faults.count(Kind::Join);
    assert_eq!(me.all(["a", "c"]).lock().await.unwrap_err().kind(), ErrorKind::Deadlock);
    assert_eq!(me.all(["a", "b"]).lock().await.unwrap_err().kind(), ErrorKind::Deadlock);
    assert_eq!(faults.count(Kind::Join), sent, "before sending");
    let more = me.all(["b", "c"]).lock().await.unwrap();
    assert_eq!(faults.count(Kind::Join), sent + 1, "what it has, it enters again");
    drop((late, more));
    until_empty(&locks, "afterwards").await;
    assert!(me.all(["a", "b"]).lock().await.unwrap().is_valid(), "in order it may");
}

/// §2: "one lost → leave all", and it starts again.
pub async fn all_starts_again_when_one_is_lost(setup: &Setup) {
    let (holder, locks) = (setup.client().await, setup.client().await);
    let held = holder.mutex("b").lock().await.unwrap();
    let all = locks.all(["a", "b"]);
    let waiting = tokio::spawn(async move { all.lock().await });
    until_waiting(&holder, "b", 1).await;
    let first = line(&holder, "a").await.holders[0].ticket;
    let in_line = line(&holder, "b").await.waiters[0].ticket;
    assert!(holder.evict("a", first, true).await.unwrap());
    eventually("it stands in both lines anew", async || {
        let (a, b) = (line(&holder, "a").await, line(&holder, "b").await);
        a.holders.len() == 1
            && a.holders[0].ticket > first
            && b.waiters.len() == 1
            && b.waiters[0].ticket > in_line
    })
    .await;
    held.release().await.unwrap();
    let guard = granted(waiting).await;
    assert!(guard.is_valid());
    assert!(guard.fence().token() > first.get());
}

/// §3: a guard on several is lost when any of them is.
pub async fn several_are_lost_together(setup: &Setup) {
    let (locks, operator) = (setup.client().await, setup.client().await);
    let guard = locks.all(["a", "b", "c"]).lock().await.unwrap();
    let (_, fence) = guard.fences().nth(1).unwrap();
    assert!(operator.evict("b", Ticket::new(fence.token()), false).await.unwrap());
    let lost = soon("it is told", guard.lost()).await;
    assert_eq!(lost.name.as_str(), "b");
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    eventually("the others are left all the same", async || operator.view("").await.unwrap().len() <= 1)
        .await;
}

/// §1: "no deadlock": many who take random sets in random order all get through, and nobody meets another inside.
pub async fn random_crossing_does_not_deadlock(setup: &Setup) {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let inside: Arc<[AtomicBool; 4]> = Arc::default();
    let mut tasks = Vec::new();
    for seed in 0..6 {
        let (locks, inside) = (setup.client().await, inside.clone());
        tasks.push(tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..25 {
                let mut chosen: Vec<usize> = (0..NAMES.len()).filter(|_| random.bool()).collect();
                random.shuffle(&mut chosen);
                if chosen.is_empty() {
                    continue;
                }
                let guard = locks.all(chosen.iter().map(|index| NAMES[*index])).lock().await.unwrap();
                for index in &chosen {
                    assert!(
                        !inside[*index].swap(true, Ordering::AcqRel),
                        "somebody else is inside {}",
                        NAMES[*index]
                    );
                }
                tokio::task::yield_now().await;
                for index in &chosen {
                    inside[*index].store(false, Ordering::Release);
                }
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(60), task).await.expect("no deadlock").unwrap();
    }
}
