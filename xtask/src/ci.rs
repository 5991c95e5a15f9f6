//! `cargo xtask ci`: everything that must hold before a change is merged.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};

use crate::engines::{self, ENGINES};
use crate::{newcomer, shell, targets, test, torture, workspace};

/// One step. They run in this order: what fails fastest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Step {
    /// Formatting.
    Fmt,
    /// Lints: the library with each engine alone, then everything together.
    Clippy,
    /// The documentation builds without a warning.
    Doc,
    /// The library compiles for other systems and processors.
    Targets,
    /// Every test.
    Test,
    /// What a newcomer does first: the library beside other crates, and what would be published.
    Newcomer,
    /// The commands of the README do what it says.
    Readme,
    /// A short torture.
    Torture,
}

impl Step {
    const ALL: [Step; 8] = [
        Step::Fmt,
        Step::Newcomer,
        Step::Clippy,
        Step::Doc,
        Step::Targets,
        Step::Test,
        Step::Readme,
        Step::Torture,
    ];

    fn run(self) -> Result<()> {
        match self {
            Step::Fmt => shell::run(&mut shell::cargo(["fmt", "--all", "--check"])),
            Step::Clippy => clippy(),
            Step::Doc => doc(),
            Step::Targets => targets::those_that_can_be_had(),
            Step::Test => test::test(&test::Which::default()),
            Step::Newcomer => newcomer::newcomer(&newcomer::QUICK),
            Step::Readme => readme(),
            Step::Torture => torture::short(),
        }
    }
}

/// Runs the steps; stops at the first that fails. The README's first command is built beside the others, and engines are installed:
/// each of them keeps one core busy for most of its time, or waits for a network.
pub(crate) fn ci(except: &[Step], only: &[Step]) -> Result<()> {
    let wanted = |step: &Step| !except.contains(step) && (only.is_empty() || only.contains(step));
    std::thread::scope(|scope| {
        let mut readme = wanted(&Step::Readme).then(|| scope.spawn(|| timed(Step::Readme)));
        if wanted(&Step::Torture) || wanted(&Step::Test) {
            // Whoever starts what could not be installed tries again, and says why not.
            scope.spawn(|| engines::install(ENGINES));
        }
        let mut done = Vec::new();
        for step in Step::ALL.into_iter().filter(wanted) {
            shell::say(&format!("== {step:?}"));
            let (outcome, seconds) = match readme.take_if(|_| step == Step::Readme) {
                Some(beside) => beside.join().map_err(|_| anyhow!("it panicked"))?,
                None => timed(step),
            };
            let word = if outcome.is_ok() { "passed" } else { "FAILED" };
            done.push(format!("{:<8} {seconds:>5} s  {word}", format!("{step:?}")));
            if outcome.is_err() {
                shell::say(&done.join("\n"));
                outcome.with_context(|| format!("step {step:?}"))?;
            }
        }
        shell::say(&done.join("\n"));
        Ok(())
    })
}

fn timed(step: Step) -> (Result<()>, u64) {
    let start = Instant::now();
    (step.run(), start.elapsed().as_secs())
}

fn clippy() -> Result<()> {
    let lint = |what: &[&str]| {
        shell::say(&format!("   cargo clippy {}", what.join(" ")));
        shell::run(shell::cargo(["clippy", "--quiet"]).args(what).args(["--", "-D", "warnings"]))
    };
    lint(&["--package", "lockline", "--no-default-features"])?;
    for feature in workspace::library_features()? {
        lint(&["--package", "lockline", "--no-default-features", "--features", &feature])?;
    }
    lint(&["--workspace", "--all-targets", "--all-features"])
}

fn doc() -> Result<()> {
    let mut command = shell::cargo(["doc", "--workspace", "--all-features", "--no-deps", "--quiet"]);
    shell::run(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// The README's first command, as a newcomer would run it: nothing of theirs is touched, nothing of ours is there.
const FIRST: &str = "cargo run --release -- run hello -- echo \"it is my turn\"";
const SECOND: &str = "cargo xtask test";

fn readme() -> Result<()> {
    let text = std::fs::read_to_string(workspace::root().join("README.md")).context("README.md")?;
    for command in [FIRST, SECOND] {
        ensure!(text.lines().any(|line| line.starts_with(command)), "README.md does not say: {command}");
    }
    let home = tempfile::tempdir()?;
    let mut command = Command::new("sh");
    command.args(["-c", FIRST]).current_dir(workspace::root()).env("HOME", home.path());
    for name in ["XDG_STATE_HOME", "XDG_RUNTIME_DIR", "LOCKLINE_URL"] {
        command.env_remove(name);
    }
    // Cargo and rustup live in the old home; the newcomer has them, too.
    let old_home = std::env::var_os("HOME").context("there is no HOME")?;
    for (name, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        let folder = std::path::Path::new(&old_home).join(folder);
        if std::env::var_os(name).is_none() && folder.exists() {
            command.env(name, folder);
        }
    }
    let said = shell::output(&mut command)?;
    ensure!(said == "it is my turn\n", "the README's first command said {said:?}");
    Ok(())
}
