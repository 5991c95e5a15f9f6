//! `cargo xtask test`: every test, on every engine, with a summary that hides nothing.

mod programs;

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::engines::{self, Fleet};
use crate::shell;
use programs::Said;

pub(crate) use programs::build_beside;

/// What one test program said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Target {
    name: String,
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Whether it came to its end: one that crashed did not.
    finished: bool,
}

/// Which tests.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Which {
    /// Only these engines.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    engines: Vec<String>,
    /// Only programs with one of these in their names, such as `tests/redis`.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    programs: Vec<String>,
    /// How many programs run at a time, if not three.
    #[arg(long, value_name = "N")]
    at_once: Option<usize>,
    /// Passed on to each program, such as the name of a test, or `--nocapture`.
    #[arg(last = true)]
    rest: Vec<String>,
}

/// So many that the machine is hardly ever idle, and so few that none waits for it for long.
const AT_ONCE: usize = 3;

impl Which {
    fn wants(&self, program: &str) -> bool {
        self.programs.is_empty() || self.programs.iter().any(|name| program.contains(name.as_str()))
    }

    /// Every program with its command, and the documentation's examples first: they are built as they are run.
    fn commands(&self) -> Result<Vec<(String, Command)>> {
        let mut examples = shell::cargo(["test", "--workspace", "--all-features", "--doc", "--no-fail-fast"]);
        examples.arg("--");
        let all = programs::build()?.into_iter().map(|program| (program.name.clone(), program.command()));
        let all = std::iter::once(("documentation".to_owned(), examples)).chain(all);
        Ok(all.filter(|(name, _)| self.wants(name)).collect())
    }
}

/// Runs everything; fails unless everything passed.
pub(crate) fn test(which: &Which) -> Result<()> {
    let engines = engines::named(&which.engines)?;
    let mut commands = which.commands()?;
    let fleet = Fleet::start(&engines)?;
    for (_, command) in &mut commands {
        command.args(&which.rest).envs([fleet.environment()]);
    }
    let start = Instant::now();
    let mut targets = Vec::new();
    programs::run(commands, which.at_once.unwrap_or(AT_ONCE).max(1), |said| {
        let seconds = start.elapsed().as_secs();
        shell::put(&format!("\n== {} ({}, after {seconds} s)\n{}", said.name, said.status, said.text))?;
        targets.push(target(&said));
        Ok(())
    })?;
    let engines = fleet.description();
    drop(fleet);
    targets.sort_by(|a: &Target, b| a.name.cmp(&b.name));
    summary(&targets, &engines)?;
    ensure!(targets.iter().all(|target| target.finished && target.failed == 0), "not everything passed");
    ensure!(total(&targets, |target| target.passed) > 0, "no test ran");
    Ok(())
}

fn total(targets: &[Target], of: impl Fn(&Target) -> u64) -> u64 {
    targets.iter().map(of).sum()
}

/// Counts what a program said. One that says that all is well and still fails did not finish.
fn target(said: &Said) -> Target {
    let mut target = counted(&said.name, &said.text);
    target.finished &= said.status.success() || target.failed > 0;
    target
}

fn counted(name: &str, text: &str) -> Target {
    let mut target = Target { name: name.to_owned(), ..Target::default() };
    let counts = |line: &str| Some(line.strip_prefix("test result: ")?.split_once(". ")?.1.to_owned());
    // The examples of the documentation are several programs, whose results follow each other.
    for counts in text.lines().filter_map(counts) {
        target.finished = true;
        for count in counts.split("; ") {
            match count.split_once(' ').map(|(n, what)| (n.parse::<u64>(), what)) {
                Some((Ok(n), "passed")) => target.passed += n,
                Some((Ok(n), "failed")) => target.failed += n,
                Some((Ok(n), "ignored")) => target.ignored += n,
                _ => {}
            }
        }
    }
    target
}

fn summary(targets: &[Target], engines: &[String]) -> Result<()> {
    let width = targets.iter().map(|target| target.name.chars().count()).max().unwrap_or(0);
    shell::put("\nengines")?;
    for engine in engines {
        shell::put(&format!("  {engine}"))?;
    }
    shell::put(&format!("\n{:<width$}  passed  failed  ignored", "tests"))?;
    for target in targets {
        let Target { name, passed, failed, ignored, finished } = target;
        let remark = match (finished, failed, passed + ignored) {
            (false, ..) => "  <- did not finish",
            (true, 1.., _) => "  <- failed",
            (true, 0, 0) => "  <- has no tests",
            _ => "",
        };
        shell::put(&format!("{name:<width$}  {passed:>6}  {failed:>6}  {ignored:>7}{remark}"))?;
    }
    let unfinished = targets.iter().filter(|target| !target.finished).count() as u64;
    let ignored = total(targets, |target| target.ignored);
    if ignored > 0 {
        shell::put(&format!("\n{ignored} ignored"))?;
    }
    // A program that crashed took at least one test with it.
    let failed = total(targets, |target| target.failed) + unfinished;
    shell::put(&format!("\n{} passed, {failed} failed", total(targets, |target| target.passed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let text = "\nrunning 3 tests\n\
            test result: FAILED. 2 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
            test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
        let expected = Target { name: "x".to_owned(), passed: 6, failed: 3, ignored: 1, finished: true };
        assert_eq!(counted("x", text), expected);
    }

    #[test]
    fn a_program_that_crashed_is_not_finished() {
        assert!(!counted("x", "\nrunning 1 test\n").finished);
    }

    #[test]
    fn a_program_that_failed_after_its_tests_is_not_finished() {
        use std::os::unix::process::ExitStatusExt;
        let text =
            "test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
        let said = |code| Said {
            name: "x".to_owned(),
            text: text.to_owned(),
            status: std::process::ExitStatus::from_raw(code << 8),
        };
        assert!(target(&said(0)).finished);
        assert!(!target(&said(101)).finished);
    }
}
