//! `cargo xtask torture`: an engine, or the whole campaign. Servers are started for it, and the torturer is told how to
//! start them again.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use crate::engines::{ENGINES, Engine, Fleet, named, named_one};
use crate::{shell, test, workspace};

const TORTURER: &str = "lockline-torture";

/// What a campaign must have done, beside finding nothing.
struct Aim {
    acquisitions: u64,
    faults: u64,
    /// On each engine.
    faults_each: u64,
}

const SHORT: Aim = Aim { acquisitions: 50_000, faults: 100, faults_each: 1 };
const LONG: Aim = Aim { acquisitions: 3_000_000, faults: 5_000, faults_each: 200 };

/// `args` are the engine and what the torturer's help lists; with `long`, the engines of the campaign, or none for all.
pub(crate) fn torture(long: bool, args: &[String]) -> Result<()> {
    if long {
        return campaign_for_long(args);
    }
    let named = args.iter().find_map(|arg| named_one(arg));
    let program = build("test")?;
    run(&program, named, args, shell::run)
}

/// The short form, for `cargo xtask ci`: every engine for a moment, two at a time, and all together enough to mean something. The tests,
/// which come next, are built beside it: a torture mostly waits.
pub(crate) fn short() -> Result<()> {
    let program = build("test")?;
    let left = Mutex::new(tortured().collect::<VecDeque<_>>());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let some = || {
        let mut runs = Vec::new();
        while let Some(engine) = next() {
            let seconds = if matches!(engine.name, "sqlite" | "redis") { 15 } else { 8 };
            runs.push(measured(&program, engine, seconds, seed()).context(engine.name)?);
        }
        anyhow::Ok(runs)
    };
    let runs = std::thread::scope(|scope| -> Result<Vec<Value>> {
        scope.spawn(test::build_beside);
        let other = scope.spawn(some);
        let mut runs = some()?;
        runs.extend(other.join().map_err(|_| anyhow!("the torture panicked"))??);
        Ok(runs)
    })?;
    check(&runs, &SHORT)
}

/// The long form: the runs are kept in a file, and the document's tables are made from it.
fn campaign_for_long(names: &[String]) -> Result<()> {
    let engines = named(names)?;
    let program = build("torture")?;
    let file = workspace::root().join("docs/reliability.jsonl");
    if names.is_empty() {
        std::fs::write(&file, "")?;
    }
    for engine in engines.into_iter().filter(|engine| engine.tortured) {
        let mut lines = std::fs::File::options().append(true).create(true).open(&file)?;
        // With an even seed a Redis server loses its data, with an odd one its clock is set back.
        for half in 0..if engine.name == "redis" { 2 } else { 1 } {
            let seconds = long_seconds(engine.name);
            let run = measured(&program, engine, seconds, seed() * 2 + half).context(engine.name)?;
            writeln!(lines, "{run}")?;
        }
        let docs = workspace::root().join("docs");
        let mut report = Command::new(&program);
        report.arg("--report").arg(&file).arg("--into").arg(docs.join("reliability.md"));
        shell::run(report.arg("--plot").arg(docs.join("reliability.svg")))?;
    }
    let lines = std::fs::read_to_string(&file)?;
    let runs = lines.lines().map(serde_json::from_str).collect::<serde_json::Result<Vec<Value>>>()?;
    if names.is_empty() { check(&runs, &LONG) } else { are_clean(&runs) }
}

/// The engines without servers, and the fastest one, make most of the acquisitions.
fn long_seconds(engine: &str) -> u64 {
    match engine {
        "sqlite" => 420,
        "redis" => 210,
        _ => 150,
    }
}

/// Another one each time, and short enough to be typed again.
fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_micros() as u64 % 1_000_000
}

fn tortured() -> impl Iterator<Item = &'static Engine> {
    ENGINES.iter().filter(|engine| engine.tortured)
}

/// As tests are built, so that hardly anything is built for it; or fast, for the long form.
fn build(profile: &str) -> Result<std::path::PathBuf> {
    let arguments = ["build", "--quiet", "--all-features", "--bin", TORTURER, "--profile", profile];
    shell::run(&mut shell::cargo(arguments))?;
    let folder = if profile == "test" { "debug" } else { profile };
    Ok(workspace::target_dir()?.join(folder).join(TORTURER))
}

/// One run, and its JSON object, also if it found something: the other engines still have their turn.
fn measured(program: &Path, engine: &'static Engine, seconds: u64, seed: u64) -> Result<Value> {
    let (seconds, seed) = (seconds.to_string(), seed.to_string());
    let args = [engine.name, "--seconds", &seconds, "--seed", &seed, "--json"].map(str::to_owned);
    shell::say(&format!("   {} for {seconds} s", engine.name));
    run(program, Some(engine), &args, |command| {
        let output = command.stderr(Stdio::inherit()).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        shell::say(said.trim_end());
        let mut run: Value = serde_json::from_str(said.lines().next_back().context("it said nothing")?)?;
        run["clean"] = output.status.success().into();
        // To the torturer every release of an engine is that engine.
        run["engine"] = engine.name.into();
        Ok(run)
    })
}

/// Starts the engine's servers for the time of one run.
fn run<T>(
    program: &Path,
    engine: Option<&'static Engine>,
    args: &[String],
    outcome: impl FnOnce(&mut Command) -> Result<T>,
) -> Result<T> {
    let mut command = Command::new(program);
    // A release of an engine is tortured as that engine.
    let as_engine = |arg: &String| match engine {
        Some(engine) if arg == engine.name => engine.like.to_owned(),
        _ => arg.clone(),
    };
    command.args(args.iter().map(as_engine));
    let Some(engine) = engine.filter(|engine| engine.feature.is_some()) else {
        return outcome(&mut command);
    };
    engine.install_clients()?;
    let fleet = Fleet::start(&[engine])?;
    let site = tempfile::NamedTempFile::new()?;
    serde_json::to_writer(&site, &fleet.site(engine.name).context("the server is not described")?)?;
    let outcome = outcome(command.arg("--site").arg(site.path()));
    drop(fleet);
    outcome
}

fn are_clean(runs: &[Value]) -> Result<()> {
    let found: Vec<_> =
        runs.iter().filter(|run| run["clean"] != true).map(|run| run["engine"].to_string()).collect();
    ensure!(found.is_empty(), "something was found on {}", found.join(", "));
    Ok(())
}

fn check(runs: &[Value], aim: &Aim) -> Result<()> {
    are_clean(runs)?;
    let number = |run: &Value, key: &str| run[key].as_u64().unwrap_or_default();
    let sum = |key: &str| runs.iter().map(|run| number(run, key)).sum::<u64>();
    let (acquisitions, faults) = (sum("acquisitions"), sum("faults"));
    shell::say(&format!("   {acquisitions} acquisitions under {faults} faults on {} engines", runs.len()));
    ensure!(acquisitions >= aim.acquisitions, "too few acquisitions: {} are wanted", aim.acquisitions);
    ensure!(faults >= aim.faults, "too few faults: {} are wanted", aim.faults);
    for engine in tortured() {
        let of = runs.iter().filter(|run| run["engine"] == engine.name);
        let faults: u64 = of.map(|run| number(run, "faults")).sum();
        ensure!(
            faults >= aim.faults_each,
            "{}: {faults} faults, {} are wanted",
            engine.name,
            aim.faults_each
        );
    }
    Ok(())
}
