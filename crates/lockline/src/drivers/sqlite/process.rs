//! Which process a claim belongs to, and whether it still lives.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::Row;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::platform::{self, Alive};
use super::rows::{bits_at, uint_at};
use crate::line::ClaimId;

/// Each costs a descriptor, and lines are short of holders, not of waiters.
const MOST_WATCHED: usize = 64;

/// One open driver of one process. The nonce tells two drivers of a process apart, and addresses the bell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) nonce: u128,
    pub(super) pid: u32,
    /// When the process started, in ticks after boot: a pid is used again, the pair is not.
    pub(super) start: u64,
    /// The pid namespace the pid means something in; 0 if it could not be told, and then nobody judges by it.
    pub(super) pid_ns: u64,
}

/// What can be said about a process.
#[derive(Debug)]
pub(super) enum Life {
    /// It runs, and can be watched.
    Alive(Alive),
    /// It is gone for certain.
    Dead,
    /// It cannot be told: another pid namespace, an old kernel, a hidden `/proc`. Only its lease counts.
    Unknown,
}

impl Process {
    pub(super) fn this() -> Process {
        let pid = std::process::id();
        let nonce = ClaimId::random().as_u128();
        let (start, pid_ns) = platform::this_process(pid);
        Process { nonce, pid, start, pid_ns }
    }

    /// From this column and the three behind it.
    pub(super) fn at(row: &Row<'_>, column: usize) -> rusqlite::Result<Process> {
        Ok(Process {
            nonce: bits_at(row, column)?,
            pid: row.get(column + 1)?,
            start: uint_at(row, column + 2)?,
            pid_ns: uint_at(row, column + 3)?,
        })
    }

    /// Looks whether it lives. *Dead* is said only on proof, because its claims are dropped on it.
    pub(super) fn look(&self, me: &Process) -> Life {
        if self.pid_ns == 0 || self.pid_ns != me.pid_ns {
            return Life::Unknown;
        }
        platform::look(self.pid, self.start)
    }
}

/// The processes whose end this one waits for. Bounded: a descriptor each.
#[derive(Debug)]
pub(super) struct Watches {
    me: Process,
    runtime: Handle,
    watched: HashMap<u128, (Arc<Alive>, AbortHandle)>,
}

impl Watches {
    pub(super) fn new(me: Process, runtime: Handle) -> Watches {
        Watches { me, runtime, watched: HashMap::new() }
    }

    /// Whether the process is dead for certain. If it lives, `died` runs when it ends.
    pub(super) fn is_dead(&mut self, process: Process, died: impl FnOnce() + Send + 'static) -> bool {
        if process.nonce == self.me.nonce {
            return false;
        }
        if let Some((alive, _)) = self.watched.get(&process.nonce) {
            return alive.has_ended();
        }
        match process.look(&self.me) {
            Life::Dead => true,
            Life::Unknown => false,
            Life::Alive(alive) => {
                self.watch(process, alive, died);
                false
            }
        }
    }

    fn watch(&mut self, process: Process, alive: Alive, died: impl FnOnce() + Send + 'static) {
        self.watched.retain(|_, (_, task)| !task.is_finished());
        if self.watched.len() >= MOST_WATCHED {
            // Any one goes: who is not watched is looked at whenever one of our claims is told to wait.
            if let Some(nonce) = self.watched.keys().next().copied() {
                self.forget(nonce);
            }
        }
        let alive = Arc::new(alive);
        let ended = alive.clone().ended();
        let task = self.runtime.spawn(async move {
            if ended.await {
                died();
            }
        });
        self.watched.insert(process.nonce, (alive, task.abort_handle()));
    }

    pub(super) fn forget(&mut self, nonce: u128) {
        if let Some((_, task)) = self.watched.remove(&nonce) {
            task.abort();
        }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.watched.values().for_each(|(_, task)| task.abort());
    }
}
