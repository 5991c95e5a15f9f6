//! Cancellation: every public future, dropped at every await point, leaves nothing behind.
//!
//! The driver is suspended once before and once after each verb, so that every point at which a future can be dropped is
//! seen. Each future is made again and again and dropped after its first, second, third … suspension, until it ends by
//! itself: once right at the suspension, and once at the moment when it could have gone on, which is when a grant, an
//! answer or a bell has come that nobody will take. All leases are long: what is left soon was left, and did not lapse.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use lockline::{Locks, Ticket};

use crate::setup::{Setup, eventually, line, soon, until_empty, until_waiting};

/// When a future is dropped that has been suspended for the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Suspension,
    NextWake,
}

/// Polls a future until it has been suspended `times` times; `None` if it had not ended by then.
async fn suspended<T>(work: impl Future<Output = T>, times: usize, at: At) -> Option<T> {
    let mut work = pin!(work);
    let mut left = times;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        match work.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => {
                left -= 1;
                if left == 0 && at == At::Suspension { Poll::Ready(None) } else { Poll::Pending }
            }
        }
    })
    .await
}

/// A client whose verbs can be stopped at each step, and one that looks on.
struct Scene {
    locks: Locks,
    onlooker: Locks,
}

impl Scene {
    async fn new(setup: &Setup) -> Scene {
        let (locks, faults) = setup.faulty().await;
        faults.stepwise();
        Scene { locks, onlooker: setup.client().await }
    }

    /// Drops what `make` makes at every await point; each time nothing may be left, and the lock must be free.
    async fn drop_everywhere<T>(&self, what: &str, mut make: impl AsyncFnMut() -> T) {
        for at in [At::Suspension, At::NextWake] {
            let mut ended = false;
            for times in 0..200 {
                ended = suspended(make(), times, at).await.is_some();
                until_empty(&self.onlooker, format_args!("after {what} was dropped at {at:?} {times}")).await;
                // Not a `try_lock`: a join that was under way when it was dropped may arrive now, and leave at once.
                let next = format!("the next lock after {what} was dropped at {at:?} {times}");
                soon(next, self.onlooker.mutex("m").lock()).await.unwrap().release().await.unwrap();
                until_empty(&self.onlooker, "between two rounds").await;
                if ended {
                    break;
                }
            }
            assert!(ended, "{what} never ended by itself");
        }
    }

    /// Has somebody else hold `name` for a moment, so that others have to wait for it.
    async fn hold_for_a_moment(&self, name: &str) {
        let held = self.onlooker.mutex(name).lock().await.unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(15)).await;
            drop(held);
        });
    }
}

/// §6.4: `lock` on a free name, of every primitive.
pub async fn dropping_lock_anywhere_leaves_nothing(setup: &Setup) {
    let scene = Scene::new(setup).await;
    let locks = &scene.locks;
    scene.drop_everywhere("lock", async || locks.mutex("m").lock().await.unwrap()).await;
    scene.drop_everywhere("fixed lock", async || locks.mutex("m").fixed().lock().await.unwrap()).await;
    scene.drop_everywhere("read", async || locks.rwlock("m").read().await.unwrap()).await;
    scene.drop_everywhere("write", async || locks.rwlock("m").write().await.unwrap()).await;
    if !setup.refuses_permits().await {
        scene
            .drop_everywhere("acquire_many", async || locks.semaphore("m", 3).acquire_many(2).await.unwrap())
            .await;
    }
    scene.drop_everywhere("all", async || locks.all(["k", "m", "z"]).lock().await.unwrap()).await;
    scene.drop_everywhere("campaign", async || locks.election("m").campaign("me").await.unwrap()).await;
    let me = locks.owner("me");
    scene.drop_everywhere("owner's lock", async || me.mutex("m").lock().await.unwrap()).await;
    let job = locks.shared_owner("me", "job-7");
    scene.drop_everywhere("shared owner's lock", async || job.mutex("m").lock().await.unwrap()).await;
}

