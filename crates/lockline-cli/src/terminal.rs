//! The terminal's foreground: handed to the command, and taken back.

use std::fs::{File, OpenOptions};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The controlling terminal.
#[derive(Debug)]
pub(crate) struct Terminal(File);

impl Terminal {
    /// The terminal of this session, if there is one.
    pub(crate) fn of_session() -> Option<Terminal> {
        OpenOptions::new().read(true).write(true).open("/dev/tty").ok().map(Terminal)
    }

    /// A second handle on it.
    pub(crate) fn again(&self) -> Option<Terminal> {
        self.0.try_clone().ok().map(Terminal)
    }

    /// Whether this process group is the one the keyboard talks to.
    pub(crate) fn is_ours(&self) -> bool {
        self.foreground() == Some(getpgrp())
    }

    pub(crate) fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.0).ok()
    }

    /// Makes a group the foreground. Whoever does this from the background is stopped by SIGTTOU unless it is blocked.
    /// Makes system calls only, so it may be called between fork and exec.
    pub(crate) fn give_to(&self, group: Pid) {
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        let blocked = stop.thread_block().is_ok();
        // The terminal may have gone away; then there is no foreground to have.
        let _ = tcsetpgrp(&self.0, group);
        if blocked {
            let _ = stop.thread_unblock();
        }
    }
}
