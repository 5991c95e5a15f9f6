//! `lockline::blocking`: the same locks on plain threads.

use std::time::Duration;

use lockline::blocking::Locks;
use lockline::{ErrorKind, LossReason, Ticket};

use crate::setup::{LONG, SOON, Setup, until_empty, until_waiting};

/// Runs on a thread that is no runtime's.
async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(work);
    tokio::task::spawn_blocking(|| thread.join()).await.unwrap().expect("the thread ends well")
}

fn connect(url: &str) -> Locks {
    Locks::connect_with(lockline::Locks::builder().lease(LONG), url).unwrap()
}

/// §1: "`lockline::blocking` is the same API": mutual exclusion, trying, waiting, and every primitive.
pub async fn blocking_has_every_primitive(setup: &Setup) {
    let (url, permits) = (setup.engine().url().to_owned(), setup.engine().counts_permits());
    on_a_thread(move || {
        let locks = connect(&url);
        let guard = locks.mutex("m").lock().unwrap();
        assert!(guard.check().is_ok() && guard.remaining() > Duration::ZERO);
        assert!(locks.mutex("m").try_lock().unwrap().is_none());
        assert!(locks.mutex("m").try_lock_for(Duration::from_millis(30)).unwrap().is_none());
        let token = guard.fence();
        guard.release().unwrap();
        // Waits: the timed one that gave up may still be leaving.
        let next = locks.mutex("m").lease(Duration::from_secs(5)).lock().unwrap();
        assert!(next.fence() > token);
        drop(next);
        let readers = (locks.rwlock("r").read().unwrap(), locks.rwlock("r").try_read().unwrap().unwrap());
        assert!(locks.rwlock("r").try_write().unwrap().is_none());
        drop(readers);
        let permit = locks.semaphore("s", 3).acquire_many(2).map(drop).map_err(|refused| refused.kind());
        assert_eq!(permit, if permits { Ok(()) } else { Err(ErrorKind::Unsupported) });
        assert_eq!(locks.semaphore("s", 3).acquire_many(4).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(locks.all(["b", "a"]).lock().unwrap().fences().count(), 2);
        let me = locks.owner("me");
        let (outer, inner) = (me.mutex("o").lock().unwrap(), me.mutex("o").lock().unwrap());
        assert_eq!(outer.fence(), inner.fence());
        let term = locks.election("e").campaign("node-1").unwrap();
        assert_eq!(locks.election("e").leader().unwrap().unwrap().who.owner, "node-1");
        assert_eq!(locks.show("e").unwrap().holders.len(), 1);
        assert!(locks.evict("e", Ticket::new(term.fence().token()), false).unwrap());
        assert_eq!(term.lost_within(SOON).unwrap().unwrap().reason, LossReason::Evicted);
        assert_eq!(term.check().unwrap_err().reason, LossReason::Evicted);
        assert!(inner.lost_within(Duration::from_millis(10)).unwrap().is_none());
        locks.shutdown(SOON).unwrap();
        assert_eq!(locks.mutex("m").lock().unwrap_err().kind(), ErrorKind::Closed);
    })
    .await;
    until_empty(&setup.client().await, "of the blocking client").await;
}

/// Threads wait their turn, also beside async clients of the same engine.
pub async fn blocking_waits_its_turn(setup: &Setup) {
    let asynchronous = setup.client().await;
    let held = asynchronous.mutex("m").lock().await.unwrap();
    let url = setup.engine().url().to_owned();
    let thread = tokio::spawn(on_a_thread(move || {
        let locks = connect(&url);
        let guard = locks.mutex("m").lock().unwrap();
        guard.fence()
    }));
    until_waiting(&asynchronous, "m", 1).await;
    let token = held.fence();
    held.release().await.unwrap();
    assert!(crate::setup::soon("the thread gets in", thread).await.unwrap() > token);
    // It ended without a release and without a shutdown: dropping them left the lock all the same.
    until_empty(&asynchronous, "of the thread").await;
}

/// "every call there is refused": inside a runtime the blocking API does not block it.
pub async fn blocking_is_refused_inside_a_runtime(setup: &Setup) {
    let url = setup.engine().url().to_owned();
    assert_eq!(Locks::connect(&url).unwrap_err().kind(), ErrorKind::Invalid);
    let made = url.clone();
    let (locks, guard) = on_a_thread(move || {
        let locks = connect(&made);
        let guard = locks.mutex("m").lock().unwrap();
        (locks, guard)
    })
    .await;
    assert_eq!(locks.mutex("m").lock().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(locks.view("").unwrap_err().kind(), ErrorKind::Invalid);
    assert!(guard.check().is_ok(), "looking does not block");
    assert_eq!(guard.release().unwrap_err().kind(), ErrorKind::Invalid, "but the guard is gone all the same");
    until_empty(&setup.client().await, "of a guard whose release was refused").await;
    on_a_thread(move || drop(locks)).await;
}
