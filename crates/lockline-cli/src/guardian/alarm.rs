//! The kernel kills the command's group in the moment the wrapper dies.
//!
//! The guardian would do so too, but it has to be woken and scheduled first, and on an engine that sees a process die
//! (SQLite) the next holder is woken by the same death. So nobody is to be woken: a pipe whose reading end has `O_ASYNC`,
//! the command's group as its owner and SIGKILL as its signal. When its last writing end closes, the kernel sends that
//! signal to the whole group. Only the wrapper has a writing end, and a dying process closes its descriptors before
//! anybody is told that it died. The guardian keeps the reading end open: with both ends gone there is no signal.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader};
use std::os::fd::{AsRawFd, RawFd};

use nix::unistd::Pid;

#[derive(Debug)]
pub(super) struct Alarm {
    ear: PipeReader,
    /// Closed by the kernel when this process dies.
    line: Option<File>,
}

impl Alarm {
    /// Neither connected nor armed yet.
    pub(super) fn new() -> io::Result<Alarm> {
        let (ear, _) = io::pipe()?;
        Ok(Alarm { ear, line: None })
    }

    /// Opens the writing end, after the guardian was forked: it would have inherited one, and until it is first scheduled
    /// and closes it, the death of the wrapper would go unnoticed. Without `/proc` there is no alarm, but neither
    /// does anybody see that a process died.
    pub(super) fn connect(&mut self) {
        let end = format!("/proc/self/fd/{}", self.ear.as_raw_fd());
        self.line = OpenOptions::new().write(true).open(end).ok();
    }

    /// The descriptor to be armed, and kept open by the guardian.
    pub(super) fn descriptor(&self) -> RawFd {
        self.ear.as_raw_fd()
    }

    /// From now on nothing happens when this process ends: what the command left running may go on.
    #[allow(unsafe_code)]
    pub(super) fn disarm(&self) {
        // SAFETY: takes numbers only, and the descriptor is open for as long as `self` is there.
        unsafe { libc::fcntl(self.ear.as_raw_fd(), libc::F_SETFL, 0) };
    }
}

/// `F_SETSIG` of `fcntl(2)`, which libc has no name for: 10 wherever Linux runs Rust.
#[cfg(target_os = "linux")]
const SET_SIGNAL: libc::c_int = 10;

/// Arms an alarm for a group that exists. Makes system calls only, so it may be called between fork and exec. Where
/// the kernel knows no such thing the guardian alone is there.
#[allow(unsafe_code)]
#[cfg(target_os = "linux")]
pub(super) fn arm(descriptor: RawFd, group: Pid) {
    // SAFETY: each call takes numbers only. A wrong descriptor would be an error, which changes nothing.
    unsafe {
        // The signal before the owner, the owner before the switch: a half-armed alarm must not send SIGIO.
        libc::fcntl(descriptor, SET_SIGNAL, libc::SIGKILL);
        libc::fcntl(descriptor, libc::F_SETOWN, -group.as_raw());
        libc::fcntl(descriptor, libc::F_SETFL, libc::O_ASYNC);
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn arm(_: RawFd, _: Pid) {}
