//! Leases: renewed, fixed, capped.

use std::time::{Duration, Instant};

use lockline::LossReason;

use crate::faults::Kind;
use crate::setup::{LONG, SHORT, Setup, granted, line, soon, until_empty, until_waiting};

/// §1: "renewed at a third": a lock outlives several leases for as long as its guard lives.
pub async fn renewal_keeps_a_lock_beyond_several_leases(setup: &Setup) {
    let lease = Duration::from_millis(1200);
    let (locks, faults) = setup.faulty_with(|builder| builder.lease(lease)).await;
    let guard = locks.mutex("m").lock().await.unwrap();
    let token = guard.fence();
    tokio::time::sleep(lease * 3).await;
    assert_eq!(guard.loss(), None, "{faults:?}");
    assert_eq!(guard.fence(), token);
    assert!(faults.count(Kind::Renew) >= 6, "at a third of the lease: {}", faults.count(Kind::Renew));
    assert!(setup.client().await.mutex("m").try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
}

/// §4 (`renew` is "a batch: one engine trip for many"): many locks are renewed together.
pub async fn many_locks_are_renewed_in_batches(setup: &Setup) {
    let lease = Duration::from_millis(3000);
    let (locks, faults) = setup.faulty_with(|builder| builder.lease(lease)).await;
    let mut guards = Vec::new();
    for nth in 0..100 {
        guards.push(locks.mutex(format!("many/{nth}")).lock().await.unwrap());
    }
    tokio::time::sleep(lease * 3 / 2).await;
    let losses: Vec<_> = guards.iter().filter_map(lockline::Guard::loss).collect();
    assert!(losses.is_empty(), "{} lost, the first: {:?}; {faults:?}", losses.len(), losses[0]);
    let renewals = faults.count(Kind::Renew);
    assert!((2..100).contains(&renewals), "100 locks, each renewed several times, in {renewals} calls");
}

/// §2 *Fixed lease*: it ends after its time, whatever happens, and nothing renews it.
pub async fn fixed_lease_ends(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    // Long enough that a machine which stands still for a moment does not have the final renewal sent again.
    let fixed = 3 * SHORT;
    let began = Instant::now();
    let guard = locks.mutex("m").lease(fixed).fixed().lock().await.unwrap();
    let held = Instant::now();
    assert_eq!(faults.count(Kind::Renew), 1, "one final renewal");
    assert!(guard.remaining() <= fixed);
    let lost = soon("the fixed lease ends", guard.lost()).await;
    assert_eq!(lost.reason, LossReason::Expired);
    assert!(began.elapsed() >= fixed * 9 / 10, "it had its time");
    assert_eq!(faults.count(Kind::Renew), 1, "and no other");
    let next = soon("the next one gets in", setup.client().await.mutex("m").lock()).await;
    assert!(next.unwrap().is_valid());
    assert!(held.elapsed() < LONG / 2, "by the fixed lease, not by the one it waited on");
}

/// §2 *Fixed lease*: "wait on the ordinary lease"; the fixed one begins "on getting in".
pub async fn fixed_lease_begins_on_getting_in(setup: &Setup) {
    let fixed = Duration::from_millis(1000);
    let (ann, bob) = (setup.client().await, setup.client().await);
    let guard = ann.mutex("m").lock().await.unwrap();
    let mutex = bob.mutex("m").lease(fixed).fixed();
    let waiting = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&ann, "m", 1).await;
    tokio::time::sleep(fixed * 3 / 2).await;
    assert_eq!(line(&ann, "m").await.waiters.len(), 1, "it waits for longer than its fixed lease");
    guard.release().await.unwrap();
    let fixed_guard = granted(waiting).await;
    let remaining = fixed_guard.remaining();
    assert!(remaining > fixed / 3 && remaining <= fixed, "all of it is still to come: {remaining:?}");
}

/// §2: "`max_hold`: lost exactly at the cap", however well renewal works.
pub async fn max_hold_is_lost_at_the_cap(setup: &Setup) {
    let (lease, cap) = (Duration::from_millis(900), Duration::from_millis(1500));
    let locks = setup.client().await;
    let began = Instant::now();
    let guard = locks.mutex("m").lease(lease).max_hold(cap).lock().await.unwrap();
    let granted_by = Instant::now();
    loop {
        let before_look = Instant::now();
        let valid = guard.is_valid();
        if before_look >= granted_by + cap {
            assert!(!valid, "a hung job cannot hold for longer");
            break;
        }
        if !valid {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(began.elapsed() >= cap, "renewed until the cap, not lost with a lease");
    assert_eq!(guard.lost().await.reason, LossReason::MaxHold);
    until_empty(&locks, "after the cap, with the guard still there").await;
}

/// §3: `remaining` is what is left of `t_send + lease − (1 % of lease + 2 ms)`.
pub async fn remaining_counts_down_from_less_than_the_lease(setup: &Setup) {
    let locks = setup.client_with(|builder| builder.lease(LONG)).await;
    let guard = locks.mutex("m").lock().await.unwrap();
    let margin = LONG / 100 + Duration::from_millis(2);
    let first = guard.remaining();
    assert!(first <= LONG - margin, "the margin is taken off: {first:?}");
    assert!(first > LONG / 2, "{first:?}");
    let at_engine = line(&locks, "m").await.holders[0].remaining;
    assert!(guard.remaining() + margin / 2 <= at_engine, "the guard ends before its place does");
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert!(guard.remaining() < first);
}
