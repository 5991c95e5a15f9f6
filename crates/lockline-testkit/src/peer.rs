//! Child processes that lock: one command a line on their stdin, one answer a line on their stdout.
//!
//! A command does not wait for the one before it, so that a peer can stand in line and be asked something else.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockline::fence::Fence;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command as Program};
use tokio::sync::oneshot;

use crate::setup::{SOON, soon};

/// What a peer is asked to do. `slot` is where it keeps the guard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Lock a name, exclusively.
    Lock {
        /// Where to keep the guard.
        slot: String,
        /// The lock.
        name: String,
        /// How long to wait; for ever if not said.
        wait: Option<Duration>,
        /// A shared owner identity to lock under.
        identity: Option<String>,
    },
    /// Lock one side of a read-write lock.
    LockSide {
        /// Where to keep the guard.
        slot: String,
        /// The lock.
        name: String,
        /// How long to wait.
        wait: Duration,
        /// The write side; else the read side.
        write: bool,
    },
    /// Release the guard in the slot.
    Release {
        /// The guard.
        slot: String,
    },
    /// Look at the guard in the slot, once.
    Look {
        /// The guard.
        slot: String,
    },
    /// Lock and release in turn, and check that nobody else is inside meanwhile.
    Spin {
        /// The lock.
        name: String,
        /// For how long.
        spin_for: Duration,
        /// A directory for the witness and the log.
        dir: String,
    },
    /// Fork, and tell what the child sees of the guard in the slot.
    Fork {
        /// The guard.
        slot: String,
    },
    /// The same with a client of the blocking API, made for the purpose.
    ForkBlocking {
        /// The lock to take.
        name: String,
    },
}

/// What a peer answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The lock is held.
    Locked {
        /// Its token.
        token: u64,
    },
    /// It would have had to wait longer.
    Busy,
    /// Done.
    Done,
    /// The guard is valid.
    Valid,
    /// The guard is lost.
    Lost {
        /// The word for the reason.
        reason: String,
    },
    /// How a spin went.
    Spun {
        /// How often it had the lock.
        turns: u32,
        /// How often somebody else was inside.
        violations: u32,
    },
    /// What a forked child said, a line each.
    Child {
        /// Its words.
        said: Vec<String>,
    },
    /// It failed.
    Failed {
        /// The kind of the error, and its message.
        error: String,
    },
}

/// A command with its number.
#[derive(Debug, Serialize, Deserialize)]
pub struct Numbered<T> {
    /// The number that the answer bears too.
    pub number: u64,
    /// The command or answer.
    pub what: T,
}

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>;

/// A child process with a client. Killed when it is dropped.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    stdin: ChildStdin,
    waiting: Waiting,
    last: u64,
}

/// The answer to a command that was sent.
#[derive(Debug)]
pub struct Asked(oneshot::Receiver<Answer>);

impl Asked {
    /// Waits for the answer, which must come soon.
    ///
    /// # Panics
    /// If it does not come.
    pub async fn answer(self) -> Answer {
        soon("the peer answers", self.0).await.expect("the peer lives")
    }

    /// Waits for the answer, which must be a lock.
    ///
    /// # Panics
    /// If it is not.
    pub async fn token(self) -> u64 {
        match self.answer().await {
            Answer::Locked { token } => token,
            other => panic!("the peer should hold the lock, but: {other:?}"),
        }
    }
}

impl Peer {
    /// Starts a process and has it connect.
    ///
    /// # Panics
    /// If it cannot be started.
    pub async fn start(program: &Path, url: &str, label: &str, lease: Duration) -> Peer {
        let mut child = Program::new(program)
            .args([url, label, &lease.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the test peer starts");
        let (stdin, stdout) =
            (child.stdin.take().expect("its stdin"), child.stdout.take().expect("its stdout"));
        let waiting = Waiting::default();
        tokio::spawn(hand_out(stdout, waiting.clone()));
        Peer { child, stdin, waiting, last: 0 }
    }

    /// Sends a command.
    ///
    /// # Panics
    /// If the peer is gone.
    pub async fn send(&mut self, what: Command) -> Asked {
        self.last += 1;
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(self.last, sender);
        let mut text = serde_json::to_vec(&Numbered { number: self.last, what }).expect("a command is JSON");
        text.push(b'\n');
        self.stdin.write_all(&text).await.expect("the peer listens");
        Asked(receiver)
    }

    /// Asks for a lock, without waiting for it.
    pub async fn ask_lock(&mut self, slot: &str, name: &str) -> Asked {
        self.send(Command::Lock { slot: slot.into(), name: name.into(), wait: None, identity: None }).await
    }

    /// Takes a lock, and gives its token.
    pub async fn lock(&mut self, slot: &str, name: &str) -> u64 {
        self.ask_lock(slot, name).await.token().await
    }

    /// Takes a lock under a shared identity.
    pub async fn lock_as(&mut self, slot: &str, name: &str, identity: &str) -> u64 {
        let command = Command::Lock {
            slot: slot.into(),
            name: name.into(),
            wait: None,
            identity: Some(identity.into()),
        };
        self.send(command).await.token().await
    }

    /// Releases a guard.
    pub async fn release(&mut self, slot: &str) -> Answer {
        self.send(Command::Release { slot: slot.into() }).await.answer().await
    }

    /// Looks at a guard.
    pub async fn look(&mut self, slot: &str) -> Answer {
        self.send(Command::Look { slot: slot.into() }).await.answer().await
    }

    /// Its process id.
    ///
    /// # Panics
    /// If it was killed.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("the signal is sent");
    }

    /// SIGSTOP: it does nothing any more, and does not know it.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGKILL, and waits until it is gone.
    ///
    /// # Panics
    /// If it does not go.
    pub async fn kill(mut self) {
        tokio::time::timeout(SOON, self.child.kill()).await.expect("it goes soon").expect("it goes");
    }
}

/// The token of an exclusive hold, as a resource sees it.
pub fn fence(token: u64) -> Fence {
    Fence::from_token(token)
}

/// Gives each answer to whoever waits for it. When the peer is gone, whoever waits is told by the closed channel.
async fn hand_out(stdout: ChildStdout, waiting: Waiting) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(text)) = lines.next_line().await {
        let answer: Numbered<Answer> = serde_json::from_str(&text).expect("a peer answers in JSON");
        let sender = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&answer.number);
        // Nobody waits for an answer whose test has gone on.
        sender.map(|sender| sender.send(answer.what));
    }
    waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
}
