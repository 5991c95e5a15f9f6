//! Once everything is healed it goes on, and soon; and nobody who is told "you are next" finds out only by looking again.

use std::time::Duration;

use lockline::time::Time;

use super::{Histories, Hold, by_lock};
use crate::history::{Kind, Lock, Mode};

/// Behind every bell that gets lost a waiter looks again within this time.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A stretch without any fault, between two storms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calm {
    /// When everything had been healed.
    pub(crate) from: Time,
    pub(crate) to: Time,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// How long after healing each lock that everybody wants was granted again, sorted.
    pub(crate) recoveries: Vec<Duration>,
    /// Of these, those that took longer than the leases of the dead and two looks.
    pub(crate) stalls: Vec<(Lock, Time)>,
    /// From the end of a hold to the next grant of somebody who was waiting, when all was well, sorted.
    pub(crate) handoffs: Vec<Duration>,
    /// Of these, those who found out only by looking again.
    pub(crate) lost_wakeups: u64,
}

/// `gone_after` is when nothing is left of whoever died.
pub(crate) fn progress(
    histories: &Histories,
    calms: &[Calm],
    lease: Duration,
    gone_after: Duration,
) -> Progress {
    let bound = gone_after + 2 * LOOK_AGAIN;
    let mut progress = Progress::default();
    let locks = by_lock(histories);
    for (lock, holds) in locks.iter().filter(|(lock, _)| Lock::HOT.contains(lock)) {
        for calm in calms {
            let (next, recovery) = recovery(holds, *calm);
            if recovery <= calm.to.since(calm.from) {
                progress.recoveries.push(recovery);
            }
            // A stretch that was too short to tell says nothing.
            if recovery > bound && calm.to.since(calm.from) > bound {
                progress.stalls.push((*lock, calm.from));
            }
            let well = calm.from + bound;
            for two in holds[next..].windows(2) {
                let (before, after) = (&two[0], &two[1]);
                let Some(left) = before.left else { continue };
                let waited = after.asked < before.to && after.from >= left;
                let alone = before.mode == Mode::Exclusive && after.mode == Mode::Exclusive;
                if waited && alone && before.to >= well && after.from <= calm.to {
                    progress.handoffs.push(after.from.since(left));
                }
            }
        }
    }
    progress.recoveries.sort_unstable();
    progress.handoffs.sort_unstable();
    let limit = latest_wakeup(&progress.handoffs, lease);
    progress.lost_wakeups = progress.handoffs.iter().filter(|handoff| **handoff >= limit).count() as u64;
    progress
}

/// The first hold after healing, and how long that took.
fn recovery(holds: &[Hold], calm: Calm) -> (usize, Duration) {
    let next = holds.partition_point(|hold| hold.from < calm.from);
    (next, holds.get(next).map_or(Duration::MAX, |hold| hold.from.since(calm.from)))
}

/// The locks that everybody wants and nobody got in a calm: while it is just over, the servers can still be asked why.
pub(crate) fn stuck(histories: &Histories, calm: Calm) -> Vec<Lock> {
    let locks = by_lock(histories);
    let hot = locks.iter().filter(|(lock, _)| Lock::HOT.contains(lock));
    hot.filter(|(_, holds)| recovery(holds, calm).1 == Duration::MAX).map(|(lock, _)| *lock).collect()
}

/// From when on somebody who waited was not told. Each also looks when it renews, every third of a lease, so that one whom no bell
/// reaches finds out by chance a sixth of a lease late: if that is how it is for half of them, the bells are silent.
fn latest_wakeup(sorted: &[Duration], lease: Duration) -> Duration {
    let by_chance = lease / 12;
    let are_silent = sorted.get(sorted.len() / 2).is_some_and(|median| *median >= by_chance);
    if are_silent { by_chance } else { LOOK_AGAIN.mul_f64(0.9) }
}