/// §6.4: `lock` that has to wait, dropped in line, on its bell, and on its grant.
pub async fn dropping_a_waiter_anywhere_leaves_nothing(setup: &Setup) {
    let scene = Scene::new(setup).await;
    let locks = &scene.locks;
    let waiting = async || {
        scene.hold_for_a_moment("m").await;
        locks.mutex("m").lock().await.unwrap()
    };
    scene.drop_everywhere("lock that waits", waiting).await;
    let waiting = async || {
        scene.hold_for_a_moment("m").await;
        locks.mutex("m").fixed().lock().await.unwrap()
    };
    scene.drop_everywhere("fixed lock that waits", waiting).await;
    let waiting = async || {
        scene.hold_for_a_moment("m").await;
        locks.rwlock("m").read().await.unwrap()
    };
    scene.drop_everywhere("read that waits", waiting).await;
    let waiting = async || {
        scene.hold_for_a_moment("m").await;
        locks.semaphore("m", 2).acquire().await.unwrap()
    };
    if !setup.refuses_permits().await {
        scene.drop_everywhere("acquire that waits", waiting).await;
    }
    let waiting = async || {
        scene.hold_for_a_moment("z").await;
        locks.all(["m", "z"]).lock().await.unwrap()
    };
    scene.drop_everywhere("all, waiting for its second", waiting).await;
    let waiting = async || {
        scene.hold_for_a_moment("m").await;
        locks.election("m").campaign("me").await.unwrap()
    };
    scene.drop_everywhere("campaign that waits", waiting).await;
}

/// §6.4: the verbs that try, and those that wait for a while.
pub async fn dropping_a_try_anywhere_leaves_nothing(setup: &Setup) {
    let scene = Scene::new(setup).await;
    let (locks, brief) = (&scene.locks, Duration::from_millis(40));
    scene.drop_everywhere("try_lock", async || locks.mutex("m").try_lock().await.unwrap()).await;
    scene.drop_everywhere("try_read", async || locks.rwlock("m").try_read().await.unwrap()).await;
    scene.drop_everywhere("try_write", async || locks.rwlock("m").try_write().await.unwrap()).await;
    let permits = !setup.refuses_permits().await;
    if permits {
        scene
            .drop_everywhere("try_acquire_many", async || {
                locks.semaphore("m", 3).try_acquire_many(2).await.unwrap()
            })
            .await;
    }
    scene.drop_everywhere("all.try_lock", async || locks.all(["m", "z"]).try_lock().await.unwrap()).await;
    scene
        .drop_everywhere("try_campaign", async || locks.election("m").try_campaign("me").await.unwrap())
        .await;
    let timed = async || {
        scene.hold_for_a_moment("m").await;
        locks.mutex("m").try_lock_for(brief).await.unwrap()
    };
    scene.drop_everywhere("try_lock_for", timed).await;
    let busy = async || {
        scene.hold_for_a_moment("m").await;
        locks.mutex("m").try_lock().await.unwrap()
    };
    scene.drop_everywhere("try_lock of a busy lock", busy).await;
    let timed = async || {
        scene.hold_for_a_moment("m").await;
        locks.rwlock("m").try_read_for(brief).await.unwrap()
    };
    scene.drop_everywhere("try_read_for", timed).await;
    let timed = async || {
        scene.hold_for_a_moment("m").await;
        locks.semaphore("m", 2).try_acquire_many_for(2, brief).await.unwrap()
    };
    if permits {
        scene.drop_everywhere("try_acquire_many_for", timed).await;
    }
    let timed = async || {
        scene.hold_for_a_moment("z").await;
        locks.all(["m", "z"]).try_lock_for(brief).await.unwrap()
    };
    scene.drop_everywhere("all.try_lock_for", timed).await;
}

/// §6.4: a release that is dropped "goes on in the background".
pub async fn dropping_a_release_anywhere_still_releases(setup: &Setup) {
    let scene = Scene::new(setup).await;
    let locks = &scene.locks;
    let release = async || locks.mutex("m").lock().await.unwrap().release().await.unwrap();
    scene.drop_everywhere("lock and release", release).await;
    let release = async || locks.all(["k", "m", "z"]).lock().await.unwrap().release().await.unwrap();
    scene.drop_everywhere("all and release", release).await;
    let me = locks.owner("me");
    let release = async || {
        let (outer, inner) = (me.mutex("m").lock().await.unwrap(), me.mutex("m").lock().await.unwrap());
        outer.release().await.unwrap();
        inner.release().await.unwrap();
    };
    scene.drop_everywhere("reentrant release", release).await;
}

