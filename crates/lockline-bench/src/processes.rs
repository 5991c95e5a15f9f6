//! The row *processes*: real processes on one name.
//!
//! Each child writes down the token and when it was inside, on the clock that all processes of a host share; the parent
//! puts the notes of all together. Nothing is shared while they run, so the checks cost nothing and change nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::engine::{Engine, Site};
use crate::floors::Floor;
use crate::row::{Row, rounded};
use crate::stats::Times;

/// How many processes contend.
pub const PROCESSES: usize = 8;

/// The first argument of a process that takes turns.
pub const WORKER: &str = "__worker";

/// The first argument of a process that answers every datagram.
pub const ECHO: &str = "__echo";

/// Nanoseconds since boot: comparable among all processes of a host.
fn boot_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// One turn of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Visit {
    process: usize,
    token: u64,
    entered: u64,
    left: u64,
}

/// Ends its process when it is dropped, so that a failed run leaves none behind.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a [`WORKER`] does: says that it is ready, is told from when to when, takes turns, and tells what it saw.
///
/// # Errors
/// What the engine fails with.
pub async fn work(engine: &str, url: &str) -> Result<()> {
    let site = Site::of_parent(Engine::named(engine)?, url);
    let client = site.connect().await?;
    let mutex = client.locks.mutex("processes");
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready")?;
    out.flush()?;
    let mut told = String::new();
    std::io::stdin().read_line(&mut told)?;
    let (start, end) = told.trim().split_once(' ').context("told no window")?;
    let (start, end): (u64, u64) = (start.parse()?, end.parse()?);
    tokio::time::sleep(Duration::from_nanos(start.saturating_sub(boot_ns()))).await;
    let mut visits = Vec::with_capacity(1 << 16);
    while boot_ns() < end {
        let guard = mutex.lock().await?;
        let entered = boot_ns();
        let token = guard.fence().token();
        let left = boot_ns();
        guard.release().await?;
        visits.push((token, entered, left));
    }
    let mut out = std::io::BufWriter::new(out);
    for (token, entered, left) in visits {
        writeln!(out, "{token} {entered} {left}")?;
    }
    writeln!(out, "verbs {}", client.counts.now().verbs)?;
    Ok(out.flush()?)
}

/// What an [`ECHO`] does.
///
/// # Errors
/// If the sockets cannot be used.
pub fn echo(own: &Path, other: &Path) -> Result<()> {
    let socket = UnixDatagram::bind(own)?;
    let mut buffer = [0; 16];
    // An empty datagram is the end.
    while let n @ 1.. = socket.recv(&mut buffer)? {
        socket.send_to(&buffer[..n], other)?;
    }
    Ok(())
}

/// Lets processes contend, and puts together what they saw.
///
/// # Errors
/// What the engine or a process fails with.
pub async fn processes(site: &Site, window: Duration) -> Result<Row> {
    let before = HandoffFloor::measure(site).await?;
    let (visits, verbs) = run_children(site, window)?;
    let after = HandoffFloor::measure(site).await?;
    let mut seen = Seen::of(&visits);
    let floor_us = f64::midpoint(before.us, after.us);
    let row = Row {
        engine: site.engine.name().to_owned(),
        row: "processes".to_owned(),
        workers: PROCESSES,
        owner_changes_per_s: Some(rounded(seen.changes_per_s)),
        commands_per_acquisition: Some(rounded(verbs as f64 / visits.len().max(1) as f64)),
        turns_min: seen.turns_min,
        turns_max: seen.turns_max,
        violations: seen.violations,
        ..Row::default()
    };
    let row = row
        .against("1/s", seen.changes_per_s, before.name, 1e6 / floor_us)
        .with("handoff_p50_us", seen.handoffs.quantile_us(0.5))
        .with("handoff_p99_us", seen.handoffs.quantile_us(0.99))
        .with("tokens_not_rising", seen.tokens_not_rising as f64);
    Ok(match before.datagram_us {
        Some(us) => row.with("datagram_us", us),
        None => row,
    })
}

fn run_children(site: &Site, window: Duration) -> Result<(Vec<Visit>, u64)> {
    let mut children = Vec::with_capacity(PROCESSES);
    for _ in 0..PROCESSES {
        let mut child = Reaped(
            Command::new(std::env::current_exe()?)
                .arg(WORKER)
                .arg(site.engine.name())
                .arg(&site.url)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?,
        );
        let output = BufReader::new(child.0.stdout.take().context("a process without output")?);
        children.push((child, output));
    }
    for (_, output) in &mut children {
        let mut line = String::new();
        output.read_line(&mut line)?;
        ensure!(line.trim() == "ready", "a process did not get ready");
    }
    let start = boot_ns() + 50_000_000;
    let end = start + window.as_nanos() as u64;
    for (child, _) in &mut children {
        writeln!(child.0.stdin.take().context("a process without input")?, "{start} {end}")?;
    }
    let mut visits = Vec::new();
    let mut verbs = 0;
    for (process, (mut child, output)) in children.into_iter().enumerate() {
        verbs += read_notes(output, process, &mut visits)?;
        ensure!(child.0.wait()?.success(), "a process failed");
    }
    Ok((visits, verbs))
}

