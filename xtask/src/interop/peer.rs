//! Processes that lock on command: other clients' programs, and ours.
//!
//! Other clients' programs read a line and answer with one:
//!
//! | command | answer |
//! |---|---|
//! | (started) | `ready` |
//! | `lock NAME LEASE_MS WAIT_MS` | `held` or `busy` |
//! | `unlock NAME` | `free`, or `lost` if it did not hold it |
//! | `extend NAME LEASE_MS` | `held` or `lost` |
//! | `spin NAME FOR_MS WITNESS` | how often it had the lock, and how often somebody else was inside |
//!
//! While it holds the lock, a spinner makes the file WITNESS, which must not be there, and removes it again. What only one
//! client can do has words of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// How long any answer may take: a wait of a test, and then some for a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(40);

/// A process with a line in and a line out. Killed when it is dropped.
#[derive(Debug)]
struct Talker {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Talker {
    fn start(command: &mut Command) -> Result<Talker> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", crate::shell::shown(command)))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (sender, lines) = channel();
        let stdout = BufReader::new(stdout.context("its answers")?);
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Talker { child, stdin: stdin.context("its commands")?, lines })
    }

    fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush()).context("the process is gone")
    }

    fn hear(&mut self) -> Result<String> {
        self.lines.recv_timeout(PATIENCE).context("no answer")
    }

    fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Another client.
#[derive(Debug)]
pub(crate) struct Peer(Talker);

impl Peer {
    /// Starts its program, and waits until it is ready.
    pub(crate) fn start(command: &mut Command) -> Result<Peer> {
        let mut talker = Talker::start(command)?;
        let first = talker.hear()?;
        ensure!(first == "ready", "it is not ready: {first}");
        Ok(Peer(talker))
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&mut self, command: &str) -> Result<String> {
        self.0.say(command)?;
        self.0.hear()
    }

    /// Asks, and fails unless the answer is this.
    pub(crate) fn expect(&mut self, command: &str, answer: &str) -> Result<()> {
        let got = self.ask(command)?;
        ensure!(got == answer, "{command:?} was answered {got:?}, not {answer:?}");
        Ok(())
    }

    /// Asks, and does not wait: [`answer`](Peer::answer) does.
    pub(crate) fn begin(&mut self, command: &str) -> Result<()> {
        self.0.say(command)
    }

    /// The answer to what was begun.
    pub(crate) fn answer(&mut self) -> Result<String> {
        self.0.hear()
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.0.kill()
    }
}

/// Our side: `lockline-test-peer`, see `lockline_testkit::peer`.
#[derive(Debug)]
pub(crate) struct Lockline(Talker);

impl Lockline {
    /// A client with this lease on the engine at this address.
    pub(crate) fn start(program: &Path, url: &str, lease: Duration) -> Result<Lockline> {
        let lease = lease.as_millis().to_string();
        Ok(Lockline(Talker::start(Command::new(program).args([url, "interop", &lease]))?))
    }

    /// Asks for a lock, and does not wait for the answer.
    pub(crate) fn begin(&mut self, name: &str, wait: Duration) -> Result<()> {
        let wait = json!({ "secs": wait.as_secs(), "nanos": wait.subsec_nanos() });
        self.send(&json!({ "Lock": { "slot": name, "name": name, "wait": wait, "identity": null } }))
    }

    /// What was answered to [`begin`](Lockline::begin): the token, or `None` if it was busy.
    pub(crate) fn answer(&mut self) -> Result<Option<u64>> {
        let answer = self.receive()?;
        match answer.get("Locked").and_then(|locked| locked.get("token")).and_then(Value::as_u64) {
            Some(token) => Ok(Some(token)),
            None if answer == "Busy" => Ok(None),
            None => bail!("{answer}"),
        }
    }

    /// Asks for a lock; `None` if it was busy.
    pub(crate) fn lock(&mut self, name: &str, wait: Duration) -> Result<Option<u64>> {
        self.begin(name, wait)?;
        self.answer()
    }

    /// Asks for one side of a read-write lock; `None` if it was busy.
    pub(crate) fn side(&mut self, name: &str, write: bool, wait: Duration) -> Result<Option<u64>> {
        let wait = json!({ "secs": wait.as_secs(), "nanos": wait.subsec_nanos() });
        self.send(&json!({ "LockSide": { "slot": name, "name": name, "wait": wait, "write": write } }))?;
        self.answer()
    }

    /// Gets a lock, and fails if it is busy.
    pub(crate) fn hold(&mut self, name: &str) -> Result<u64> {
        self.lock(name, Duration::from_secs(20))?.context("we found it busy")
    }

    /// Fails unless the lock is busy, for so long.
    pub(crate) fn is_busy(&mut self, name: &str, wait: Duration) -> Result<()> {
        ensure!(self.lock(name, wait)?.is_none(), "we got what another holds");
        Ok(())
    }

    /// Lets go.
    pub(crate) fn release(&mut self, name: &str) -> Result<()> {
        self.send(&json!({ "Release": { "slot": name } }))?;
        let answer = self.receive()?;
        ensure!(answer == "Done", "{answer}");
        Ok(())
    }

    /// Fails unless the lock is still held.
    pub(crate) fn is_valid(&mut self, name: &str) -> Result<()> {
        self.send(&json!({ "Look": { "slot": name } }))?;
        let answer = self.receive()?;
        ensure!(answer == "Valid", "our guard: {answer}");
        Ok(())
    }

    /// Takes turns; [`spun`](Lockline::spun) tells how it went.
    pub(crate) fn spin(&mut self, name: &str, spin_for: Duration, dir: &Path) -> Result<()> {
        let spin_for = json!({ "secs": spin_for.as_secs(), "nanos": spin_for.subsec_nanos() });
        self.send(&json!({ "Spin": { "name": name, "spin_for": spin_for, "dir": dir } }))
    }

    /// How often we had the lock, and how often somebody else was inside.
    pub(crate) fn spun(&mut self) -> Result<(u64, u64)> {
        let answer = self.receive()?;
        let count = |of: &str| answer.get("Spun").and_then(|spun| spun.get(of)).and_then(Value::as_u64);
        count("turns").zip(count("violations")).with_context(|| answer.to_string())
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.0.kill()
    }

    fn send(&mut self, command: &Value) -> Result<()> {
        self.0.say(&json!({ "number": 1, "what": command }).to_string())
    }

    fn receive(&mut self) -> Result<Value> {
        let line = self.0.hear()?;
        let mut answer: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
        Ok(answer["what"].take())
    }
}

/// Both take the lock again and again, as fast as they can; a file says whether two were inside. How many turns each had.
pub(crate) fn take_turns(we: &mut Lockline, they: &mut Peer, name: &str) -> Result<(u64, u64)> {
    let (time, dir) = (Duration::from_secs(3), tempfile::tempdir()?);
    they.begin(&format!("spin {name} {} {}", time.as_millis(), dir.path().join("inside").display()))?;
    we.spin(name, time, dir.path())?;
    let (ours, seen) = we.spun()?;
    let answer = they.answer()?;
    let (theirs, found) = answer.split_once(' ').with_context(|| answer.clone())?;
    ensure!(seen == 0 && found == "0", "two were inside: {seen} and {found} times");
    let theirs = theirs.parse()?;
    ensure!(ours > 0 && theirs > 0, "{ours} turns for us, {theirs} for them");
    Ok((ours, theirs))
}

/// How long it takes until something has happened.
pub(crate) fn timed<T>(what: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = Instant::now();
    Ok((what()?, start.elapsed()))
}
