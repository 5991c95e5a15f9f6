//! The row *cli*: what it costs to run a command under a lock, against `flock(1)`.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::engine::Site;
use crate::row::Row;
use crate::stats::Times;

/// The `lockline` command that was built beside this program.
///
/// # Errors
/// If there is none.
pub fn lockline() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let path = own.parent().context("this program lies nowhere")?.join("lockline");
    ensure!(path.exists(), "{} is missing: cargo build --release --package lockline-cli", path.display());
    Ok(path)
}

/// Runs `true` under both, in turn.
///
/// # Errors
/// If one of them fails.
pub fn cli(site: &Site, window: Duration) -> Result<Row> {
    let lockline = lockline()?;
    let lock_file = site.dir.join("flock");
    let run = |under_it: &[&str]| {
        let mut command = Command::new(&lockline);
        command.env("LOCKLINE_URL", &site.url).args(["run", "cli", "--"]).args(under_it);
        command
    };
    let ours = || run(&["true"]);
    // A command that does nothing would be the fastest of all.
    let said = run(&["sh", "-c", "echo $LOCKLINE_TOKEN"]).output()?.stdout;
    let token: u64 =
        String::from_utf8(said)?.trim().parse().context("lockline run gave its command no token")?;
    ensure!(token > 0, "the token of a held lock is never 0");
    let flock = || {
        let mut command = Command::new("flock");
        command.arg(&lock_file).arg("true");
        command
    };
    // The first of each reads its program from disk, and makes the file.
    let (_, _) = (time(ours())?, time(flock())?);
    let (mut floors, mut times) = (Times::default(), Times::default());
    let start = Instant::now();
    while start.elapsed() < window || times.len() < 50 {
        floors.add(time(flock())?, 1);
        times.add(time(ours())?, 1);
    }
    let turns = times.len() as u64;
    let row = Row {
        engine: site.engine.name().to_owned(),
        row: "cli".to_owned(),
        workers: 1,
        owner_changes_per_s: None,
        commands_per_acquisition: None,
        turns_min: turns,
        turns_max: turns,
        ..Row::default()
    };
    Ok(row
        .against("us", times.quantile_us(0.5), "flock FILE true", floors.quantile_us(0.5))
        .with("p99_us", times.quantile_us(0.99))
        .with("p99_floor_us", floors.quantile_us(0.99)))
}

fn time(mut command: Command) -> Result<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let at = Instant::now();
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    let took = at.elapsed();
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(took)
}
