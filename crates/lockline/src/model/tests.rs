//! The runs: every scenario finds nothing, and every seeded bug is found.

use std::collections::BTreeSet;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use super::Lockline;
use super::properties::{EXCLUSION, NEVER_STUCK, TOKENS, TRY};
use super::scenarios::{self, Scenario};
use crate::mutant::{self, Mutant};

#[test]
fn no_scenario_breaks_a_rule() {
    for scenario in scenarios::every() {
        let (name, begun) = (scenario.name, Instant::now());
        let checker = Lockline::new(scenario, None).checker().threads(2).spawn_bfs().join();
        println!(
            "{name}: {} states, {} steps, depth {}, {:.1} s",
            checker.unique_state_count(),
            checker.state_count(),
            checker.max_depth(),
            begun.elapsed().as_secs_f32()
        );
        checker.assert_properties();
    }
}

/// Every bug there is. A new one does not compile until [`caught_by`] names what catches it.
const MUTANTS: [Mutant; 17] = [
    Mutant::BelieveById,
    Mutant::StaleBellById,
    Mutant::RejoinDoesNotExtend,
    Mutant::ValidFromReceipt,
    Mutant::BellCountsFromReceipt,
    Mutant::EvictDropsHolder,
    Mutant::PermitsBesideExclusive,
    Mutant::LargerLimitPasses,
    Mutant::LapsedOnlyFromFront,
    Mutant::ClockNeverBack,
    Mutant::LeaveByName,
    Mutant::PlainCounter,
    Mutant::NoRestartGuard,
    Mutant::ShortRestartGuard,
    Mutant::TryPastWaiting,
    Mutant::NoMargin,
    Mutant::NeverLooksAgain,
];

/// The smallest setting that finds a bug, and the rule it breaks there.
fn caught_by(mutant: Mutant) -> (Scenario, &'static str) {
    match mutant {
        Mutant::BelieveById => (scenarios::asked_again(), EXCLUSION),
        Mutant::StaleBellById => (scenarios::asked_again_late(), EXCLUSION),
        Mutant::RejoinDoesNotExtend => (scenarios::asked_again(), EXCLUSION),
        Mutant::ValidFromReceipt => (scenarios::anew(), EXCLUSION),
        Mutant::BellCountsFromReceipt => (scenarios::anew(), EXCLUSION),
        Mutant::EvictDropsHolder => (scenarios::eviction(), EXCLUSION),
        Mutant::PermitsBesideExclusive => (scenarios::kinds(), EXCLUSION),
        Mutant::LargerLimitPasses => (scenarios::limits(), EXCLUSION),
        Mutant::LapsedOnlyFromFront => (scenarios::permit_holders(), NEVER_STUCK),
        Mutant::ClockNeverBack => (scenarios::long_step_back(), NEVER_STUCK),
        Mutant::LeaveByName => (scenarios::anew(), EXCLUSION),
        Mutant::PlainCounter => (scenarios::restart(), TOKENS),
        Mutant::NoRestartGuard => (scenarios::restart(), EXCLUSION),
        Mutant::ShortRestartGuard => (scenarios::restart(), EXCLUSION),
        Mutant::TryPastWaiting => (scenarios::try_behind_writer(), TRY),
        Mutant::NoMargin => (scenarios::slow_clock(), EXCLUSION),
        Mutant::NeverLooksAgain => (scenarios::renewals(), NEVER_STUCK),
        other => unreachable!("{other:?} is a bug of a quorum, which this model does not have"),
    }
}

#[test]
fn every_mutant_is_caught() {
    for mutant in MUTANTS {
        let (scenario, property) = caught_by(mutant);
        let name = scenario.name;
        // One thread, because then the first counterexample is the shortest.
        let checker = Lockline::new(scenario, Some(mutant))
            .checker()
            .threads(1)
            .finish_when(HasDiscoveries::AnyOf(BTreeSet::from([property])))
            .spawn_bfs()
            .join();
        let Some(path) = checker.discovery(property) else {
            panic!("{mutant:?} was not caught by \"{property}\" in \"{name}\"");
        };
        let steps = path.into_actions();
        println!("{mutant:?}: \"{property}\" broken in {} steps: {steps:?}", steps.len());
        mutant::caught(mutant, "model", &format!("{} steps", steps.len()), property);
    }
}