/// Reads one child's notes; answers how many verbs it sent.
fn read_notes(mut output: BufReader<ChildStdout>, process: usize, visits: &mut Vec<Visit>) -> Result<u64> {
    let mut text = String::new();
    output.read_to_string(&mut text)?;
    for line in text.lines() {
        if let Some(verbs) = line.strip_prefix("verbs ") {
            return Ok(verbs.parse()?);
        }
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [token, entered, left] = numbers[..] else { anyhow::bail!("a note that is none: {line:?}") };
        visits.push(Visit { process, token, entered, left });
    }
    anyhow::bail!("a process ended before it had told everything")
}

/// What all processes saw together.
#[derive(Debug, Default)]
struct Seen {
    changes_per_s: f64,
    turns_min: u64,
    turns_max: u64,
    violations: u64,
    tokens_not_rising: u64,
    handoffs: Times,
}

impl Seen {
    fn of(visits: &[Visit]) -> Seen {
        let mut visits = visits.to_vec();
        visits.sort_by_key(|visit| visit.entered);
        let mut seen = Seen::default();
        for pair in visits.windows(2) {
            seen.violations += u64::from(pair[1].entered < pair[0].left);
            seen.tokens_not_rising += u64::from(pair[1].token <= pair[0].token);
        }
        seen.violations += seen.tokens_not_rising;
        // As with workers in one process: from when everybody had a turn, to when the first one stopped.
        let of = |process: usize| visits.iter().filter(move |visit| visit.process == process);
        let from = (0..PROCESSES).filter_map(|p| of(p).map(|v| v.entered).min()).max().unwrap_or(0);
        let to = (0..PROCESSES).filter_map(|p| of(p).map(|v| v.entered).max()).min().unwrap_or(0);
        let inside: Vec<Visit> =
            visits.iter().copied().filter(|v| (from..=to).contains(&v.entered)).collect();
        for pair in inside.windows(2).filter(|pair| pair[0].process != pair[1].process) {
            seen.handoffs.add(Duration::from_nanos(pair[1].entered.saturating_sub(pair[0].left)), 1);
        }
        let turns: Vec<u64> =
            (0..PROCESSES).map(|p| inside.iter().filter(|v| v.process == p).count() as u64).collect();
        seen.turns_min = turns.iter().copied().min().unwrap_or(0);
        seen.turns_max = turns.iter().copied().max().unwrap_or(0);
        let seconds = Duration::from_nanos(to.saturating_sub(from)).as_secs_f64();
        seen.changes_per_s = if seconds > 0.0 { seen.handoffs.len() as f64 / seconds } else { 0.0 };
        seen
    }
}

/// The least that one change of owner between processes can take.
struct HandoffFloor {
    name: &'static str,
    us: f64,
    /// What the message to the next one takes of it, where no server sends it.
    datagram_us: Option<f64>,
}

impl HandoffFloor {
    /// In a file: a transaction to leave, one to stand in line again, and a datagram to the next. On a server: the half
    /// of a round trip to leave, and the other half to the next one.
    async fn measure(site: &Site) -> Result<HandoffFloor> {
        let mut floor = Floor::of(site).await?;
        let mut operations = Times::default();
        for _ in 0..2_000 {
            let at = Instant::now();
            floor.once().await?;
            operations.add(at.elapsed(), 1);
        }
        let once_us = operations.quantile_us(0.5);
        if !site.engine.is_embedded() {
            return Ok(HandoffFloor { name: floor.name(), us: once_us, datagram_us: None });
        }
        let datagram_us = datagram_us(&site.dir)?;
        Ok(HandoffFloor {
            name: "two bare transactions + one datagram",
            us: 2.0 * once_us + datagram_us,
            datagram_us: Some(datagram_us),
        })
    }
}

/// Half of a round trip to another process.
fn datagram_us(dir: &Path) -> Result<f64> {
    let unused = |name: &str| -> PathBuf { dir.join(format!("{name}-{}", boot_ns())) };
    let (own, other) = (unused("ping"), unused("pong"));
    let socket = UnixDatagram::bind(&own)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let _echo = Reaped(Command::new(std::env::current_exe()?).arg(ECHO).arg(&other).arg(&own).spawn()?);
    let patience = Instant::now();
    while socket.connect(&other).is_err() {
        ensure!(patience.elapsed() < Duration::from_secs(5), "the echo did not start");
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut times = Times::default();
    let mut buffer = [0; 16];
    for _ in 0..2_000 {
        let at = Instant::now();
        socket.send(&[1; 16])?;
        socket.recv(&mut buffer)?;
        times.add(at.elapsed(), 2);
    }
    socket.send(&[])?;
    Ok(times.quantile_us(0.5))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(process: usize, token: u64, entered: u64, left: u64) -> Visit {
        Visit { process, token, entered, left }
    }

    #[test]
    fn overlaps_and_tokens_that_do_not_rise_are_violations() {
        let fine = [visit(0, 1, 10, 20), visit(1, 2, 21, 30), visit(0, 3, 31, 40)];
        assert_eq!(Seen::of(&fine).violations, 0);
        let overlap = [visit(0, 1, 10, 20), visit(1, 2, 19, 30)];
        assert_eq!(Seen::of(&overlap).violations, 1);
        let token = [visit(0, 2, 10, 20), visit(1, 2, 21, 30)];
        assert_eq!((Seen::of(&token).violations, Seen::of(&token).tokens_not_rising), (1, 1));
    }
}
