//! What test programs say of themselves, counted.

use std::collections::BTreeSet;

use anyhow::Result;

use super::programs::{End, Said};
use crate::shell;

/// What one test program said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) ignored: u64,
    /// Whether it came to its end: one that crashed did not.
    pub(super) finished: bool,
    /// The names of those that passed, as far as the program says them.
    pub(super) passes: Vec<String>,
    /// Its own server, the version of that, and how long it took.
    pub(super) server: Option<&'static str>,
    pub(super) version: String,
    pub(super) seconds: u64,
    /// Why its server could not be had.
    pub(super) not_had: Option<String>,
    /// What it said about its failures: the last lines, because a log is read from its end.
    pub(super) failures: Vec<String>,
}

/// How much of a failure is repeated below the table. The whole stands where the program ended.
const REPEATED: usize = 40;

/// Counts what a program said. One that says that all is well and still fails did not finish.
pub(super) fn target(said: &Said) -> Target {
    let mut target = counted(&said.name, &said.text);
    let succeeded = matches!(said.end, End::Ended(status) if status.success());
    target.finished &= succeeded || target.failed > 0;
    target.server = said.server.map(|engine| engine.name);
    (target.version, target.seconds) = (said.version.clone(), said.seconds);
    match &said.end {
        End::NotHad(why) => target.not_had = Some(why.clone()),
        End::NotStarted(why) => target.failures = vec![why.clone()],
        _ if target.failed > 0 || !target.finished => target.failures = failures(&said.text),
        _ => {}
    }
    target
}

/// Whether a line is a function, or where it stands, in a backtrace: forty of them would leave nothing of the message.
fn is_of_backtrace(line: &str) -> bool {
    let line = line.trim_start();
    let is_number = |before: &str| !before.is_empty() && before.bytes().all(|byte| byte.is_ascii_digit());
    line.starts_with("at ") || line.split_once(": ").is_some_and(|(before, _)| is_number(before))
}

/// The section in which Rust's harness repeats what failed tests said, or else how the program ended.
fn failures(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !is_of_backtrace(line)).collect();
    let first = lines.iter().position(|line| *line == "failures:").map_or(0, |at| at + 1);
    let lines = &lines[first..];
    lines[lines.len().saturating_sub(REPEATED)..].iter().map(|&line| line.to_owned()).collect()
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
    // Rust's own harness knows no test that decides to be left out, and calls it passed.
    let left_out: BTreeSet<&str> = text.lines().filter_map(left_out).collect();
    let count = (left_out.len() as u64).min(target.passed);
    target.passed -= count;
    target.ignored += count;
    target.passes =
        text.lines().filter_map(passed).filter(|test| !left_out.contains(test)).map(str::to_owned).collect();
    target
}

/// The test that a line says was left out: `drivers::testing` writes it. The harness may have begun the line.
fn left_out(line: &str) -> Option<&str> {
    let (before, _) = line.split_once(" is left out (LOCKLINE_TEST_ENGINES")?;
    let (test, _) = before.rsplit_once(": ")?;
    test.split_whitespace().next_back()
}

fn passed(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... ok")
}

impl Target {
    /// How many tests of a module passed.
    pub(super) fn passed_in(&self, module: &str) -> u64 {
        self.passes.iter().filter(|test| test.starts_with(module)).count() as u64
    }
}

pub(super) fn total(targets: &[Target], of: impl Fn(&Target) -> u64) -> u64 {
    targets.iter().map(of).sum()
}

pub(super) fn summary(targets: &[Target], engines: &[String]) -> Result<()> {
    let width = targets.iter().map(|target| target.name.chars().count()).max().unwrap_or(0);
    shell::put("\nengines")?;
    for engine in engines {
        shell::put(&format!("  {engine}"))?;
    }
    shell::put(&format!("\n{:<width$}  passed  failed  ignored", "tests"))?;
    for target in targets {
        let Target { name, passed, failed, ignored, finished, not_had, .. } = target;
        let remark = match (finished, failed, passed + ignored) {
            (false, ..) if not_had.is_some() => "  <- could not be had",
            (false, ..) => "  <- did not finish",
            (true, 1.., _) => "  <- failed",
            (true, 0, 0) => "  <- has no tests",
            _ => "",
        };
        shell::put(&format!("{name:<width$}  {passed:>6}  {failed:>6}  {ignored:>7}{remark}"))?;
    }
    for target in targets.iter().filter(|target| !target.failures.is_empty()) {
        shell::put(&format!("\n{}:\n  {}", target.name, target.failures.join("\n  ")))?;
    }
    let not_had = targets.iter().filter(|target| target.not_had.is_some()).count() as u64;
    if not_had > 0 {
        shell::put(&format!("\n{not_had} could not be had"))?;
    }
    let unfinished = targets.iter().filter(|target| !target.finished).count() as u64 - not_had;
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
        let expected = Target {
            name: "x".to_owned(),
            passed: 6,
            failed: 3,
            ignored: 1,
            finished: true,
            ..Target::default()
        };
        assert_eq!(counted("x", text), expected);
    }

    #[test]
    fn a_test_that_was_left_out_did_not_pass() {
        let text = "test drivers::redis::a ... ok\n\
            drivers::redis::b: redis is left out (LOCKLINE_TEST_ENGINES does not name it)\n\
            drivers::redis::b: redis is left out (LOCKLINE_TEST_ENGINES does not name it)\n\
            test drivers::redis::b ... ok\n\
            test drivers::redis::d ... drivers::redis::c: redis is left out (LOCKLINE_TEST_ENGINES does not name it)\n\
            test drivers::redis::c ... ok\n\
            test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
        let target = counted("x", text);
        assert_eq!((target.passed, target.ignored), (2, 2));
        assert_eq!(target.passed_in("drivers::redis"), 1);
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
            end: End::Ended(std::process::ExitStatus::from_raw(code << 8)),
            ..Said::default()
        };
        assert!(target(&said(0)).finished);
        assert!(!target(&said(101)).finished);
    }

    #[test]
    fn what_failed_is_repeated() {
        let text = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nit broke\n   12: f\n     at f.rs\n\nfailures:\n    a\n\n\
            test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
        let said = Said { name: "x".to_owned(), text: text.to_owned(), ..Said::default() };
        assert_eq!(target(&said).failures[..3], ["---- a stdout ----", "it broke", "failures:"]);
        let long = Said { text: "y\n".repeat(1000), ..Said::default() };
        assert_eq!(target(&long).failures.len(), REPEATED);
    }
}
