//! The suite on a server, as a program that looks like Rust's own test harness.
//!
//! Whether the server runs is known only when the tests do. The built-in harness could then only call a test that did
//! nothing "ok"; here it is ignored, and counted as that.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use crate::conformance::needs::{Need, needs};
use crate::engine::Engine;
use crate::engines;
use crate::setup::Setup;

/// One behaviour as a test.
pub fn trial<B>(name: &str, engine: fn() -> Engine, peer: &'static str, behaviour: B) -> Trial
where
    B: AsyncFnOnce(&Setup) + Send + 'static,
{
    Trial::test(name, move || {
        // As `#[tokio::test]` has it in the other files.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(Setup::run(engine(), peer, behaviour));
        Ok(())
    })
}

/// Marks the tests of one engine of several, and those of what it does not offer: these are ignored, and say why.
pub fn on(engine: &str, lacks: &[Need], trials: Vec<Trial>) -> Vec<Trial> {
    let mark = |trial: Trial| match needs(trial.name()).iter().find(|need| lacks.contains(need)) {
        None => trial.with_kind(engine),
        Some(need) => trial.with_kind(format!("{engine}, not offered: {need}")).with_ignored_flag(true),
    };
    trials.into_iter().map(mark).collect()
}

/// Runs them if this run includes the server; else all of them are ignored.
pub fn run(server: &str, trials: Vec<Trial>) -> ExitCode {
    let left_out = engines::required_url(server).is_none();
    let trials = trials
        .into_iter()
        .map(|trial| if left_out { trial.with_ignored_flag(true) } else { trial })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
