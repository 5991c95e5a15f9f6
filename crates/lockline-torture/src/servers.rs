//! The processes of an engine: stopped, killed, started again, told another time.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use crate::disk::Disk;
use crate::stepped_clock::SteppedClock;

/// How long a server that was asked to end may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a process of an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    Redis,
    Sentinel,
    Zookeeper,
    Etcd,
    Postgres,
    Pgbouncer,
    Mysql,
}

/// How a server was started: `cargo xtask torture` writes it down.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Launch {
    pid: i32,
    pub(crate) role: Role,
    pub(crate) address: String,
    words: Vec<String>,
    pub(crate) folder: PathBuf,
    log: PathBuf,
}

/// A server under torture. One that this process started ends with it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) role: Role,
    pub(crate) address: String,
    /// Where its data is.
    pub(crate) folder: PathBuf,
    words: Vec<String>,
    log: PathBuf,
    pid: Pid,
    child: Option<Child>,
    clock: Option<SteppedClock>,
    /// Where its data is, if that can be filled.
    pub(crate) disk: Option<Disk>,
    /// How far its wall clock is from the right time.
    step_ms: i64,
    /// Whether it keeps its data over a restart, for those that need not.
    pub(crate) durable: bool,
    /// Whether its data is taken away now and then. Of a server that lost its memory *and* is behind by more than the restart
    /// guard nothing is promised: the clocks of these are hardly touched.
    pub(crate) forgetful: bool,
}

