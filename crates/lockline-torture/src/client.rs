//! One process under torture: a few tasks that take locks in every way there is, and write down what they believe.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockline::{Guard, Locks};
use tokio::io::AsyncReadExt;

use crate::history::{Event, Kind, Log, Mode, now};

/// The locks: two mutexes, a read-write lock, a semaphore of two.
const LOCKS: [&str; 4] = ["m0", "m1", "rw", "sem"];
const TASKS: u64 = 4;

/// Works until its standard input ends, then lets go of everything.
pub(crate) async fn run(url: &str, log: &Path, seed: u64, permits: bool) -> anyhow::Result<()> {
    let locks = connect(url).await?;
    let log = Log::create(log)?;
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let worker = Worker { locks: locks.clone(), log: log.clone(), stop: stop.clone(), permits };
            tokio::spawn(worker.work(fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(task))))
        })
        .collect();
    // The conductor closes our input when it is over; it also closes if the conductor dies.
    let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    stop.store(true, Ordering::Release);
    for task in tasks {
        task.await??;
    }
    locks.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// It may be started while its server is stopped, or the way there blocked.
async fn connect(url: &str) -> lockline::Result<Locks> {
    let give_up = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        match Locks::connect(url).await {
            Err(error) if error.kind().is_transient() && tokio::time::Instant::now() < give_up => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            connected => return connected,
        }
    }
}

struct Worker {
    locks: Locks,
    log: Log,
    stop: Arc<AtomicBool>,
    /// Whether the engine counts permits.
    permits: bool,
}

impl Worker {
    async fn work(self, mut chance: fastrand::Rng) -> anyhow::Result<()> {
        while !self.stop.load(Ordering::Acquire) {
            let lock = LOCKS[chance.usize(..LOCKS.len() - usize::from(!self.permits))];
            let mode = match lock {
                "rw" if chance.u8(..4) > 0 => Mode::Shared,
                "sem" => Mode::Permit,
                _ => Mode::Exclusive,
            };
            let held = match self.get(lock, mode, &mut chance).await {
                Ok(held) => held,
                // Eviction and an engine that is busy for too long are part of the game; they are counted.
                Err(_) => {
                    self.note(Kind::Failed, lock, mode, None)?;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                }
            };
            if let Some(guard) = held {
                self.hold(guard, lock, mode, &mut chance).await?;
            }
        }
        Ok(())
    }

    /// Asks in one of the ways there are; sometimes it changes its mind and drops the future.
    async fn get(
        &self,
        lock: &str,
        mode: Mode,
        chance: &mut fastrand::Rng,
    ) -> lockline::Result<Option<Guard>> {
        let wait = Duration::from_millis(chance.u64(1..40));
        let way = chance.u8(..10);
        let asking = async {
            match (mode, way) {
                (Mode::Exclusive, 0) => self.locks.mutex(lock).try_lock().await,
                (Mode::Exclusive, 1) => self.locks.mutex(lock).try_lock_for(wait).await,
                (Mode::Exclusive, _) => self.locks.mutex(lock).lock().await.map(Some),
                (Mode::Shared, 0) => self.locks.rwlock(lock).try_read().await,
                (Mode::Shared, _) => self.locks.rwlock(lock).read().await.map(Some),
                (Mode::Permit, 0) => self.locks.semaphore(lock, 2).try_acquire().await,
                (Mode::Permit, _) => self.locks.semaphore(lock, 2).acquire().await.map(Some),
            }
        };
        if way == 2 {
            return tokio::time::timeout(wait, asking).await.unwrap_or(Ok(None));
        }
        asking.await
    }

    async fn hold(
        &self,
        guard: Guard,
        lock: &str,
        mode: Mode,
        chance: &mut fastrand::Rng,
    ) -> anyhow::Result<()> {
        self.note(Kind::Got, lock, mode, Some(&guard))?;
        for _ in 0..chance.u8(..3) {
            tokio::time::sleep(Duration::from_micros(chance.u64(..2_000))).await;
            self.note(Kind::Valid, lock, mode, Some(&guard))?;
        }
        if chance.bool() {
            drop(guard);
        } else {
            // A release may find that the lock was lost, which the history knows from the looks.
            let _ = guard.release().await;
        }
        Ok(())
    }

    fn note(&self, kind: Kind, lock: &str, mode: Mode, guard: Option<&Guard>) -> anyhow::Result<()> {
        // The clock is read before the guard is asked: if it says now that it is valid, it was at that moment. A process
        // may be stopped between any two of these lines, and a grant that it slept through is none.
        let at = now();
        let remaining = guard.map_or(Duration::ZERO, Guard::remaining);
        let kind = if remaining.is_zero() && kind != Kind::Failed { Kind::Lost } else { kind };
        let token = guard.map_or(0, |guard| guard.fence().token());
        let event = Event { at, kind, lock: lock.to_owned(), mode, token, valid_until: now() + remaining };
        self.log.write(&event)?;
        Ok(())
    }
}
