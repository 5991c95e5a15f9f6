//! A task that takes locks, holds them and lets go, and writes down each step before and after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockline::time::Time;
use lockline::{ErrorKind, Guard, Locks};

use crate::history::{Event, Kind, Lock, Log, Mode, now};

/// Over how many locks those spread that roam: enough that the dead do not hold most of them.
const SPREAD: u16 = 128;

/// What a task does all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Stands in the lines that everybody wants.
    Queues,
    /// Takes one of many locks for a moment, and does not wait long for any.
    Roams,
    /// Holds a lock for about as long as a lease lasts, and waits to be told that it is lost.
    Sits,
}

pub(crate) struct Worker {
    pub(crate) locks: Locks,
    pub(crate) log: Log,
    pub(crate) stop: Arc<AtomicBool>,
    /// Whether the engine counts permits.
    pub(crate) permits: bool,
    pub(crate) lease: Duration,
    pub(crate) chance: fastrand::Rng,
}

/// One asking, and what became of it.
#[derive(Clone, Copy)]
struct Ask {
    number: u32,
    lock: Lock,
    mode: Mode,
}

impl Worker {
    pub(crate) async fn work(mut self, habit: Habit) -> anyhow::Result<()> {
        while !self.stop.load(Ordering::Acquire) {
            let (lock, mode) = self.choose(habit);
            let ask = Ask { number: self.log.next_ask(), lock, mode };
            self.note(Kind::Asks, ask, None)?;
            match self.get(ask, habit).await {
                Ok(Some(guard)) if habit == Habit::Sits => self.sit(guard, ask).await?,
                Ok(Some(guard)) => self.hold(guard, ask, habit).await?,
                Ok(None) => {}
                // Eviction and an engine that is away for too long are part of the game.
                Err(error) => {
                    let unknown = error.kind() == ErrorKind::Unknown;
                    self.note(if unknown { Kind::Unknown } else { Kind::Refused }, ask, None)?;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
        Ok(())
    }

    fn choose(&mut self, habit: Habit) -> (Lock, Mode) {
        match habit {
            Habit::Roams => (Lock::spread(self.chance.u16(..SPREAD)), Mode::Exclusive),
            Habit::Sits => (Lock::LONG[self.chance.usize(..Lock::LONG.len())], Mode::Exclusive),
            Habit::Queues => {
                let lock = Lock::HOT[self.chance.usize(..Lock::HOT.len() - usize::from(!self.permits))];
                let mode = match lock {
                    Lock::READ_WRITE if self.chance.u8(..4) > 0 => Mode::Shared,
                    Lock::PERMITS => Mode::Permit,
                    _ => Mode::Exclusive,
                };
                (lock, mode)
            }
        }
    }

    /// Asks in one of the ways there are; sometimes it changes its mind and drops the future.
    async fn get(&mut self, ask: Ask, habit: Habit) -> lockline::Result<Option<Guard>> {
        let patience = Duration::from_millis(self.chance.u64(1..40));
        // Those who roam never wait long: else all of them would soon wait for the dead.
        let way = match habit {
            Habit::Roams => self.chance.u8(..3),
            _ => self.chance.u8(..10),
        };
        let name = ask.lock.name();
        let asking = async {
            match (ask.mode, way) {
                (Mode::Exclusive, 0) => self.locks.mutex(&name).try_lock().await,
                (Mode::Exclusive, 1) => self.locks.mutex(&name).try_lock_for(patience).await,
                (Mode::Exclusive, _) => self.locks.mutex(&name).lock().await.map(Some),
                (Mode::Shared, 0) => self.locks.rwlock(&name).try_read().await,
                (Mode::Shared, _) => self.locks.rwlock(&name).read().await.map(Some),
                (Mode::Permit, 0) => self.locks.semaphore(&name, 2).try_acquire().await,
                (Mode::Permit, _) => self.locks.semaphore(&name, 2).acquire().await.map(Some),
            }
        };
        let (outcome, otherwise) = match way {
            2 => (tokio::time::timeout(patience, asking).await.unwrap_or(Ok(None)), Kind::Unknown),
            _ => (asking.await, Kind::Refused),
        };
        if let Ok(None) = outcome {
            let _ = self.note(otherwise, ask, None);
        }
        outcome
    }

    async fn hold(&mut self, guard: Guard, ask: Ask, habit: Habit) -> anyhow::Result<()> {
        self.note(Kind::Got, ask, Some(&guard))?;
        let looks = if habit == Habit::Queues { self.chance.u8(..3) } else { self.chance.u8(..8) / 7 };
        for _ in 0..looks {
            tokio::time::sleep(Duration::from_micros(self.chance.u64(..2_000))).await;
            self.note(Kind::Valid, ask, Some(&guard))?;
        }
        self.let_go(guard, ask).await
    }

    /// Holds for longer than one could without renewals, and is told if that goes wrong.
    async fn sit(&mut self, guard: Guard, ask: Ask) -> anyhow::Result<()> {
        self.note(Kind::Got, ask, Some(&guard))?;
        let end = tokio::time::Instant::now() + self.lease.mul_f64(0.1 + 1.5 * self.chance.f64());
        let mut promised = now() + guard.remaining();
        loop {
            tokio::select! {
                _ = guard.lost() => {
                    self.write(now(), Kind::Lost, ask, guard.fence().token(), promised)?;
                    return Ok(());
                }
                () = tokio::time::sleep_until(end) => return self.let_go(guard, ask).await,
                () = tokio::time::sleep(Duration::from_millis(10)) => {
                    if self.stop.load(Ordering::Acquire) {
                        return self.let_go(guard, ask).await;
                    }
                    // A guard that was renewed promises more; one that is lost promises nothing, and says so in a moment.
                    promised = promised.max(now() + guard.remaining());
                    self.note(Kind::Valid, ask, Some(&guard))?;
                }
            }
        }
    }

    async fn let_go(&mut self, guard: Guard, ask: Ask) -> anyhow::Result<()> {
        let token = guard.fence().token();
        if !self.note(Kind::Leaves, ask, Some(&guard))? || self.chance.bool() {
            drop(guard);
            return Ok(());
        }
        // A release may find that the lock was lost, or nobody may answer: then only its lease ends it.
        if guard.release().await.is_ok() {
            self.write(now(), Kind::Left, ask, token, Time::ZERO)?;
        }
        Ok(())
    }

    /// Writes down what a guard says of itself; `false` if it says that it is lost.
    fn note(&self, kind: Kind, ask: Ask, guard: Option<&Guard>) -> anyhow::Result<bool> {
        // The clock is read before the guard is asked: if it says now that it is valid, it was at that moment. A process
        // may be stopped between any two of these lines, and a grant that it slept through is none.
        let at = now();
        let Some(guard) = guard else {
            self.write(at, kind, ask, 0, Time::ZERO)?;
            return Ok(true);
        };
        let remaining = guard.remaining();
        let kind = if remaining.is_zero() { Kind::Lost } else { kind };
        // Not later than what the guard meant: the clock was read before.
        self.write(at, kind, ask, guard.fence().token(), at + remaining)?;
        Ok(kind != Kind::Lost)
    }

    fn write(&self, at: Time, kind: Kind, ask: Ask, token: u64, valid_until: Time) -> anyhow::Result<()> {
        let event = Event { at, kind, ask: ask.number, lock: ask.lock, mode: ask.mode, token, valid_until };
        Ok(self.log.write(&event)?)
    }
}