impl Server {
    /// The end of its log, for whoever has to find out why it is not there.
    pub(crate) fn last_words(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(2000)..]).into_owned()
    }

    pub(crate) fn new(launch: Launch) -> anyhow::Result<Server> {
        let Launch { pid, role, address, words, folder, log } = launch;
        let pid = Pid::from_raw(pid).context("a server without a process")?;
        let durable = !matches!(role, Role::Redis);
        let (child, clock, disk) = (None, None, None);
        let (step_ms, forgetful) = (0, !durable);
        Ok(Server { role, address, folder, words, log, pid, child, clock, disk, step_ms, durable, forgetful })
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or_default()
    }

    /// Ends it politely and starts it again, with a clock that can be stepped and a disk that can be filled, as a child of
    /// this process: only its parent can clear away what is left of a killed one, and some engines take that for alive.
    pub(crate) fn take_over(&mut self, home: &Path, own_mounts: bool) -> anyhow::Result<()> {
        // etcd reads the kernel's clock without a library in between.
        if !matches!(self.role, Role::Pgbouncer | Role::Etcd) {
            let folder = home.join(format!("clock-{}", self.port()));
            std::fs::create_dir(&folder)?;
            self.clock = Some(SteppedClock::new(&folder)?);
        }
        // To PostgreSQL, "end when all have gone" and "end now" are two signals.
        self.signal(if self.role == Role::Postgres { Signal::INT } else { Signal::TERM });
        self.wait_for_end()?;
        if own_mounts && self.role != Role::Pgbouncer {
            self.disk = Some(Disk::in_place_of(&self.folder)?);
        }
        self.start()
    }

    /// Removes its data. The folder stays: a disk may be mounted there.
    pub(crate) fn empty(&self) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            } else {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Starts it again, in the same folder and on the same port.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        if self.role == Role::Zookeeper {
            remove_logs_without_a_header(&self.folder)?;
        }
        // A process that dies takes its servers along, whatever it died of.
        let last_will = ["--pdeathsig", "KILL"].map(str::to_owned);
        let (program, words) = self.words.split_first().context("a server without a command")?;
        let mut command = Command::new("setpriv");
        if program == "setpriv" {
            command.args(last_will).args(words);
        } else {
            command.args(last_will).arg(program).args(words);
        }
        if let Some(clock) = &self.clock {
            clock.wound_up(&mut command);
        }
        let log = File::options().append(true).create(true).open(&self.log)?;
        command.current_dir("/").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("a server could not be started")?;
        self.pid = Pid::from_child(&child);
        self.child = Some(child);
        Ok(())
    }

    /// Whether its process is there.
    pub(crate) fn is_alive(&mut self) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => is_alive(self.pid),
        }
    }

    /// Kills it and what it started, and waits until they are gone.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        let all = self.processes();
        self.signal_all(Signal::KILL);
        self.wait_for_end()?;
        let start = Instant::now();
        while all.iter().any(|pid| is_alive(*pid)) {
            ensure!(start.elapsed() < PATIENCE, "{} does not die", self.address);
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn wait_for_end(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        while self.is_alive() {
            ensure!(start.elapsed() < PATIENCE, "{} does not end", self.address);
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child = None;
        Ok(())
    }

    /// To it, and to what it started.
    pub(crate) fn signal_all(&self, signal: Signal) {
        for pid in self.processes() {
            // It can only have ended.
            let _ = kill_process(pid, signal);
        }
    }

    fn signal(&self, signal: Signal) {
        // It can only have ended.
        let _ = kill_process(self.pid, signal);
    }

    /// It, and for PostgreSQL those that work for it.
    fn processes(&self) -> Vec<Pid> {
        let mut all = vec![self.pid];
        if self.role == Role::Postgres {
            let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten();
            let pids = numbers
                .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
                .filter_map(Pid::from_raw);
            all.extend(pids.filter(|pid| parent(*pid) == Some(self.pid)));
        }
        all
    }

    /// MySQL itself, not MariaDB.
    pub(crate) fn is_mysql(&self) -> bool {
        self.words.first().is_some_and(|program| program.ends_with("/mysqld"))
    }

    /// Whether it would notice that its disk is full, and that it is not. Redis needs one only if it keeps its data. MySQL, which
    /// has a binary log where MariaDB has none, sleeps for a minute before it tries to write that again: a run would see nothing else.
    pub(crate) fn needs_disk(&self) -> bool {
        self.disk.is_some() && (self.role != Role::Redis || self.durable) && !self.is_mysql()
    }

    pub(crate) fn has_clock(&self) -> bool {
        self.clock.is_some()
    }

    /// Steps its wall clock.
    pub(crate) fn step_clock(&mut self, by_ms: i64) -> anyhow::Result<()> {
        self.step_ms += by_ms;
        if let Some(clock) = &self.clock {
            clock.step(self.step_ms)?;
        }
        Ok(())
    }

    /// Sets an option of its command line, which is followed by its value.
    pub(crate) fn set_option(&mut self, option: &str, values: &[&str]) {
        if let Some(at) = self.words.iter().position(|word| word == option) {
            let end = self.words[at + 1..].iter().position(|word| word.starts_with("--"));
            let end = end.map_or(self.words.len(), |end| at + 1 + end);
            self.words.drain(at..end);
        }
        if !values.is_empty() {
            self.words.push(option.to_owned());
            self.words.extend(values.iter().map(|&value| value.to_owned()));
        }
    }

    /// A program that lies beside the server's own, run by the same user.
    pub(crate) fn beside(&self, program: &str) -> Option<PathBuf> {
        let own = self.words.iter().map(Path::new).find(|word| word.ends_with("postgres"))?;
        Some(own.with_file_name(program))
    }

    /// The words before the server's program: those that make it another user's.
    pub(crate) fn as_its_user(&self, program: &Path) -> Command {
        if self.words.first().is_none_or(|word| word != "setpriv") {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command.args(self.words[1..].iter().take_while(|word| word.starts_with("--"))).arg(program);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.is_some() {
            // Its data is thrown away: there is nothing to be polite about.
            let _ = self.kill();
        } else {
            // A stopped server could not be ended by whoever started it.
            self.signal_all(Signal::CONT);
        }
    }
}

/// The fields of a process's status line behind its name, which may contain anything.
fn status(pid: Pid) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// A dead process that nobody has cleared away is not alive.
fn is_alive(pid: Pid) -> bool {
    status(pid).is_some_and(|fields| fields.first().is_some_and(|state| state != "Z"))
}

fn parent(pid: Pid) -> Option<Pid> {
    Pid::from_raw(status(pid)?.get(1)?.parse().ok()?)
}

/// A ZooKeeper server that ends, or finds its disk full, between making a log file and writing its header does not start again with it
/// (ZOOKEEPER-2332; seen with 3.8.0): an operator removes it. There is no transaction in it.
fn remove_logs_without_a_header(folder: &Path) -> anyhow::Result<()> {
    const HEADER: u64 = 16;
    let Ok(files) = std::fs::read_dir(folder.join("version-2")) else { return Ok(()) };
    for file in files {
        let file = file?;
        if file.file_name().to_string_lossy().starts_with("log.") && file.metadata()?.len() < HEADER {
            std::fs::remove_file(file.path())?;
        }
    }
    Ok(())
}
