//! Many worlds, on all cores, and what they come to together.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::TURNS;
use super::faults::{Counts, KINDS};
use super::world::run;

pub(super) fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// `LOCKLINE_SEEDS=FROM..TO`, or `LOCKLINE_SEEDS=TO`.
pub(super) fn seeds() -> Option<Range<u64>> {
    let text = std::env::var("LOCKLINE_SEEDS").ok()?;
    let (from, to) = text.split_once("..").unwrap_or(("0", &text));
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("LOCKLINE_SEEDS={text}: FROM..TO"));
    Some(number(from)..number(to))
}

/// How to see a world again.
pub(super) fn again(seed: u64) -> String {
    format!("LOCKLINE_SEED={seed} cargo test -p lockline --lib simulation::one_world -- --nocapture")
}

/// The sum of many worlds.
#[derive(Debug, Default)]
pub(super) struct Campaign {
    seeds: Range<u64>,
    pub(super) acquisitions: u64,
    faults_by_kind: Counts,
    simulated: Duration,
    took: Duration,
    /// What was found, and how to see it again.
    pub(super) failed: Vec<String>,
}

impl Campaign {
    /// Runs a world for each seed. It is the same on any number of cores.
    pub(super) fn run(seeds: Range<u64>) -> Campaign {
        let began = Instant::now();
        let next = AtomicU64::new(seeds.start);
        let some = || {
            let mut sum = Campaign::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    return sum;
                }
                sum.add_world(seed);
            }
        };
        let mut campaign = Campaign { seeds: seeds.clone(), ..Campaign::default() };
        std::thread::scope(|scope| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let all: Vec<_> = (0..cores).map(|_| scope.spawn(some)).collect();
            for one in all {
                campaign.add(one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
        });
        campaign.failed.sort();
        campaign.took = began.elapsed();
        campaign
    }

    fn add_world(&mut self, seed: u64) {
        let outcome = run(seed, TURNS);
        self.acquisitions += outcome.acquisitions;
        self.faults_by_kind.iter_mut().zip(outcome.faults).for_each(|(all, one)| *all += one);
        self.simulated += outcome.simulated;
        if !outcome.found.is_empty() {
            self.failed.push(format!("{:?}; again with: {}", outcome.found, again(seed)));
        }
    }

    fn add(&mut self, other: Campaign) {
        self.acquisitions += other.acquisitions;
        self.faults_by_kind.iter_mut().zip(other.faults_by_kind).for_each(|(all, one)| *all += one);
        self.simulated += other.simulated;
        self.failed.extend(other.failed);
    }

    pub(super) fn faults(&self) -> u64 {
        self.faults_by_kind.iter().sum()
    }

    /// One line, from which the documents' tables are made.
    pub(super) fn json(&self) -> String {
        let kinds: Vec<String> = KINDS
            .iter()
            .map(|(kind, name)| format!("\"{name}\":{}", self.faults_by_kind[*kind as usize]))
            .collect();
        format!(
            "{{\"harness\":\"simulation\",\"seeds\":\"{}..{}\",\"worlds\":{},\"acquisitions\":{},\"faults\":{},\
             \"faults_by_kind\":{{{}}},\"simulated_hours\":{:.1},\"seconds\":{:.1},\"violations\":{}}}",
            self.seeds.start,
            self.seeds.end,
            self.seeds.end - self.seeds.start,
            self.acquisitions,
            self.faults(),
            kinds.join(","),
            self.simulated.as_secs_f64() / 3_600.0,
            self.took.as_secs_f64(),
            self.failed.len(),
        )
    }
}
