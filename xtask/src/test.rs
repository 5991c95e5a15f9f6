//! `cargo xtask test`: every test, on every engine, with a summary that hides nothing.

use std::io::{BufRead, BufReader};

use anyhow::{Result, ensure};

use crate::engines::{self, Fleet};
use crate::shell;

/// What one test program said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Target {
    name: String,
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Whether it said anything: one that crashed did not.
    finished: bool,
}

/// Runs everything; fails unless everything passed.
pub(crate) fn test(names: &[String], rest: &[String]) -> Result<()> {
    let fleet = Fleet::start(&engines::named(names)?)?;
    let mut command = shell::cargo(["test", "--workspace", "--all-features", "--no-fail-fast"]);
    command.args(rest).envs([fleet.environment()]);
    // One pipe for both, so that a result stands after the name of its program.
    let (reader, writer) = std::io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // The command keeps its ends of the pipe open for as long as it lives.
    drop(command);
    let mut targets = Vec::new();
    for line in BufReader::new(reader).lines() {
        let line = line?;
        shell::put(&line)?;
        note(&mut targets, &line);
    }
    let status = child.wait()?;
    let engines = fleet.description();
    drop(fleet);
    summary(&targets, &engines)?;
    ensure!(status.success(), "cargo test failed: {status}");
    ensure!(targets.iter().all(|target| target.finished && target.failed == 0), "not everything passed");
    ensure!(total(&targets, |target| target.passed) > 0, "no test ran");
    Ok(())
}

fn total(targets: &[Target], of: impl Fn(&Target) -> u64) -> u64 {
    targets.iter().map(of).sum()
}

/// Reads what a line says about tests.
fn note(targets: &mut Vec<Target>, line: &str) {
    let text = line.trim_start();
    if let Some(program) = text.strip_prefix("Running ") {
        targets.push(Target { name: program_name(program), ..Target::default() });
    } else if let Some(library) = text.strip_prefix("Doc-tests ") {
        targets.push(Target { name: format!("{library} (documentation)"), ..Target::default() });
    } else if let Some((_, counts)) =
        line.strip_prefix("test result: ").and_then(|result| result.split_once(". "))
    {
        // Documentation is run in two programs, whose results follow each other.
        if let Some(target) = targets.last_mut() {
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
    }
}

/// `unittests src/lib.rs (target/debug/deps/lockline-0123)` is lockline's `src/lib.rs`.
fn program_name(program: &str) -> String {
    let (source, file) = program.rsplit_once(" (").unwrap_or((program, ""));
    let file = file.trim_end_matches(')').rsplit('/').next().unwrap_or_default();
    let name = file.rsplit_once('-').map_or(file, |(name, _hash)| name);
    let source = source.trim_start_matches("unittests ");
    if source.starts_with("tests/") { source.to_owned() } else { format!("{name} {source}") }
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

    fn noted(text: &str) -> Vec<Target> {
        let mut targets = Vec::new();
        text.lines().for_each(|line| note(&mut targets, line));
        targets
    }

    #[test]
    fn results_are_counted_per_program() {
        let targets = noted(
            "     Running unittests src/lib.rs (/tmp/target/debug/deps/lockline-0123abcd)\n\
             running 3 tests\n\
             test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             \x20    Running tests/smoke.rs (/tmp/target/debug/deps/smoke-0123abcd)\n\
             test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             \x20  Doc-tests lockline\n\
             test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n",
        );
        let target = |name: &str, passed, failed, ignored| Target {
            name: name.to_owned(),
            passed,
            failed,
            ignored,
            finished: true,
        };
        let expected = [
            target("lockline src/lib.rs", 2, 0, 1),
            target("tests/smoke.rs", 1, 2, 0),
            target("lockline (documentation)", 9, 0, 0),
        ];
        assert_eq!(targets, expected);
    }

    #[test]
    fn a_program_that_crashed_is_not_finished() {
        let targets = noted("     Running tests/crash.rs (target/debug/deps/crash-1)\nrunning 1 test\n");
        assert!(!targets[0].finished);
    }
}
