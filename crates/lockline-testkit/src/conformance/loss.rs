//! Loss: in time, without a network, for a reason, and for good.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lockline::{ErrorKind, Guard, LossReason, Ticket};

use crate::faults::{Fault, Kind};
use crate::setup::{SHORT, Setup, eventually, granted, queue_up, soon, until_empty};

fn ticket(guard: &Guard) -> Ticket {
    Ticket::new(guard.fence().token())
}

/// §3, §6.1: "A guard says *Lost* by `valid_until` with no network at all."
pub async fn lost_by_valid_until_without_a_network(setup: &Setup) {
    let (locks, faults) = setup.faulty_with(|builder| builder.lease(SHORT)).await;
    faults.always(Kind::Renew, Fault::Hang);
    let guard = locks.mutex("m").lock().await.unwrap();
    let answered = Instant::now();
    faults.cut(Fault::Hang);
    let margin = SHORT / 100 + Duration::from_millis(2);
    loop {
        // Deterministic whatever the machine does: the request left before it was answered.
        let looked = Instant::now();
        let valid = guard.is_valid();
        assert!(
            !(valid && looked >= answered + SHORT - margin),
            "valid {:?} after the answer",
            looked - answered
        );
        if !valid {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(soon("lost() ends", guard.lost()).await.reason, LossReason::Unreachable);
}

/// §3, §6.6: when another one gets in, the guard that was cut off has said that it is lost: nobody overlaps.
pub async fn nobody_overlaps_with_one_who_is_cut_off(setup: &Setup) {
    let (locks, faults) = setup.faulty_with(|builder| builder.lease(SHORT)).await;
    let other = setup.client().await;
    for _ in 0..3 {
        faults.clear();
        let guard = locks.mutex("m").lock().await.unwrap();
        faults.cut(Fault::Hang);
        let next = soon("the place lapses", other.mutex("m").lock()).await.unwrap();
        assert!(!guard.is_valid(), "two valid guards");
        assert!(next.fence() > guard.fence());
        faults.clear();
        drop(guard);
        next.release().await.unwrap();
    }
}

/// §3: *unreachable*, also when requests fail fast instead of hanging.
pub async fn reason_unreachable(setup: &Setup) {
    for fault in [Fault::LoseRequest, Fault::LoseReply] {
        let (locks, faults) = setup.faulty_with(|builder| builder.lease(SHORT)).await;
        let guard = locks.mutex("m").lock().await.unwrap();
        if fault == Fault::LoseReply {
            // The engine hears every renewal, but the guard cannot know.
            faults.always(Kind::Renew, fault);
        } else {
            faults.cut(fault);
        }
        assert_eq!(soon("it is lost", guard.lost()).await.reason, LossReason::Unreachable);
        faults.clear();
        drop(guard);
        until_empty(&locks, "once the engine is back").await;
    }
}

/// §3: *expired*: a runtime that is blocked for longer than a lease learns it on the first look.
pub async fn reason_expired_on_the_first_look_after_a_pause(setup: &Setup) {
    let url = setup.engine().url().to_owned();
    let reason = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let locks = lockline::Locks::builder().lease(SHORT).connect(&url).await.unwrap();
            let guard = locks.mutex("m").lock().await.unwrap();
            // No await: nothing of this client runs meanwhile, as in a process that was stopped.
            std::thread::sleep(SHORT + SHORT / 2);
            guard.loss().map(|lost| lost.reason)
        })
    });
    let reason = tokio::task::spawn_blocking(|| reason.join()).await.unwrap().unwrap();
    assert_eq!(reason, Some(LossReason::Expired));
}

/// §3: *evicted*, and told at once.
pub async fn reason_evicted(setup: &Setup) {
    let (locks, operator) = (setup.client().await, setup.client().await);
    let guard = locks.mutex("m").lock().await.unwrap();
    assert!(operator.evict("m", ticket(&guard), false).await.unwrap());
    assert_eq!(soon("the bell tells it", guard.lost()).await.reason, LossReason::Evicted);
}

/// §3: *engine forgot*: the place is gone although its lease had not run out.
pub async fn reason_forgotten(setup: &Setup) {
    let (locks, faults) = setup.faulty_with(|builder| builder.lease(Duration::from_secs(3))).await;
    let guard = locks.mutex("m").lock().await.unwrap();
    if !setup.engine().forget() {
        faults.take_away_all().await;
    }
    assert_eq!(soon("the next renewal tells it", guard.lost()).await.reason, LossReason::Forgotten);
    assert!(locks.mutex("m").lock().await.unwrap().is_valid(), "the client goes on");
}

