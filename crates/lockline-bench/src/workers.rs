//! Many workers taking turns, and the checks on them.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::counting::{Counts, Snapshot};

/// How long the slowest worker may take to its first turn.
const PATIENCE: Duration = Duration::from_secs(60);

/// Fewer turns each say little about who was served more: that is only where the window fell. The window stays open until
/// everybody had these, up to a multiple of the time asked for; and longer, until everybody had one, or nobody could tell a long
/// line from one that leaves somebody out.
const ENOUGH: u64 = 20;
const LONGER: u32 = 6;

/// What one lock protects. Each has cache lines of its own, so that workers on other locks do not slow it down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Room {
    inside: AtomicUsize,
    last: AtomicUsize,
    token: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Turns(AtomicU64);

/// Where workers take turns: notices a second one inside, and tokens that do not rise.
#[derive(Debug)]
pub struct Arena {
    rooms: Vec<Room>,
    turns: Vec<Turns>,
    changes: AtomicU64,
    violations: AtomicU64,
    stop: AtomicBool,
}

impl Arena {
    /// All workers want the same room.
    pub fn shared(workers: usize) -> Arc<Arena> {
        Arena::with(1, workers)
    }

    /// Each worker has its own room.
    pub fn apart(workers: usize) -> Arc<Arena> {
        Arena::with(workers, workers)
    }

    fn with(rooms: usize, workers: usize) -> Arc<Arena> {
        // usize::MAX is nobody: worker 0 must not look like the last one before there was any.
        let room = || Room { last: AtomicUsize::new(usize::MAX), ..Room::default() };
        Arc::new(Arena {
            rooms: (0..rooms).map(|_| room()).collect(),
            turns: (0..workers).map(|_| Turns::default()).collect(),
            changes: AtomicU64::new(0),
            violations: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        })
    }

    /// A worker is in, with this token if the lock gives any; it stays for `hold`, and is out again.
    pub async fn visit(&self, me: usize, token: Option<u64>, hold: Duration) {
        let room = &self.rooms[if self.rooms.len() == 1 { 0 } else { me }];
        let wrong_token = token.is_some_and(|token| room.token.swap(token, SeqCst) >= token);
        if room.inside.fetch_add(1, SeqCst) != 0 || wrong_token {
            self.violations.fetch_add(1, Relaxed);
        }
        if room.last.swap(me, Relaxed) != me && self.rooms.len() == 1 {
            self.changes.fetch_add(1, Relaxed);
        }
        // Who still waits when the time is over gets in and out at once, or a long line would take as long to end.
        if !hold.is_zero() && !self.stop.load(Relaxed) {
            tokio::time::sleep(hold).await;
        }
        self.turns[me].0.fetch_add(1, Relaxed);
        room.inside.fetch_sub(1, SeqCst);
    }

    pub(crate) fn turns(&self) -> Vec<u64> {
        self.turns.iter().map(|turns| turns.0.load(Relaxed)).collect()
    }
}

/// Something to take turns on.
pub trait Contest: Send + Sync + 'static {
    /// Worker `me` gets in, visits the arena, and leaves.
    fn turn(&self, me: usize) -> impl Future<Output = Result<()>> + Send;
}

/// Lockline mutexes: one for all workers, or one each.
#[derive(Debug)]
pub struct Ours {
    /// The locks.
    pub mutexes: Vec<lockline::Mutex>,
    /// Where to go with them.
    pub arena: Arc<Arena>,
    /// How long to stay.
    pub hold: Duration,
}

impl Contest for Ours {
    async fn turn(&self, me: usize) -> Result<()> {
        let guard = self.mutexes[me % self.mutexes.len()].lock().await?;
        self.arena.visit(me, Some(guard.fence().token()), self.hold).await;
        Ok(guard.release().await?)
    }
}

/// The floor within one process: `tokio::sync::Mutex`, fair as ours.
#[derive(Debug)]
pub struct TokioMutexes {
    /// The locks.
    pub mutexes: Vec<tokio::sync::Mutex<()>>,
    /// Where to go with them.
    pub arena: Arc<Arena>,
}

impl Contest for TokioMutexes {
    async fn turn(&self, me: usize) -> Result<()> {
        let _guard = self.mutexes[me % self.mutexes.len()].lock().await;
        self.arena.visit(me, None, Duration::ZERO).await;
        Ok(())
    }
}

/// What happened in the window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Turns of all workers, per second.
    pub acquisitions_per_s: f64,
    /// Turns by another worker than the one before, per second.
    pub changes_per_s: f64,
    /// Verbs per turn.
    pub commands_per_acquisition: Option<f64>,
    /// Turns of the least served worker.
    pub turns_min: u64,
    /// Turns of the most served worker.
    pub turns_max: u64,
    /// A second worker inside, or a token that did not rise, in the whole run.
    pub violations: u64,
}

