//! The library as it is (waiting, renewing, losing, cancelling) in a simulated world: a clock that jumps from event to event,
//! an engine that is the pure machine and sometimes forgets, processes that stand still, and a network that loses, delays,
//! doubles and reorders, all decided by a seed.
//!
//! ```sh
//! LOCKLINE_SEEDS=0..100000 cargo test -p lockline --lib simulation::many_worlds -- --nocapture
//! LOCKLINE_SEED=42 cargo test -p lockline --lib simulation::one_world -- --nocapture
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `world` | one run: its clients, what is done to them, the healing, the end |
//! | `worker` | somebody who works with locks |
//! | `arena` | who holds what, and what must never be seen |
//! | `engine` | the pure machine with a bad clock and a bad memory, and an auditor |
//! | `network` | the way between a client and the engine |
//! | `host` | a process with a clock of its own, which can be stopped |
//! | `faults` | the kinds of faults, counted |
//! | `chance` | everything random, from one seed |
//! | `campaign` | many worlds on all cores, and their sum |

mod arena;
mod campaign;
pub(crate) mod chance;
mod engine;
mod faults;
pub(crate) mod host;
mod mutants;
mod network;
mod worker;
mod world;

use campaign::{Campaign, again, number, seeds};
use world::run;

/// How many turns the workers of a world have together before it is healed.
const TURNS: u64 = 1_000;

/// Enough for a million acquisitions: see docs/reliability.md.
const WORLDS: u64 = 400;

#[test]
fn many_worlds() {
    let seeds = seeds().unwrap_or(0..WORLDS);
    let is_short_form = seeds == (0..WORLDS);
    let campaign = Campaign::run(seeds);
    crate::document::result(&campaign.json());
    assert!(campaign.failed.is_empty(), "{}", campaign.failed.join("\n"));
    if is_short_form {
        assert!(campaign.acquisitions >= 1_000_000 && campaign.faults() >= 100_000, "{}", campaign.json());
    }
}

/// The one that `LOCKLINE_SEED` names; otherwise any.
#[test]
fn one_world() {
    let seed = number("LOCKLINE_SEED").unwrap_or(1);
    let outcome = run(seed, TURNS);
    println!("{outcome:?}");
    assert!(outcome.found.is_empty(), "{:?}; again with: {}", outcome.found, again(seed));
}

/// Worlds in which something was found once. In the first a place that had lapsed was taken for one that had been left behind; in
/// the second a place that lapsed while the weather was bad, in a line where nobody came since, for one that lapsed later.
const FOUND_ONCE: [u64; 2] = [1_001_843, 5_005_454];

#[test]
fn what_was_found_once_is_not_found_again() {
    for seed in FOUND_ONCE {
        let found = run(seed, TURNS).found;
        assert!(found.is_empty(), "{found:?}; again with: {}", again(seed));
    }
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 0..10 {
        assert_eq!(run(seed, TURNS), run(seed, TURNS), "seed {seed}");
    }
}
