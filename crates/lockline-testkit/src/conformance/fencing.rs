//! The ticket is the fencing token: a later holder always has the larger one.

use std::time::Duration;

use lockline::fence::Gate;

use crate::setup::{SHORT, Setup, granted, queue_up, soon};

/// §2: "claims get in in ticket order, so a later holder always has the larger token": over clients.
pub async fn tokens_rise_over_clients(setup: &Setup) {
    let clients = [setup.client().await, setup.client().await];
    let mut newest = 0;
    for turn in 0..40 {
        let guard = clients[turn % 2].mutex("m").lock().await.unwrap();
        assert!(guard.fence().token() > newest, "turn {turn}");
        assert!(guard.fence().is_exclusive());
        newest = guard.fence().token();
        guard.release().await.unwrap();
    }
}

/// §2: tokens rise over restarts: everybody goes, the engine is closed and opened again.
pub async fn tokens_rise_over_restarts(setup: &Setup) {
    let mut newest = 0;
    for _ in 0..4 {
        let locks = setup.client().await;
        let guard = locks.mutex("m").lock().await.unwrap();
        assert!(guard.fence().token() > newest);
        newest = guard.fence().token();
        guard.release().await.unwrap();
        locks.shutdown(Duration::from_secs(10)).await.unwrap();
    }
}

/// §2: "tokens stay monotone even if the engine loses its memory".
pub async fn tokens_rise_over_amnesia(setup: &Setup) {
    let locks = setup.client().await;
    let mut newest = 0;
    for _ in 0..4 {
        let guard = locks.mutex("m").lock().await.unwrap();
        assert!(guard.fence().token() > newest);
        newest = guard.fence().token();
        // An engine that cannot be made to forget is asked for the next token all the same.
        setup.engine().forget();
        drop(guard);
    }
}

/// §2: "a resource raises its mark only for exclusive tokens and checks the others against it".
pub async fn gate_refuses_an_older_holder(setup: &Setup) {
    let gate = Gate::default();
    let (ann, bob) = (setup.client().await, setup.client().await);
    let readers = [ann.rwlock("r").read().await.unwrap(), bob.rwlock("r").read().await.unwrap()];
    assert!(!readers[0].fence().is_exclusive());
    assert!(gate.pass(readers[1].fence()).is_ok());
    assert!(gate.pass(readers[0].fence()).is_ok(), "co-holders act in any order");
    let old = readers.map(|guard| guard.fence());
    let writer = soon("the readers left", ann.rwlock("r").write()).await.unwrap();
    assert!(gate.pass(writer.fence()).is_ok());
    assert!(old.iter().all(|fence| gate.pass(*fence).is_err()), "a reader that slept through its lease");
    assert!(gate.pass(writer.fence()).is_ok(), "the holder itself may come again");
}

/// §2, §3: a fixed hold that ended is refused by a gate that its successor has passed.
pub async fn token_of_an_expired_hold_is_refused(setup: &Setup) {
    let gate = Gate::default();
    let (ann, bob) = (setup.client().await, setup.client().await);
    let slow = ann.mutex("m").lease(SHORT).fixed().lock().await.unwrap();
    let next = granted(queue_up_or_in(&bob).await).await;
    assert!(gate.pass(next.fence()).is_ok());
    assert!(gate.pass(slow.fence()).is_err());
    assert!(!slow.is_valid());
}

async fn queue_up_or_in(
    locks: &lockline::Locks,
) -> tokio::task::JoinHandle<lockline::Result<lockline::Guard>> {
    let mutex = locks.mutex("m");
    tokio::spawn(async move { mutex.lock().await })
}

/// §1: each lock of a guard on several has a token of its own.
pub async fn several_locks_have_a_token_each(setup: &Setup) {
    let locks = setup.client().await;
    let one = locks.mutex("b").lock().await.unwrap();
    let before = one.fence();
    let waiting = queue_up(&locks, "b", 1).await;
    one.release().await.unwrap();
    granted(waiting).await.release().await.unwrap();
    let both = locks.all(["b", "a"]).lock().await.unwrap();
    let fences: Vec<_> = both.fences().collect();
    assert_eq!(fences.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(both.fence(), fences[0].1);
    assert!(fences[1].1 > before);
}
