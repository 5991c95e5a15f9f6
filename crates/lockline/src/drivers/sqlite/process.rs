//! Which process a claim belongs to, and whether it still lives.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rusqlite::Row;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::{Interest, unix::AsyncFd};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

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
    /// It runs; this descriptor becomes readable when it ends.
    Alive(OwnedFd),
    /// It is gone for certain.
    Dead,
    /// It cannot be told: another pid namespace, an old kernel, a hidden `/proc`. Only its lease counts.
    Unknown,
}

impl Process {
    pub(super) fn this() -> Process {
        let pid = std::process::id();
        let nonce = ClaimId::random().as_u128();
        let ns = std::fs::metadata("/proc/self/ns/pid").map_or(0, |ns| ns.ino());
        match stat("self") {
            // A `/proc` of another namespace shows this process under another pid: no pid there means what it says.
            Some(stat) if stat.pid == pid => Process { nonce, pid, start: stat.start, pid_ns: ns },
            _ => Process { nonce, pid, start: 0, pid_ns: 0 },
        }
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
    ///
    /// A missing `/proc/PID` proves nothing (`hidepid` hides other users' processes), and a zombie may be the leader
    /// of threads that still run; a pidfd knows both.
    pub(super) fn look(&self, me: &Process) -> Life {
        if self.pid_ns == 0 || self.pid_ns != me.pid_ns {
            return Life::Unknown;
        }
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Life::Unknown };
        let fd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(Errno::SRCH) => return Life::Dead,
            Err(_) => return Life::Unknown,
        };
        // In this order: if the start time is right after the descriptor was opened, the descriptor is of that process.
        match stat(&self.pid.to_string()) {
            Some(stat) if stat.start != self.start => Life::Dead,
            _ if has_ended(&fd) => Life::Dead,
            Some(_) => Life::Alive(fd),
            None => Life::Unknown,
        }
    }
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

struct Stat {
    pid: u32,
    start: u64,
}

fn stat(pid: &str) -> Option<Stat> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The command's name stands in parentheses and may itself contain spaces and parentheses.
    let (pid, rest) = text.split_once(' ')?;
    let after_name = &rest[rest.rfind(')')? + 1..];
    // The start time is field 22; the first one after the name is field 3.
    let start = after_name.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some(Stat { pid: pid.parse().ok()?, start })
}

/// The processes whose end this one waits for. Bounded: a descriptor each.
#[derive(Debug)]
pub(super) struct Watches {
    me: Process,
    runtime: Handle,
    watched: HashMap<u128, (Arc<OwnedFd>, AbortHandle)>,
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
        if let Some((fd, _)) = self.watched.get(&process.nonce) {
            return has_ended(fd);
        }
        match process.look(&self.me) {
            Life::Dead => true,
            Life::Unknown => false,
            Life::Alive(fd) => {
                self.watch(process, fd, died);
                false
            }
        }
    }

    fn watch(&mut self, process: Process, fd: OwnedFd, died: impl FnOnce() + Send + 'static) {
        self.watched.retain(|_, (_, task)| !task.is_finished());
        if self.watched.len() >= MOST_WATCHED {
            // Any one goes: who is not watched is looked at whenever one of our claims is told to wait.
            if let Some(nonce) = self.watched.keys().next().copied() {
                self.forget(nonce);
            }
        }
        let fd = Arc::new(fd);
        let waiting = fd.clone();
        let task = self.runtime.spawn(async move {
            // Deprecated for descriptors that may be closed while they are registered, in favour of an `unsafe` one.
            // This one lives as long as its `Arc`.
            #[allow(deprecated)]
            let Ok(ended) = AsyncFd::with_interest(waiting, Interest::READABLE) else { return };
            if ended.readable().await.is_ok() {
                died();
            }
        });
        self.watched.insert(process.nonce, (fd, task.abort_handle()));
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