/// Grants per second by the time since healing, over all storms: `(from_ms, step_ms, rates)`.
pub(crate) fn around_healing(
    histories: &Histories,
    calms: &[Calm],
    before: Duration,
) -> (i64, u64, Vec<f64>) {
    const STEP: u64 = 250;
    let shortest = calms.iter().map(|calm| calm.to.since(calm.from)).min().unwrap_or_default();
    let steps_of = |span: Duration| span.as_millis() as u64 / STEP;
    let (before, after) = (steps_of(before), steps_of(shortest));
    let mut counts = vec![0_u64; (before + after) as usize];
    let starts: Vec<u64> =
        calms.iter().map(|calm| calm.from.as_micros().saturating_sub(before * STEP * 1_000)).collect();
    for grant in histories.iter().flatten().filter(|event| event.kind == Kind::Got) {
        let at = grant.at.as_micros();
        let since = starts[..starts.partition_point(|start| *start <= at)].last().map(|start| at - start);
        if let Some(count) = since.and_then(|since| counts.get_mut((since / 1_000 / STEP) as usize)) {
            *count += 1;
        }
    }
    let storms = (calms.len().max(1) as u64 * STEP) as f64 / 1_000.0;
    let rates = counts.into_iter().map(|count| (count as f64 / storms).round()).collect();
    (-((before * STEP) as i64), STEP, rates)
}

/// The slowest hundredth of what is sorted.
pub(crate) fn p99(sorted: &[Duration]) -> Option<Duration> {
    sorted.get((sorted.len() * 99).div_ceil(100).saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Event;

    /// Asked, got, left: in milliseconds.
    fn holds(times: &[(u64, u64, u64)]) -> Vec<Event> {
        let event = |(ask, ms, kind): (usize, u64, Kind)| Event {
            at: Time::from_micros(ms * 1_000),
            kind,
            ask: ask as u32,
            lock: Lock::HOT[0],
            mode: Mode::Exclusive,
            token: ask as u64,
            valid_until: Time::ZERO,
        };
        let steps = times.iter().enumerate().flat_map(|(ask, &(asked, got, left))| {
            [
                (ask, asked, Kind::Asks),
                (ask, got, Kind::Got),
                (ask, left, Kind::Leaves),
                (ask, left, Kind::Left),
            ]
        });
        steps.map(event).collect()
    }

    fn calm(from: u64, to: u64) -> Calm {
        Calm { from: Time::from_micros(from * 1_000), to: Time::from_micros(to * 1_000) }
    }

    #[test]
    fn a_lock_that_nobody_gets_after_healing_is_a_stall() {
        let history = [holds(&[(0, 1_000, 1_010), (0, 9_000, 9_010)])];
        let lease = Duration::from_secs(2);
        assert_eq!(progress(&history, &[calm(1_500, 8_000)], lease, lease).stalls.len(), 1);
        assert_eq!(progress(&history, &[calm(900, 8_000)], lease, lease).stalls.len(), 0);
        assert_eq!(progress(&history, &[calm(8_900, 9_100)], lease, lease).stalls.len(), 0);
    }

    #[test]
    fn a_lock_that_nobody_gets_in_a_calm_is_stuck() {
        let history = [holds(&[(0, 1_000, 1_010), (0, 9_000, 9_010)])];
        assert_eq!(stuck(&history, calm(9_500, 12_000)), [Lock::HOT[0]]);
        assert_eq!(stuck(&history, calm(8_000, 12_000)), []);
    }

    #[test]
    fn grants_are_counted_by_the_time_since_healing() {
        let grants: Vec<_> = [1_900, 2_100, 2_200, 4_000].iter().map(|&ms| (0, ms, ms)).collect();
        let around = around_healing(&[holds(&grants)], &[calm(2_000, 2_500)], Duration::from_millis(500));
        assert_eq!(around, (-500, 250, vec![0.0, 4.0, 8.0, 0.0]));
    }

    #[test]
    fn who_waits_for_its_own_look_has_lost_a_wake_up() {
        let lease = Duration::from_secs(2);
        let found = progress(
            &[holds(&[(0, 10, 20), (0, 5_000, 5_010), (5_000, 5_020, 5_030), (5_000, 6_000, 6_010)])],
            &[calm(0, 9_000)],
            lease,
            lease,
        );
        assert_eq!((found.handoffs.len(), found.lost_wakeups), (2, 1));
    }

    #[test]
    fn bells_that_nobody_hears_are_noticed() {
        let lease = Duration::from_secs(2);
        let ms = |delays: &[u64]| delays.iter().map(|ms| Duration::from_millis(*ms)).collect::<Vec<_>>();
        assert_eq!(latest_wakeup(&ms(&[1, 2, 3, 300, 600]), lease), Duration::from_millis(900));
        assert_eq!(latest_wakeup(&ms(&[50, 130, 330, 500, 600]), lease), lease / 12);
    }
}