/// §3: *max hold reached*.
pub async fn reason_max_hold(setup: &Setup) {
    let locks = setup.client().await;
    let guard = locks.mutex("m").max_hold(Duration::from_millis(100)).lock().await.unwrap();
    assert_eq!(soon("the cap comes", guard.lost()).await.reason, LossReason::MaxHold);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

/// §1 `shutdown`: guards of a client that was shut down are lost, and say why.
pub async fn reason_shutdown(setup: &Setup) {
    let locks = setup.client().await;
    let guard = locks.mutex("m").lock().await.unwrap();
    locks.shutdown(Duration::from_secs(10)).await.unwrap();
    assert_eq!(guard.loss().map(|lost| lost.reason), Some(LossReason::Shutdown));
    assert_eq!(soon("lost() ends", guard.lost()).await.reason, LossReason::Shutdown);
}

/// §3: "A lost guard never comes back": not when the engine answers again, nor ever.
pub async fn lost_guard_never_comes_back(setup: &Setup) {
    let (locks, faults) = setup.faulty_with(|builder| builder.lease(SHORT)).await;
    let guard = locks.mutex("m").lock().await.unwrap();
    // The engine hears every renewal and keeps the place: only the guard cannot know.
    faults.always(Kind::Renew, Fault::LoseReply);
    let lost = soon("it is lost", guard.lost()).await;
    faults.clear();
    tokio::time::sleep(SHORT).await;
    assert!(!guard.is_valid());
    assert_eq!(guard.loss(), Some(lost.clone()), "the first reason stays");
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_eq!(guard.lost().await, lost);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost, "what was done last is in doubt");
    until_empty(&locks, "after a loss").await;
}

/// §3: an answer is applied only while the claim is valid: one that was on its way during the loss changes nothing.
pub async fn late_answer_does_not_revive(setup: &Setup) {
    let lease = Duration::from_secs(3);
    let (locks, faults) = setup.faulty_with(|builder| builder.lease(lease)).await;
    let guard = locks.mutex("m").lock().await.unwrap();
    // Longer than the deadline of a call: the answers come when nobody listens any more.
    faults.always(Kind::Renew, Fault::DelayReply(lease / 4));
    assert_eq!(soon("it is lost", guard.lost()).await.reason, LossReason::Unreachable);
    tokio::time::sleep(lease / 2).await;
    assert!(!guard.is_valid());
}

/// §1: `run`: "Err(Lost) and the future is dropped if the lock is lost".
pub async fn run_drops_the_work_when_lost(setup: &Setup) {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let (locks, operator) = (setup.client().await, setup.client().await);
    let guard = locks.mutex("m").lock().await.unwrap();
    assert_eq!(guard.run(async { 42 }).await, Ok(42), "work that ends in time gives its result");
    let dropped = Arc::new(AtomicBool::new(false));
    let witness = Dropped(dropped.clone());
    let ticket = ticket(&guard);
    let work = async move {
        let _witness = witness;
        std::future::pending::<()>().await;
    };
    let run = guard.run(work);
    let evict = async {
        operator.evict("m", ticket, false).await.unwrap();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        lost = run => assert_eq!(lost.unwrap_err().reason, LossReason::Evicted),
        () = evict => {}
        () = tokio::time::sleep(crate::setup::SOON) => panic!("run() did not end"),
    }
    assert!(dropped.load(Ordering::Acquire));
    let never_begun = guard.run(async { panic!("a lost guard begins no work") }).await;
    assert!(never_begun.is_err());
}

/// §3 "Waiting claims have a `valid_until` too": a waiter cut off for a lease stands in line anew once it can.
pub async fn waiter_that_was_cut_off_joins_anew(setup: &Setup) {
    let other = setup.client().await;
    let (locks, faults) = setup.faulty_with(|builder| builder.lease(SHORT)).await;
    let held = other.mutex("m").lock().await.unwrap();
    let waiting = queue_up(&locks, "m", 1).await;
    faults.always(Kind::Renew, Fault::LoseRequest);
    eventually("it joined anew", async || faults.count(Kind::Join) >= 2).await;
    assert!(!waiting.is_finished());
    faults.clear();
    held.release().await.unwrap();
    assert!(granted(waiting).await.is_valid());
}
