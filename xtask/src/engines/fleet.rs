//! Engines that run: started together, stopped together, also when this program is told to end.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{Engine, Started, apt, named};
use crate::{shell, workspace};

/// What tests read.
const VARIABLE: &str = "LOCKLINE_TEST_ENGINES";

/// The processes to stop when this program is told to end.
static RUNNING: Mutex<Vec<Process>> = Mutex::new(Vec::new());

/// Engines that run until this is dropped.
#[derive(Debug)]
pub(crate) struct Fleet {
    started: Vec<(&'static Engine, Started)>,
    /// Their data.
    _dir: tempfile::TempDir,
}

/// One at a time: two would install the same package at once, or find the same port free.
static STARTS: Mutex<()> = Mutex::new(());

/// Installs what is missing, for whoever will need it soon. Whoever needs it before that waits.
pub(crate) fn install(engines: impl IntoIterator<Item = &'static Engine>) -> Result<()> {
    let _starts = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
    engines.into_iter().try_for_each(|engine| engine.toolchain().map(drop))
}

impl Fleet {
    /// Installs and starts them, with their data in memory where there is room for it: a disk that is busy with something else takes
    /// seconds for what an engine has to write before it answers, and leases in tests are shorter than that.
    pub(crate) fn start(engines: &[&'static Engine]) -> Result<Fleet> {
        Fleet::start_in(memory().unwrap_or(&std::env::temp_dir()), engines)
    }

    /// The same with their data where it usually is.
    pub(crate) fn start_on_disk(engines: &[&'static Engine]) -> Result<Fleet> {
        Fleet::start_in(&std::env::temp_dir(), engines)
    }

    fn start_in(folder: &Path, engines: &[&'static Engine]) -> Result<Fleet> {
        let _starts = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
        stop_when_told_to()?;
        let dir = tempfile::Builder::new().prefix("lockline-engines-").tempdir_in(folder)?;
        let mut fleet = Fleet { started: Vec::new(), _dir: dir };
        for engine in engines {
            let tools = engine.toolchain()?;
            let home = fleet._dir.path().join(engine.name);
            std::fs::create_dir(&home)?;
            let started =
                (engine.start)(&tools, &home).with_context(|| format!("cannot start {}", engine.name))?;
            let processes = started.processes.iter().filter_map(|child| Process::of(child.id()));
            RUNNING.lock().unwrap_or_else(PoisonError::into_inner).extend(processes);
            fleet.started.push((engine, started));
        }
        Ok(fleet)
    }

    fn one(&self, name: &str) -> Option<&(&'static Engine, Started)> {
        self.started.iter().find(|(engine, _)| engine.name == name)
    }

    /// The version that one of them says it has.
    pub(crate) fn version(&self, name: &str) -> Option<&str> {
        Some(self.one(name)?.1.version.as_str())
    }

    /// Where one of them listens.
    pub(crate) fn url(&self, name: &str) -> Option<String> {
        self.one(name)?.1.url.clone()
    }

    /// The servers of one of them and how they are started again, as the torturer reads it.
    pub(crate) fn site(&self, name: &str) -> Option<serde_json::Value> {
        let (_, started) = self.one(name)?;
        let servers: Vec<_> = started
            .processes
            .iter()
            .zip(&started.launches)
            .map(|(process, launch)| launch.json(process))
            .collect();
        Some(serde_json::json!({ "url": started.url, "servers": servers }))
    }

    /// What tests read: the servers there are, and where. Embedded engines need none and always run. Other releases of an engine
    /// are not among them: they have a run of its tests to themselves, see [`Fleet::environment_of`].
    pub(crate) fn environment(&self) -> (&'static str, String) {
        let usual = self.started.iter().filter(|(engine, _)| engine.name == engine.like);
        let servers =
            usual.filter_map(|(engine, started)| Some(format!("{}={}", engine.name, started.url.as_ref()?)));
        (VARIABLE, servers.collect::<Vec<_>>().join(" "))
    }

    /// What the tests of an engine read if this one is to take its place.
    pub(crate) fn environment_of(&self, name: &str) -> Result<(&'static str, String)> {
        let (engine, started) = self.one(name).with_context(|| format!("{name} was not started"))?;
        let url = started.url.as_ref().context("it has no address")?;
        Ok((VARIABLE, format!("{}={url}", engine.like)))
    }

    /// One line per engine, for people.
    pub(crate) fn description(&self) -> Vec<String> {
        let line = |(engine, started): &(&Engine, Started)| match &started.url {
            Some(url) => format!("{}: {}, {url}", engine.name, started.version),
            None => format!("{}: embedded, nothing to start", engine.name),
        };
        self.started.iter().map(line).collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for (_, started) in &mut self.started {
            for child in &mut started.processes {
                RUNNING
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .retain(|process| process.pid != child.id());
                if let Some(process) = Process::of(child.id()) {
                    process.signal(Signal::TERM);
                }
                // Reaped here, because some engines take a dead process that nobody waited for as alive.
                if !ends_within(child, Duration::from_secs(10)) {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        }
    }
}

/// A folder in memory, if it has room for all engines.
fn memory() -> Option<&'static Path> {
    const ENOUGH: u64 = 4 << 30;
    let folder = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(folder).ok()?;
    (room.f_bavail * room.f_frsize >= ENOUGH).then_some(folder)
}

fn ends_within(child: &mut Child, patience: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < patience {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// On Ctrl-C or a polite end: stops the engines, then this program.
fn stop_when_told_to() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            apt::let_services_start();
            for process in RUNNING.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                process.signal(Signal::TERM);
            }
            #[allow(clippy::exit)]
            // The main thread waits for cargo, which got the same signal and is ending, too.
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// A process that is still the one it was: a number alone may have been given to another one since.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    started_at: u64,
}

impl Process {
    fn of(pid: u32) -> Option<Process> {
        Some(Process { pid, started_at: started_at(pid)? })
    }

    fn signal(&self, signal: Signal) {
        let still_itself = started_at(self.pid) == Some(self.started_at);
        if let Some(pid) = Pid::from_raw(self.pid.cast_signed()).filter(|_| still_itself) {
            // It can only have ended meanwhile.
            let _ = kill_process(pid, signal);
        }
    }

    fn is_gone(&self) -> bool {
        let answers = Pid::from_raw(self.pid.cast_signed()).is_some_and(|pid| test_kill_process(pid).is_ok());
        !answers || started_at(self.pid) != Some(self.started_at)
    }
}

/// In ticks since boot, from field 22 of its status line; the name in field 2 may contain anything.
fn started_at(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn left_running() -> Result<PathBuf> {
    Ok(workspace::target_dir()?.join("engines-left-running"))
}

/// `engines up`: starts them and leaves them running.
pub(crate) fn up() -> Result<()> {
    let list = left_running()?;
    if list.exists() {
        bail!("engines were left running: cargo xtask engines down");
    }
    let mut fleet = Fleet::start(&named(&[])?)?;
    for line in fleet.description() {
        shell::say(&line);
    }
    let (name, servers) = fleet.environment();
    shell::put(&format!("{name}='{servers}'"))?;
    let mut text = String::new();
    for (_, started) in &mut fleet.started {
        for process in started.processes.drain(..).filter_map(|child| Process::of(child.id())) {
            writeln!(text, "{} {}", process.pid, process.started_at)?;
        }
    }
    if text.is_empty() {
        shell::say("nothing has to be started");
        return Ok(());
    }
    writeln!(text, "{}", fleet._dir.path().display())?;
    // From here on `down` is who stops them, and removes their data.
    fleet._dir.disable_cleanup(true);
    Ok(std::fs::write(list, text)?)
}

/// `engines down`: stops what `up` left running.
pub(crate) fn down() -> Result<()> {
    let list = left_running()?;
    let Ok(text) = std::fs::read_to_string(&list) else {
        shell::say("nothing was left running");
        return Ok(());
    };
    let mut processes = Vec::new();
    for line in text.lines() {
        match line.split_once(' ').map(|(pid, started_at)| (pid.parse(), started_at.parse())) {
            Some((Ok(pid), Ok(started_at))) => processes.push(Process { pid, started_at }),
            _ => stop(&processes, Path::new(line))?,
        }
    }
    Ok(std::fs::remove_file(list)?)
}

fn stop(processes: &[Process], dir: &Path) -> Result<()> {
    processes.iter().for_each(|process| process.signal(Signal::TERM));
    let start = Instant::now();
    while !processes.iter().all(Process::is_gone) {
        if start.elapsed() > Duration::from_secs(10) {
            processes.iter().for_each(|process| process.signal(Signal::KILL));
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_stops_what_it_started() {
        fn sleeper(_: &super::super::Toolchain, _: &Path) -> Result<Started> {
            let child = std::process::Command::new("sleep").arg("600").spawn()?;
            Ok(Started { url: Some("sleep://".to_owned()), processes: vec![child], ..Started::default() })
        }
        static SLEEPER: Engine = Engine::server("sleeper", "", || Ok(()), sleeper);
        let fleet = Fleet::start(&[&SLEEPER]).unwrap();
        let process = Process::of(fleet.started[0].1.processes[0].id()).unwrap();
        assert_eq!(fleet.environment(), ("LOCKLINE_TEST_ENGINES", "sleeper=sleep://".to_owned()));
        assert!(!process.is_gone());
        drop(fleet);
        assert!(process.is_gone());
    }
}
