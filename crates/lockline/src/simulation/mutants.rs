//! Bugs that were put in on purpose: the simulation must find each of them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::TURNS;
use super::world::run;
use crate::mutant::{Mutant, caught, with};
use crate::sync::locked;

/// Bugs that break a rule in some world. The others need more luck than a test run has (a second place for one id), or break
/// a rule that is not looked at here: the model finds those.
const CAUGHT: &[Mutant] = &[
    Mutant::SilentGrant,
    Mutant::UnsureIsLost,
    Mutant::CapIgnored,
    Mutant::FixedIgnored,
    Mutant::FixedFromLastSending,
    Mutant::DroppedJoinStays,
    Mutant::ReturnsWhenLost,
    Mutant::LookIsSilent,
    Mutant::LookNowForgotten,
    Mutant::KeeperOversleeps,
    Mutant::KeeperTooLate,
    Mutant::ErrorEndsRenewal,
    Mutant::AnswersMixedUp,
    Mutant::CallWithoutDeadline,
    Mutant::DroppedGuardStays,
    Mutant::ShutdownKeepsGuards,
    Mutant::OwnerEntersLost,
    Mutant::TurnKept,
    Mutant::TurnDoesNotWake,
    Mutant::AllUnsorted,
    Mutant::AllKeepsLost,
    Mutant::RejoinDoesNotExtend,
    Mutant::ValidFromReceipt,
    Mutant::BellCountsFromReceipt,
    Mutant::EvictDropsHolder,
    Mutant::PermitsBesideExclusive,
    Mutant::LeaveByName,
    Mutant::ClockNeverBack,
    Mutant::PlainCounter,
    Mutant::NoRestartGuard,
    Mutant::ShortRestartGuard,
    Mutant::NoMargin,
    Mutant::EarlyBellDropped,
    Mutant::LostComesBack,
    Mutant::WaitingDemotes,
    Mutant::NeverLooksAgain,
];

/// Every bug must show in one of so many.
const MOST_WORLDS: u64 = 1_000;

#[test]
fn every_bug_is_found() {
    let next = AtomicUsize::new(0);
    let missed = Mutex::new(Vec::new());
    let some = || {
        while let Some(&mutant) = CAUGHT.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !is_found(mutant) {
                locked(&missed).push(mutant);
            }
        }
    };
    std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (0..cores).for_each(|_| drop(scope.spawn(some)));
    });
    assert!(locked(&missed).is_empty(), "these break nothing: {missed:?}");
}

fn is_found(mutant: Mutant) -> bool {
    let began = Instant::now();
    let found = (0..MOST_WORLDS).find_map(|seed| {
        let found = with(Some(mutant), || run(seed, TURNS)).found;
        Some((seed + 1, found.into_iter().next()?))
    });
    let Some((worlds, breaks)) = found else { return false };
    let after = format!("{worlds} worlds, {:.1} s", began.elapsed().as_secs_f64());
    // Which lock it was is chance.
    let breaks = breaks.split_once(": ").map_or(breaks.as_str(), |(_, breaks)| breaks);
    caught(mutant, "simulation", &after, breaks);
    true
}
