//! What the guardian's process does. It is a fork without an exec, perhaps of a process with several threads: everything
//! here makes system calls and computes with numbers, and never allocates, locks or unwinds.

use std::os::fd::{AsFd, BorrowedFd, RawFd};

use lockline::time::{BootClock, Time};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, read, setsid};

use super::word::{SIZE, Word};

/// A sleeping machine stops the clock that `poll` counts on, but not leases: so it is looked at the boot clock this often.
const STRETCH_MS: u64 = 1000;
/// How often a group that was killed is looked at, and killed again: at first, and later on.
const AGAIN_MS: u16 = 100;
const AGAIN_LATER_MS: u16 = 1000;
const SOON: u32 = 20;
const NEVER: Time = Time::from_micros(u64::MAX);
/// Seen by `ps` and `pkill`: whoever kills all processes named lockline must not kill this one.
#[cfg(target_os = "linux")]
const NAME: &std::ffi::CStr = c"guardian";

/// Becomes the guardian: keeps `ear` and `alarm` and nothing else, so that nobody waits in vain for the end of a stream
/// or of a connection that this process happens to have open.
#[allow(unsafe_code)]
pub(super) fn be_guardian(ear: RawFd, alarm: RawFd) -> ! {
    // In a session of its own no terminal and no group's signal reaches it.
    let _ = setsid();
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_name(NAME);
    // SAFETY: system calls that take numbers or a constant string. The standard library opens descriptors 0 to 2 before
    // `main`, so neither of the two is among them, and both are open: the wrapper made them just before the fork.
    unsafe {
        // A directory that is the wrapper's to remove or unmount.
        libc::chdir(c"/".as_ptr());
        libc::dup2(ear, 0);
        libc::dup2(alarm, 1);
    }
    close_from(2);
    // SAFETY: descriptor 0 is the pipe's end since the line above, and stays so until the process ends.
    let ear = unsafe { BorrowedFd::borrow_raw(0) };
    Watch { group: None, ask_at: NEVER, kill_at: NEVER, asked: false }.until_dismissed(ear);
    // SAFETY: ends this process without running what the wrapper has registered for its own end.
    unsafe { libc::_exit(0) }
}

#[allow(unsafe_code)]
fn close_from(first: i32) {
    // SAFETY: closes descriptors of this process only, none of which is used after it: all that remains is 0 and 1.
    unsafe {
        #[cfg(target_os = "linux")]
        if libc::syscall(libc::SYS_close_range, first, i32::MAX, 0) == 0 {
            return;
        }
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        let most = i32::try_from(limit.rlim_cur).unwrap_or(i32::MAX).clamp(1024, 65_536);
        for descriptor in first..most {
            libc::close(descriptor);
        }
    }
}

struct Watch {
    group: Option<Pid>,
    ask_at: Time,
    kill_at: Time,
    asked: bool,
}

enum Heard {
    Word(Word),
    /// Nothing within that time.
    Nothing,
    /// Nobody is there to say anything.
    End,
}

impl Watch {
    fn until_dismissed(mut self, ear: BorrowedFd<'_>) {
        loop {
            let rest = self.next().since(BootClock.now()).as_micros().div_ceil(1000);
            let rest = u64::try_from(rest).unwrap_or(STRETCH_MS).min(STRETCH_MS);
            // Everything that was said is heard before anything is done: this process may itself have been stopped.
            match hear(ear, u16::try_from(rest).unwrap_or(AGAIN_LATER_MS)) {
                Heard::Word(Word::Goodbye) => return,
                Heard::Word(Word::Group(group)) => self.group = Some(group),
                Heard::Word(Word::Until { ask_at, kill_at }) => {
                    (self.ask_at, self.kill_at) = (ask_at, kill_at)
                }
                Heard::End => return self.kill(None),
                Heard::Nothing if BootClock.now() >= self.kill_at => return self.kill(Some(ear)),
                Heard::Nothing if !self.asked && BootClock.now() >= self.ask_at => self.ask(),
                Heard::Nothing => {}
            }
        }
    }

    fn next(&self) -> Time {
        if self.asked { self.kill_at } else { self.ask_at.min(self.kill_at) }
    }

    /// Asks the command to end while the lock is still its own.
    fn ask(&mut self) {
        self.asked = true;
        if let Some(group) = self.group {
            // Nobody is there to be told of a failure; what cannot be asked is killed soon.
            let _ = killpg(group, Signal::SIGTERM);
            // What is stopped cannot hear.
            let _ = killpg(group, Signal::SIGCONT);
        }
    }

    /// Kills the group until nothing is left of it: also what becomes killable later, as a command of another user that
    /// gives its rights up. The wrapper, if it is still there, may wake up and say goodbye.
    fn kill(self, mut ear: Option<BorrowedFd<'_>>) {
        let Some(group) = self.group else { return };
        let mut times = 0_u32;
        while killpg(group, Signal::SIGKILL) != Err(Errno::ESRCH) {
            times = times.saturating_add(1);
            let pause = if times < SOON { AGAIN_MS } else { AGAIN_LATER_MS };
            match ear {
                Some(open) => match hear(open, pause) {
                    Heard::Word(Word::Goodbye) => return,
                    Heard::End => ear = None,
                    _ => {}
                },
                None => _ = poll(&mut [], pause),
            }
        }
    }
}

fn hear(ear: BorrowedFd<'_>, within_ms: u16) -> Heard {
    let mut fds = [PollFd::new(ear.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::from(within_ms)) {
        Ok(0) | Err(Errno::EINTR | Errno::EAGAIN) => return Heard::Nothing,
        Ok(_) => {}
        Err(_) => return Heard::End,
    }
    let mut bytes = [0; SIZE];
    match read(ear, &mut bytes) {
        Ok(SIZE) => Word::from_bytes(&bytes).map_or(Heard::Nothing, Heard::Word),
        Err(Errno::EINTR | Errno::EAGAIN) => Heard::Nothing,
        // Unsure means that nobody is there.
        _ => Heard::End,
    }
}
