//! The guardian: a tiny process that is there before the command is, and stops it when the wrapper no longer can.
//!
//! The wrapper tells it through a pipe until when the lock is certainly valid, again with every renewal. If it hears
//! nothing until shortly before that moment (the wrapper is stopped, in a debugger, hung), it asks the command's group to
//! end, and kills it before anybody else can have the lock. If the pipe closes without a goodbye, the wrapper was
//! killed, and the group is killed at once; see also [`alarm`].
//!
//! There is no moment in which a killed or stopped wrapper leaves a command that nobody watches. The guardian exists and knows
//! the deadline before the command is forked; the forked process tells it its group and arms the alarm before it
//! becomes the command; and it has the pipe open until then, so the pipe cannot end before the group is known.
//!
//! It is a fork without an exec: starting a program anew would cost more than the rest of a short run.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::{AsRawFd, RawFd};

use lockline::time::{BootClock, Time};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{ForkResult, Pid, getpid};

pub(crate) use self::timing::Timing;

use self::alarm::Alarm;
use self::word::Word;

mod alarm;
mod timing;
mod watch;
mod word;

/// A guardian at work. Dropping it without [`dismiss`](Guardian::dismiss) sets it off.
#[derive(Debug)]
pub(crate) struct Guardian {
    line: PipeWriter,
    alarm: Alarm,
    process: Pid,
    timing: Timing,
    valid_until: Time,
    /// No later than this the command is killed, however long the lock is valid.
    latest: Time,
    stopping: bool,
}

impl Guardian {
    /// Starts one for a command that does not exist yet.
    pub(crate) fn start(timing: Timing, valid_until: Time) -> io::Result<Guardian> {
        let (ear, line) = io::pipe()?;
        let mut alarm = Alarm::new()?;
        let process = fork(&ear, &alarm)?;
        alarm.connect();
        // A guardian that was stopped reads nothing: that must not stop the wrapper as well.
        set_nonblocking(&line)?;
        let latest = Time::from_micros(u64::MAX);
        let mut guardian = Guardian { line, alarm, process, timing, valid_until, latest, stopping: false };
        guardian.tell(guardian.deadline())?;
        Ok(guardian)
    }

    /// What the command's process does before it becomes the command.
    pub(crate) fn introduction(&self) -> Introduction {
        Introduction { line: self.line.as_raw_fd(), alarm: self.alarm.descriptor() }
    }

    pub(crate) fn timing(&self) -> Timing {
        self.timing
    }

    /// For a lease that turned out to be longer. Told with the next renewal.
    pub(crate) fn set_timing(&mut self, timing: Timing) {
        self.timing = timing;
    }

    /// When the command is killed, as the guardian was last told.
    pub(crate) fn kill_at(&self) -> Time {
        self.timing.kill_at(self.valid_until).min(self.latest)
    }

    /// Whether it has perhaps asked the command to end already, because it heard nothing for too long.
    pub(crate) fn may_have_asked(&self) -> bool {
        !self.stopping && BootClock.now() >= self.timing.guardian_asks_at(self.valid_until)
    }

    /// Tells it until when the lock is valid, if that is news. A guardian that is gone is replaced.
    pub(crate) fn renewed(&mut self, group: Pid, valid_until: Time) -> io::Result<()> {
        // The same deadline, read twice, differs by the moment between reading it and the clock.
        if valid_until.since(self.valid_until).as_micros() < 1000 {
            return Ok(());
        }
        self.valid_until = valid_until;
        self.tell_or_replace(group)
    }

    /// The wrapper itself has asked the command to end; the guardian only kills it if it is still there then.
    pub(crate) fn stopping(&mut self, group: Pid, latest: Time) -> io::Result<()> {
        self.stopping = true;
        self.latest = latest;
        self.tell_or_replace(group)
    }

    fn tell_or_replace(&mut self, group: Pid) -> io::Result<()> {
        match self.tell(self.deadline()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.replace(group),
            told => told,
        }
    }

    fn replace(&mut self, group: Pid) -> io::Result<()> {
        let _ = waitpid(self.process, Some(WaitPidFlag::WNOHANG));
        let new = Guardian::start(self.timing, self.valid_until)?;
        alarm::arm(new.alarm.descriptor(), group);
        let old = std::mem::replace(self, Guardian { latest: self.latest, stopping: self.stopping, ..new });
        // Its alarm would go off with its last descriptor.
        old.alarm.disarm();
        self.tell(Word::Group(group))?;
        self.tell(self.deadline())
    }

    /// The command has ended, or may go on alone: the guardian goes home.
    pub(crate) fn dismiss(mut self) {
        self.alarm.disarm();
        // It is not waited for: the process ends now, and init takes care of it.
        let _ = self.tell(Word::Goodbye);
    }

    fn deadline(&self) -> Word {
        let never = Time::from_micros(u64::MAX);
        let ask_at = if self.stopping {
            never
        } else {
            self.timing.guardian_asks_at(self.valid_until).min(self.latest)
        };
        Word::Until { ask_at, kill_at: self.kill_at() }
    }

    fn tell(&mut self, word: Word) -> io::Result<()> {
        match self.line.write(&word.to_bytes()) {
            // Full: the guardian was stopped and has thousands of words to read. It is told again with the next renewal.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            written => written.map(drop),
        }
    }
}

/// How the command's process makes itself known: numbers only, because it does so between fork and exec.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Introduction {
    line: RawFd,
    alarm: RawFd,
}

impl Introduction {
    /// Tells the guardian the group of the calling process, which leads it, and arms the alarm.
    #[allow(unsafe_code)]
    pub(crate) fn introduce(self) -> Result<(), Errno> {
        let group = getpid();
        alarm::arm(self.alarm, group);
        let bytes = Word::Group(group).to_bytes();
        // SAFETY: the bytes are there for the whole call, and the descriptor was open in the wrapper when it forked.
        let written = unsafe { libc::write(self.line, bytes.as_ptr().cast(), bytes.len()) };
        Errno::result(written).map(drop)
    }
}

#[allow(unsafe_code)]
fn fork(ear: &PipeReader, alarm: &Alarm) -> io::Result<Pid> {
    let (ear, alarm) = (ear.as_raw_fd(), alarm.descriptor());
    let mut before = SigSet::empty();
    // In the guardian no signal is ever heard: the handlers are the wrapper's, and so is the pipe they write to.
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;
    // SAFETY: perhaps this process has other threads, which do not exist in the fork and may have held any lock,
    // the allocator's included. `be_guardian` therefore makes system calls and computes with numbers, nothing else,
    // and never returns: see there.
    let forked = unsafe { nix::unistd::fork() };
    if let Ok(ForkResult::Child) = forked {
        watch::be_guardian(ear, alarm);
    }
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    match forked? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => unreachable!("the guardian does not return"),
    }
}

#[allow(unsafe_code)]
fn set_nonblocking(line: &PipeWriter) -> io::Result<()> {
    // SAFETY: takes numbers only, and the descriptor is open for as long as `line` is there.
    let set = unsafe { libc::fcntl(line.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    Errno::result(set)?;
    Ok(())
}
