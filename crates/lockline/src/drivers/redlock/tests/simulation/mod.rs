//! The whole protocol in one thread, by chance: clients, nodes, and a network that is slow, loses, reorders and repeats.
//!
//! Clients run the very code that ships: [`Belief`](crate::hold::validity) of core, and the driver's `Ballot`, `Tally` and
//! `Tickets`; nodes are [`Line`](crate::line::Line)s, which the scripts are compared with elsewhere. A seed decides
//! everything: how many nodes there are, who crashes when, which node forgets, whose clock steps.
//!
//! Checked at every grant: no other valid guard beside it that does not fit, and a token larger than all before it. At the
//! end: everybody had its turns, once the faults were over. And every bug of [`MUTANTS`] is found.

mod client;
pub(super) mod network;
mod world;

use world::{Fate, World};

use crate::mutant::{Mutant, caught, with};

const CLIENTS: usize = 16;
const RUNS: u64 = 10_000;

/// Bugs of a quorum, each with what it breaks.
const MUTANTS: [(Mutant, &str); 5] = [
    (Mutant::TicketByMax, "two"),
    (Mutant::NoYield, "stuck"),
    (Mutant::YieldAfterWinning, "two"),
    (Mutant::LeaveWhereGranted, "left behind"),
    (Mutant::ValidFromReceipt, "two"),
];

fn run(seed: u64) -> Result<Fate, String> {
    World::new(seed, CLIENTS).run()
}

#[test]
fn ten_thousand_runs_are_safe_and_never_stuck() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8) as u64;
    let runs = |first: u64| {
        let mut total = Fate::default();
        for seed in (first..RUNS).step_by(threads as usize) {
            match run(seed) {
                Ok(fate) => total.add(fate),
                Err(broken) => panic!("seed {seed}: {broken}"),
            }
        }
        total
    };
    let mut total = Fate::default();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|first| scope.spawn(move || runs(first))).collect();
        all.into_iter()
            .for_each(|one| total.add(one.join().unwrap_or_else(|e| std::panic::resume_unwind(e))));
    });
    println!("{RUNS} runs: {total:?}");
    assert!(total.grants > RUNS * CLIENTS as u64, "everybody had turns: {total:?}");
    assert!(total.yields > 0 && total.losses > 0 && total.crashes > 0 && total.amnesia > 0, "{total:?}");
}

#[test]
fn every_mutant_is_caught() {
    let mut missed = Vec::new();
    for (mutant, breaks) in MUTANTS {
        let broken =
            (0..RUNS).find_map(|seed| with(Some(mutant), || run(seed)).err().map(|broken| (seed, broken)));
        match broken {
            Some((seed, broken)) if broken.contains(breaks) => {
                println!("{mutant:?}: seed {seed}: {broken:.120}");
                caught(mutant, "redlock", &format!("{} worlds", seed + 1), breaks);
            }
            other => missed.push((mutant, other)),
        }
    }
    assert!(missed.is_empty(), "not caught, or for another reason: {missed:?}");
}