/// §1: `run` and `lost` change nothing when they are dropped: the guard still holds.
pub async fn dropping_run_and_lost_keeps_the_lock(setup: &Setup) {
    let scene = Scene::new(setup).await;
    let work = async || {
        let guard = scene.locks.mutex("m").lock().await.unwrap();
        for times in 0..2 {
            let run = suspended(guard.run(std::future::pending::<()>()), times, At::Suspension).await;
            assert!(run.is_none());
            let lost = suspended(guard.lost(), times, At::Suspension).await;
            assert!(lost.is_none());
            assert!(guard.is_valid());
        }
        assert!(scene.onlooker.mutex("m").try_lock().await.unwrap().is_none(), "still held");
        let steps = async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        };
        guard.run(steps).await.unwrap();
    };
    scene.drop_everywhere("run", work).await;
}

/// §1: `view`, `show`, `evict`, `leader` and `observe` can be dropped at any point and asked again.
pub async fn dropping_a_look_anywhere_changes_nothing(setup: &Setup) {
    let scene = Scene::new(setup).await;
    let locks = &scene.locks;
    scene.drop_everywhere("view", async || locks.view("").await.unwrap()).await;
    scene.drop_everywhere("show", async || locks.show("m").await.unwrap()).await;
    scene.drop_everywhere("leader", async || locks.election("m").leader().await.unwrap()).await;
    scene.drop_everywhere("observe", async || locks.election("m").observe().next().await.unwrap()).await;
    scene
        .drop_everywhere("evict of nobody", async || locks.evict("m", Ticket::new(7), false).await.unwrap())
        .await;
    let evict = async || {
        let guard = scene.onlooker.mutex("m").lock().await.unwrap();
        let evicted = locks.evict("m", Ticket::new(guard.fence().token()), true).await.unwrap();
        assert!(evicted);
        guard
    };
    scene.drop_everywhere("evict", evict).await;
}

/// §1: a `shutdown` that is dropped goes on in the background; a `connect` that is dropped leaves nothing.
pub async fn dropping_shutdown_and_connect_anywhere(setup: &Setup) {
    let scene = Scene::new(setup).await;
    for at in [At::Suspension, At::NextWake] {
        for times in 0..4 {
            let (locks, faults) = setup.faulty().await;
            let guards = [locks.mutex("m").lock().await.unwrap(), locks.mutex("n").lock().await.unwrap()];
            faults.stepwise();
            suspended(locks.shutdown(Duration::from_secs(10)), times, at).await;
            if times > 0 {
                until_empty(&scene.onlooker, format_args!("after shutdown was dropped at {at:?} {times}"))
                    .await;
            }
            drop(guards);
            until_empty(&scene.onlooker, "when the guards are gone too").await;
        }
    }
    let connect = async || Locks::connect(setup.engine().url()).await.unwrap();
    scene.drop_everywhere("connect", connect).await;
}

/// §1: "drop releases in the background".
pub async fn dropping_a_guard_releases(setup: &Setup) {
    let (ann, bob) = (setup.client().await, setup.client().await);
    let guard = ann.mutex("m").lock().await.unwrap();
    let mutex = bob.mutex("m");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&bob, "m", 1).await;
    drop(guard);
    let next = soon("the next one gets in", waiting).await.unwrap().unwrap();
    drop(next);
    until_empty(&ann, "after both were dropped").await;
}

/// §2: a waiter whose task is aborted leaves, wherever it stands, and the order of the others stays.
pub async fn aborted_waiters_leave_the_line(setup: &Setup) {
    let scene = Scene::new(setup).await;
    let held = scene.onlooker.mutex("m").lock().await.unwrap();
    let mut tasks = Vec::new();
    for nth in 1..=5 {
        let mutex = scene.locks.mutex("m");
        tasks.push(tokio::spawn(async move { mutex.lock().await }));
        until_waiting(&scene.onlooker, "m", nth).await;
    }
    let before = line(&scene.onlooker, "m").await.waiters;
    for aborted in [0, 2, 4] {
        tasks[aborted].abort();
    }
    eventually("three left", async || line(&scene.onlooker, "m").await.waiters.len() == 2).await;
    let after: Vec<_> = line(&scene.onlooker, "m").await.waiters.iter().map(|claim| claim.ticket).collect();
    assert_eq!(after, [before[1].ticket, before[3].ticket]);
    held.release().await.unwrap();
    for survivor in [3, 1].map(|nth| tasks.swap_remove(nth)).into_iter().rev() {
        let guard = soon("the survivors get in", survivor).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
    until_empty(&scene.onlooker, "at the end").await;
}
