//! How clients end: shut down, dropped with their runtime, and nothing of them remains.

use std::time::Duration;

use lockline::{ErrorKind, Locks};

use crate::faults::{Fault, Kind};
use crate::setup::{SHORT, SOON, Setup, queue_up, soon, until_empty, within};

/// §1 `shutdown`: everything it holds or waits for is left when it returns, and afterwards it refuses.
pub async fn shutdown_leaves_everything_and_refuses(setup: &Setup) {
    let (locks, other) = (setup.client().await, setup.client().await);
    let held = locks.mutex("a").lock().await.unwrap();
    let others = other.mutex("b").lock().await.unwrap();
    let waiting = queue_up(&locks, "b", 1).await;
    locks.shutdown(SOON).await.unwrap();
    let lines = other.view("").await.unwrap();
    assert_eq!(lines.len(), 1, "only the other client's lock is left");
    assert!(lines[0].waiters.is_empty());
    assert!(!held.is_valid());
    let error = soon("the waiter is told", waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(locks.mutex("c").lock().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(locks.clone().mutex("c").try_lock().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(locks.owner("me").mutex("c").lock().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(locks.all(["c"]).lock().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(locks.view("").await.unwrap_err().kind(), ErrorKind::Closed);
    locks.shutdown(SOON).await.unwrap();
    others.release().await.unwrap();
}

/// §1 `shutdown`, while others of its tasks go on locking: nothing is left, and nobody holds anything any more.
pub async fn shutdown_among_lockers_leaves_nothing(setup: &Setup) {
    let onlooker = setup.client().await;
    for round in 0..8 {
        let locks = setup.client().await;
        let tasks: Vec<_> = (0..8)
            .map(|nth| {
                let mutex = locks.mutex(format!("m/{}", nth % 4));
                tokio::spawn(async move {
                    loop {
                        match mutex.lock().await {
                            Ok(_guard) => tokio::task::yield_now().await,
                            Err(error) => return error.kind(),
                        }
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(5 + round)).await;
        locks.shutdown(SOON).await.unwrap();
        for task in tasks {
            assert_eq!(soon("every task is refused", task).await.unwrap(), ErrorKind::Closed);
        }
        until_empty(&onlooker, format_args!("after shutdown {round}")).await;
    }
}

/// §1 `shutdown`, while a join is on its way that comes to the engine after the leave: it is waited for, and leaves again.
pub async fn shutdown_waits_for_a_join_under_way(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    let onlooker = setup.client().await;
    let before = faults.count(Kind::Join);
    faults.always(Kind::Join, Fault::Delay(Duration::from_millis(200)));
    let mutex = locks.mutex("m");
    let asking = tokio::spawn(async move { mutex.lock().await.map(drop) });
    within(SOON, "it is asked for", async || faults.count(Kind::Join) > before).await;
    locks.shutdown(SOON).await.unwrap();
    assert_eq!(onlooker.view("").await.unwrap().len(), 0, "nothing is left when it returns");
    assert_eq!(soon("it is refused", asking).await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
}

/// §1 `shutdown` on an engine that does not answer returns in its time, and says what it knows.
pub async fn shutdown_is_bounded(setup: &Setup) {
    // Long enough that a machine which stands still for a moment does not cost the first join its whole lease.
    let (locks, faults) = setup.faulty_with(|builder| builder.lease(3 * SHORT)).await;
    let guard = locks.mutex("m").lock().await.unwrap();
    faults.always(Kind::Leave, Fault::Hang);
    let error = soon("it returns", locks.shutdown(Duration::from_millis(100))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert!(!guard.is_valid());
    faults.clear();
    let other = setup.client().await;
    until_empty(&other, "when its leases have ended").await;
}

/// Algorithms §3: runtime shut down: "else the lease": others wait for one lease at most, and late drops do no harm.
pub async fn runtime_that_is_dropped_leaves_it_to_the_lease(setup: &Setup) {
    let other = setup.client().await;
    let url = setup.engine().url().to_owned();
    let abandoned = std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let kept = runtime.block_on(async {
            let locks = Locks::builder().lease(SHORT).connect(&url).await.unwrap();
            let guard = locks.mutex("m").lock().await.unwrap();
            let waiter = locks.mutex("m");
            tokio::spawn(async move { waiter.lock().await });
            (locks, guard)
        });
        drop(runtime);
        kept
    });
    let (locks, guard) = tokio::task::spawn_blocking(|| abandoned.join()).await.unwrap().unwrap();
    let next = soon("its lease ends", other.mutex("m").lock()).await.unwrap();
    assert!(!guard.is_valid(), "without a runtime the guard still knows its end");
    // Their runtime is gone: dropping them must neither panic nor take anything from the next holder.
    drop(guard);
    drop(locks);
    assert!(next.is_valid());
    next.release().await.unwrap();
    until_empty(&other, "of the abandoned client").await;
}

/// §6.5: "When all clients are gone, after one lease nothing of ours is left in the engine".
pub async fn no_residue_after_a_lease(setup: &Setup) {
    let mut clients = Vec::new();
    let permits = !setup.refuses_permits().await;
    for nth in 0..3 {
        let (locks, faults) = setup.faulty_with(|builder| builder.lease(SHORT)).await;
        let guards = (
            locks.mutex(format!("own/{nth}")).lock().await.unwrap(),
            locks.rwlock("shared").read().await.unwrap(),
            if permits { Some(locks.semaphore("permits", 10).acquire_many(2).await.unwrap()) } else { None },
            locks.shared_owner("job", "job-7").mutex("job").lock().await.unwrap(),
        );
        let mutex = locks.mutex("own/0");
        tokio::spawn(async move { mutex.lock().await });
        clients.push((locks, faults, guards));
    }
    let onlooker = setup.client().await;
    assert!(onlooker.view("").await.unwrap().len() >= 3);
    // From now on not one word of theirs reaches the engine: they are as good as dead.
    for (_, faults, _) in &clients {
        faults.cut(Fault::LoseRequest);
    }
    within(SHORT * 8, "nothing is left", async || onlooker.view("").await.unwrap().is_empty()).await;
    drop(clients);
}

/// §1: a client that is dropped with all its guards leaves nothing, without a `shutdown`.
pub async fn dropped_client_leaves_nothing(setup: &Setup) {
    let onlooker = setup.client().await;
    let locks = setup.client().await;
    let guard = locks.mutex("m").lock().await.unwrap();
    drop(locks);
    assert!(guard.is_valid(), "a guard keeps its client alive");
    drop(guard);
    until_empty(&onlooker, "of the dropped client").await;
}