impl Tally {
    /// What happened in windows of the same length.
    pub(crate) fn of_all(tallies: &[Tally]) -> Tally {
        let mean = |what: fn(&Tally) -> f64| tallies.iter().map(what).sum::<f64>() / tallies.len() as f64;
        Tally {
            acquisitions_per_s: mean(|tally| tally.acquisitions_per_s),
            changes_per_s: mean(|tally| tally.changes_per_s),
            commands_per_acquisition: tallies
                .iter()
                .all(|tally| tally.commands_per_acquisition.is_some())
                .then(|| mean(|tally| tally.commands_per_acquisition.unwrap_or(0.0))),
            turns_min: tallies.iter().map(|tally| tally.turns_min).sum(),
            turns_max: tallies.iter().map(|tally| tally.turns_max).sum(),
            violations: tallies.iter().map(|tally| tally.violations).sum(),
        }
    }
}

/// Lets workers take turns without pause, and counts in a window that opens once every one of them had a turn: what is
/// measured is the line at work, not how it forms.
///
/// # Errors
/// What a worker fails with.
pub async fn contest(
    contest: impl Contest,
    arena: Arc<Arena>,
    counts: Option<Arc<Counts>>,
    window: Duration,
) -> Result<Tally> {
    let contest = Arc::new(contest);
    let workers: Vec<_> = (0..arena.turns.len())
        .map(|me| {
            let (contest, arena) = (contest.clone(), arena.clone());
            tokio::spawn(async move {
                let outcome = work(&*contest, &arena, me).await;
                if outcome.is_err() {
                    arena.stop.store(true, Relaxed);
                }
                outcome
            })
        })
        .collect();
    // On a thread of its own, because workers that never wait would keep the runtime's timer from being looked at.
    let watched = arena.clone();
    let tally = tokio::task::spawn_blocking(move || watch(&watched, counts.as_deref(), window)).await?;
    arena.stop.store(true, Relaxed);
    for worker in workers {
        worker.await??;
    }
    Ok(Tally { violations: arena.violations.load(Relaxed), ..tally? })
}

async fn work(contest: &impl Contest, arena: &Arena, me: usize) -> Result<()> {
    while !arena.stop.load(Relaxed) {
        contest.turn(me).await.with_context(|| format!("worker {me}"))?;
        // A lock that is free never waits, and a task that never waits never lets another one run.
        tokio::task::coop::consume_budget().await;
    }
    Ok(())
}

fn watch(arena: &Arena, counts: Option<&Counts>, window: Duration) -> Result<Tally> {
    let begun = Instant::now();
    while arena.turns().contains(&0) && !arena.stop.load(Relaxed) {
        ensure!(begun.elapsed() < PATIENCE, "a worker had no turn in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    let look = || (Instant::now(), arena.turns(), arena.changes.load(Relaxed), counts.map(Counts::now));
    let (start, turns_before, changes_before, verbs_before) = look();
    let served = || arena.turns().iter().zip(&turns_before).map(|(now, then)| now - then).min().unwrap_or(0);
    let open = |elapsed| {
        elapsed < window
            || (elapsed < window * LONGER && served() < ENOUGH)
            || (elapsed < PATIENCE && served() == 0)
    };
    while open(start.elapsed()) && !arena.stop.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(5).min(window));
    }
    let (end, turns_after, changes_after, verbs_after) = look();
    let seconds = end.duration_since(start).as_secs_f64();
    let turns: Vec<u64> =
        turns_after.iter().zip(&turns_before).map(|(after, before)| after - before).collect();
    let total: u64 = turns.iter().sum();
    let verbs =
        verbs_after.zip(verbs_before).map(|(after, before): (Snapshot, Snapshot)| after.since(before).verbs);
    Ok(Tally {
        acquisitions_per_s: total as f64 / seconds,
        changes_per_s: (changes_after - changes_before) as f64 / seconds,
        commands_per_acquisition: verbs.map(|verbs| verbs as f64 / total.max(1) as f64),
        turns_min: turns.iter().copied().min().unwrap_or(0),
        turns_max: turns.iter().copied().max().unwrap_or(0),
        violations: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets everybody in: the checks must notice.
    struct NoLock(Arc<Arena>);

    impl Contest for NoLock {
        async fn turn(&self, me: usize) -> Result<()> {
            self.0.visit(me, Some(1), Duration::from_millis(1)).await;
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lock_that_is_none_is_noticed() {
        let arena = Arena::shared(4);
        let tally = contest(NoLock(arena.clone()), arena, None, Duration::from_millis(50)).await.unwrap();
        assert!(tally.violations > 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_fair_lock_gives_equal_turns_and_no_violation() {
        let arena = Arena::shared(4);
        let floor = TokioMutexes { mutexes: vec![tokio::sync::Mutex::new(())], arena: arena.clone() };
        let tally = contest(floor, arena, None, Duration::from_millis(200)).await.unwrap();
        assert_eq!(tally.violations, 0);
        assert!(tally.turns_min > 0 && tally.changes_per_s > 0.0, "{tally:?}");
    }
}
