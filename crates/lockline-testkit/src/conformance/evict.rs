//! Eviction: compare and show out, without anybody overlapping.

use std::time::Duration;

use lockline::{ErrorKind, LossReason, Ticket};

use crate::faults::Kind;
use crate::setup::{SHORT, Setup, eventually, granted, line, queue_up, soon, until_empty};

/// §2 *Evict*: "a waiting claim is dropped", and its `lock()` fails and does not come back by itself.
pub async fn evicted_waiter_fails(setup: &Setup) {
    let operator = setup.client().await;
    let (locks, faults) = setup.faulty().await;
    let held = operator.mutex("m").lock().await.unwrap();
    let evicted = queue_up(&locks, "m", 1).await;
    let patient = queue_up(&operator, "m", 2).await;
    let ticket = line(&operator, "m").await.waiters[0].ticket;
    assert!(operator.evict("m", ticket, false).await.unwrap());
    let error = soon("it is told", evicted).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Evicted);
    assert_eq!(faults.count(Kind::Join), 1);
    assert_eq!(line(&operator, "m").await.waiters.len(), 1, "only the other one waits");
    held.release().await.unwrap();
    assert!(granted(patient).await.is_valid());
}

/// §2 *Evict*: a claim that is in is closed: told at once, "its deadline stays, so nobody overlaps".
pub async fn evicted_holder_is_told_and_nobody_overlaps(setup: &Setup) {
    let (operator, faults) = setup.faulty().await;
    let locks = setup.client_with(|builder| builder.lease(Duration::from_secs(4))).await;
    let guard = locks.mutex("m").lock().await.unwrap();
    let next = queue_up(&operator, "m", 1).await;
    assert!(operator.evict("m", Ticket::new(guard.fence().token()), false).await.unwrap());
    assert_eq!(soon("it is told", guard.lost()).await.reason, LossReason::Evicted);
    let stands = line(&operator, "m").await;
    // A holder that heard it leaves by itself; one that did not is still there, and marked.
    assert!(
        stands
            .holders
            .first()
            .is_none_or(|claim| claim.evicted || claim.ticket.get() != guard.fence().token())
    );
    let next = granted(next).await;
    assert!(!guard.is_valid(), "nobody overlaps");
    assert!(next.fence() > guard.fence());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(next.is_valid(), "the late release takes nothing away");
    assert!(faults.count(Kind::Evict) == 1);
}

/// §2: a holder that hears nothing keeps its place until its lease ends: the next one is in only then.
pub async fn evicted_holder_that_hears_nothing_keeps_its_lease(setup: &Setup) {
    let operator = setup.client().await;
    let (locks, faults) = setup.faulty_with(|builder| builder.lease(SHORT * 2)).await;
    faults.lose_bells();
    let guard = locks.mutex("m").lock().await.unwrap();
    faults.cut(crate::faults::Fault::Hang);
    let next = queue_up(&operator, "m", 1).await;
    assert!(operator.evict("m", Ticket::new(guard.fence().token()), false).await.unwrap());
    let stands = line(&operator, "m").await;
    assert!(stands.holders.first().is_none_or(|claim| claim.evicted), "it stands there, marked");
    let next = granted(next).await;
    assert!(!guard.is_valid(), "in only when the old guard has ended by itself");
    drop(next);
}

/// §2 *Evict*: "renew and join answer out": an evicted holder without its bell learns it from its next renewal.
pub async fn evicted_holder_learns_it_from_renewal(setup: &Setup) {
    let operator = setup.client().await;
    let (locks, faults) = setup.faulty_with(|builder| builder.lease(Duration::from_secs(3))).await;
    faults.lose_bells();
    let guard = locks.mutex("m").lock().await.unwrap();
    assert!(operator.evict("m", Ticket::new(guard.fence().token()), false).await.unwrap());
    assert_eq!(soon("a renewal tells it", guard.lost()).await.reason, LossReason::Evicted);
    until_empty(&operator, "when it has left").await;
}

/// §2: "`--now` drops it at once and says that only the token protects".
pub async fn at_once_lets_the_next_one_in_now(setup: &Setup) {
    let operator = setup.client().await;
    let (locks, faults) = setup.faulty().await;
    let guard = locks.mutex("m").lock().await.unwrap();
    let next = queue_up(&operator, "m", 1).await;
    // It neither hears nor leaves, and its lease is long: only the eviction can let the next one in.
    faults.lose_bells();
    faults.cut(crate::faults::Fault::Hang);
    assert!(operator.evict("m", Ticket::new(guard.fence().token()), true).await.unwrap());
    let next = granted(next).await;
    assert!(next.fence() > guard.fence(), "the token protects");
}

/// §4: "compare-and-evict": a ticket that is not there evicts nobody; evicting twice is harmless.
pub async fn wrong_ticket_evicts_nobody(setup: &Setup) {
    let (locks, operator) = (setup.client().await, setup.client().await);
    let guard = locks.mutex("m").lock().await.unwrap();
    let token = guard.fence().token();
    for (name, ticket) in [("m", token - 1), ("m", token + 1), ("other", token), ("m", 0)] {
        for at_once in [false, true] {
            assert!(!operator.evict(name, Ticket::new(ticket), at_once).await.unwrap());
        }
    }
    assert!(guard.is_valid());
    assert_eq!(line(&operator, "m").await.holders.len(), 1);
    assert!(operator.evict("m", Ticket::new(token), true).await.unwrap());
    assert!(!operator.evict("m", Ticket::new(token), true).await.unwrap(), "it is gone already");
    eventually("it is told", async || !guard.is_valid()).await;
}
