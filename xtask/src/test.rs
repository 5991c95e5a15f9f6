//! `cargo xtask test`: every test, on every engine, with a summary that hides nothing.

mod counts;
mod floor;
mod matrix;
mod programs;
mod turns;
mod versions;

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::engines::{self, Engine, Fleet};
use crate::shell;
use counts::{Target, summary, target, total};
use programs::{Job, Program, Said};

pub(crate) use programs::build_beside;

/// Which tests.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Which {
    /// Only these engines.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    engines: Vec<String>,
    /// Only programs with one of these in their names, such as `tests/redis`.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    programs: Vec<String>,
    /// Conformance on every release that people run, or on these: `mysql-9`, or `valkey` for all of its cells.
    #[arg(long, num_args = 0.., value_delimiter = ',', value_name = "CELLS", conflicts_with_all = ["engines", "programs"])]
    matrix: Option<Vec<String>>,
    /// Releases that need not be had; all others fail the run if they cannot.
    #[arg(long, value_delimiter = ',', value_name = "CELLS")]
    excuse: Vec<String>,
    /// How many programs run at a time, if not three.
    #[arg(long, value_name = "N")]
    at_once: Option<usize>,
    /// Passed on to each program, such as the name of a test, or `--nocapture`.
    #[arg(last = true)]
    rest: Vec<String>,
}

/// So many that the machine is hardly ever idle, and so few that none waits for it for long.
const AT_ONCE: usize = 3;

/// The library's own tests.
const LIBRARY: &str = "lockline src/lib.rs";

impl Which {
    fn wants(&self, job: &Job) -> bool {
        self.programs.is_empty() || self.programs.iter().any(|name| job.name.contains(name.as_str()))
    }

    /// Whether nothing is left out: only then it is known how many tests there must be.
    fn is_everything(&self) -> bool {
        self.engines.is_empty() && self.programs.is_empty() && self.rest.is_empty()
    }
}

/// The documentation's examples: they are built as they are run.
fn examples() -> Job {
    let mut command = shell::cargo(["test", "--workspace", "--all-features", "--doc", "--no-fail-fast"]);
    command.arg("--");
    Job { name: "documentation".to_owned(), command, server: None }
}

/// The program with the conformance suite of an engine.
fn conformance(engine: &Engine) -> String {
    format!("lockline-testkit tests/{}.rs", engine.like.replace('-', "_"))
}

/// The program with the conformance suite of the tables that other programs lock in, too: `layout=` of an SQL server.
fn layouts(engine: &str) -> String {
    format!("lockline-testkit tests/{engine}_layouts.rs")
}

/// The tests of an engine on another release of it: conformance, and with `more` that of its layouts and those tests that
/// start servers of their own and can be told which program to start.
///
/// # Errors
/// If there is no such program: a release whose tests were renamed must not be passed over.
fn jobs_on(engine: &'static Engine, programs: &[Program], more: bool) -> Result<Vec<Job>> {
    let conformance = conformance(engine);
    let layouts = layouts(engine.like);
    let own: &[(&str, &str)] = match engine.like {
        "mysql" => {
            &[(LIBRARY, "drivers::mysql"), (&layouts, ""), ("lockline-cli tests/sql_layouts.rs", "mysql")]
        }
        "postgres" => &[(&layouts, ""), ("lockline-cli tests/sql_layouts.rs", "postgres")],
        "redis" => &[(LIBRARY, "drivers::redis"), ("lockline-testkit tests/redis_access.rs", "")],
        _ => &[],
    };
    let own = own.iter().filter(|_| more).copied();
    let job = |(name, tests): (&str, &str)| {
        let program = programs.iter().find(|program| program.name == name);
        let mut command = program.with_context(|| format!("there is no program {name}"))?.command();
        command.args(Some(tests).filter(|tests| !tests.is_empty()));
        let name = [name, tests, "on", engine.name].into_iter().filter(|word| !word.is_empty());
        Ok(Job { name: name.collect::<Vec<_>>().join(" "), command, server: Some(engine) })
    };
    std::iter::once((conformance.as_str(), "")).chain(own).map(job).collect()
}

/// Runs everything; fails unless everything passed.
pub(crate) fn test(which: &Which) -> Result<()> {
    if let Some(cells) = &which.matrix {
        return matrix::matrix(which, &engines::cells(cells)?);
    }
    // Another release of an engine has a run of that engine's tests to itself.
    let (usual, mut releases): (Vec<_>, Vec<_>) =
        engines::named(&which.engines)?.into_iter().partition(|engine| engine.name == engine.like);
    if which.engines.is_empty() {
        releases.extend(turns::of_today(&releases)?);
    }
    let programs = programs::build()?;
    let fleet = Fleet::start(&usual)?;
    let on_fleet =
        |program: &Program| Job { name: program.name.clone(), command: program.command(), server: None };
    let mut jobs: Vec<Job> = std::iter::once(examples()).chain(programs.iter().map(on_fleet)).collect();
    for job in &mut jobs {
        job.command.envs([fleet.environment()]);
    }
    for engine in &releases {
        jobs.extend(jobs_on(engine, &programs, true)?);
    }
    jobs.retain(|job| which.wants(job));
    let targets = run(which, jobs)?;
    let mut engines = fleet.description();
    drop(fleet);
    engines.extend(versions(&targets));
    summary(&targets, &engines)?;
    all_passed(which, &targets)?;
    if which.is_everything() {
        floor::check(&targets, &usual)?;
    }
    Ok(())
}

/// The servers that were there for one program each.
fn versions(targets: &[Target]) -> Vec<String> {
    let own = |target: &Target| Some(format!("{}: {}, for its own tests", target.server?, target.version));
    let mut all: Vec<String> = targets.iter().filter_map(own).collect();
    all.sort();
    all.dedup();
    all
}

/// Fails unless everything passed that was not excused.
fn all_passed(which: &Which, targets: &[Target]) -> Result<()> {
    let is_bad = |target: &&Target| target.not_had.is_none() && (!target.finished || target.failed > 0);
    ensure!(targets.iter().filter(is_bad).count() == 0, "not everything passed");
    ensure!(total(targets, |target| target.passed) > 0, "no test ran");
    let excused = if which.excuse.is_empty() { Vec::new() } else { engines::cells(&which.excuse)? };
    for target in targets {
        let is_excused = excused.iter().any(|cell| Some(cell.name) == target.server);
        if let (Some(why), Some(cell), false) = (&target.not_had, target.server, is_excused) {
            bail!("{why}\nif it need not be had: --excuse {cell}");
        }
    }
    Ok(())
}

/// Runs jobs, and prints what they say.
fn run(which: &Which, mut jobs: Vec<Job>) -> Result<Vec<Target>> {
    for job in &mut jobs {
        job.command.args(&which.rest);
    }
    let start = Instant::now();
    let mut targets = Vec::new();
    programs::run(jobs, which.at_once.unwrap_or(AT_ONCE).max(1), |said| {
        let after = start.elapsed().as_secs();
        let Said { name, end, seconds, text, .. } = &said;
        shell::put(&format!("\n== {name} ({end}, {seconds} s, after {after} s)\n{text}"))?;
        targets.push(target(&said));
        Ok(())
    })?;
    targets.sort_by(|a: &Target, b| a.name.cmp(&b.name));
    Ok(targets)
}
