//! The command: in a process group of its own, with the terminal if we have it, and never without its wrapper.
//!
//! # Stop and continue
//! The keyboard's stop signal reaches the command's group, not the wrapper. When the command stops, the wrapper takes the
//! terminal back and stops its own group as well, so that the shell gets its prompt. A stop signal for the wrapper alone is
//! passed on to the command, and when that has stopped, the wrapper stops, too: it must not be the only one. While both
//! are stopped nobody renews: the lock lasts as long as its lease, and the guardian ends the command with it. When the
//! wrapper is continued, it looks at the lock before it continues the command.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgrp, getpid, getppid};

use crate::exit::{Failure, code};
use crate::guardian::Introduction;
use crate::members::{self, Member};
use crate::output::visible;
use crate::platform::{Seen, look_at_child};
use crate::signals::{Stopping, stop_ourselves};
use crate::terminal::Terminal;

/// The running command.
#[derive(Debug)]
pub(crate) struct Child {
    process: std::process::Child,
    group: Pid,
    terminal: Option<Terminal>,
    /// Whether the terminal was handed over.
    in_foreground: bool,
}

/// What happened to the command.
#[derive(Debug)]
pub(crate) enum Change {
    Ended(ExitStatus),
    /// It was stopped by the terminal.
    Stopped,
    /// Nothing of interest.
    None,
}

impl Child {
    /// Starts the command. To be called on the main thread: the parent-death signal is sent when the *thread* ends
    /// that started it.
    pub(crate) fn start(
        words: &[OsString],
        environment: &[(&str, &str)],
        introduction: Introduction,
    ) -> Result<Child, Failure> {
        let (program, arguments) = words.split_first().ok_or_else(|| {
            Failure::usage("no command is given").hint("it stands after `--`: lockline run NAME -- COMMAND")
        })?;
        let terminal = Terminal::of_session();
        let in_foreground = terminal.as_ref().is_some_and(Terminal::is_ours);
        let mut command = Command::new(program);
        command.args(arguments).envs(environment.iter().copied()).process_group(0);
        prepare(&mut command, terminal.as_ref().filter(|_| in_foreground), introduction);
        let started = command.spawn();
        let process = started.map_err(|error| {
            if let Some(terminal) = terminal.as_ref().filter(|_| in_foreground) {
                terminal.give_to(getpgrp());
            }
            cannot_run(&program.to_string_lossy(), &error)
        })?;
        let group = Pid::from_raw(process.id().cast_signed());
        Ok(Child { process, group, terminal, in_foreground })
    }

    pub(crate) fn group(&self) -> Pid {
        self.group
    }

    /// Sends a signal to the command and everything it started in its group.
    ///
    /// # Errors
    /// When it reached nobody although somebody is there: processes of other users.
    pub(crate) fn send(&self, signal: Signal) -> Result<(), Errno> {
        match killpg(self.group, signal) {
            // A group that is gone needs no signal.
            Err(Errno::ESRCH) => Ok(()),
            sent => sent,
        }
    }

    /// Whoever of its group this process may not send signals to.
    pub(crate) fn out_of_reach(&self) -> Vec<Member> {
        let seen: Vec<Member> = members::of(self.group).into_iter().filter(Member::is_out_of_reach).collect();
        if seen.is_empty() && killpg(self.group, None) == Err(Errno::EPERM) { self.hidden() } else { seen }
    }

    /// Whoever of its group still runs. Zombies do not: nobody may ever reap them in a container without an init.
    pub(crate) fn left_running(&self) -> Vec<Member> {
        match killpg(self.group, None) {
            Err(Errno::ESRCH) => Vec::new(),
            Err(_) => {
                let seen = members::of(self.group);
                if seen.is_empty() { self.hidden() } else { seen }
            }
            Ok(()) => members::of(self.group),
        }
    }

    /// A `/proc` that hides other users' processes (`hidepid`) shows none of them, but they are there.
    fn hidden(&self) -> Vec<Member> {
        vec![Member { pid: self.group.as_raw(), command: "hidden by /proc".to_owned(), uid: None }]
    }

    /// What happened to it since it was last asked.
    pub(crate) fn change(&mut self) -> io::Result<Change> {
        if let Some(status) = self.process.try_wait()? {
            return Ok(Change::Ended(status));
        }
        Ok(match look_at_child(self.group) {
            Seen::Stopped(Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU) => Change::Stopped,
            Seen::Ended(status) => Change::Ended(status),
            Seen::Stopped(_) | Seen::Nothing => Change::None,
        })
    }

    /// Stops ourselves after the command was stopped. Returns when we are continued, or soon if nobody could do so: a
    /// group that no shell looks after is not stopped by this signal.
    pub(crate) async fn stop_with_it(&mut self, whom: Stopping) {
        self.take_terminal_back();
        stop_ourselves(whom);
        // Being stopped and this sleep overlap; it only keeps an orphaned group from turning in circles.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }

    /// Continues the command, with the terminal if our group has it.
    pub(crate) fn resume(&mut self) -> Result<(), Errno> {
        if let Some(terminal) = self.terminal.as_ref().filter(|terminal| terminal.is_ours()) {
            terminal.give_to(self.group);
            self.in_foreground = true;
        }
        self.send(Signal::SIGCONT)
    }

    /// Takes the keyboard from a group that has it.
    pub(crate) fn take_terminal_back(&mut self) {
        if let Some(terminal) = &self.terminal
            && terminal.foreground() == Some(self.group)
        {
            terminal.give_to(getpgrp());
        }
        self.in_foreground = false;
    }

    /// The exit code of the ended command, after the terminal was taken back.
    pub(crate) fn settle(&mut self, status: ExitStatus) -> u8 {
        let had_keyboard = self.in_foreground;
        self.take_terminal_back();
        if let Some(signal) = status.signal() {
            // What the user typed was meant for the whole job: the script or pipeline around us as well.
            if had_keyboard && let Ok(typed @ (Signal::SIGINT | Signal::SIGQUIT)) = Signal::try_from(signal) {
                // Those of it that are another user's heard the keyboard themselves, or are not ours to end.
                let _ = killpg(getpgrp(), typed);
            }
            return by_signal(signal);
        }
        status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
    }
}

/// As shells have it.
pub(crate) fn by_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

fn cannot_run(program: &str, error: &io::Error) -> Failure {
    let program = visible(program);
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(code::NOT_FOUND, format!("{program}: command not found"))
            .hint("check its name and PATH; what a shell would read has to be given to one: -- sh -c '…'"),
        _ => Failure::new(code::NOT_EXECUTABLE, format!("{program}: cannot be executed: {error}")).hint(
            "check that it is a program, or a script with a first line #!, and that this user may run it",
        ),
    }
}

/// What happens in the child between fork and exec, where it is in its new group already.
#[allow(unsafe_code)]
fn prepare(command: &mut Command, terminal: Option<&Terminal>, introduction: Introduction) {
    let wrapper = getpid();
    let terminal: Option<Terminal> = terminal.and_then(Terminal::again);
    let between_fork_and_exec = move || {
        #[cfg(target_os = "linux")]
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        // If the wrapper was killed before that line, no signal will come.
        if getppid() != wrapper {
            return Err(Errno::ESRCH.into());
        }
        // From here on the guardian kills this group if need be: before the command can have started anything.
        introduction.introduce()?;
        if let Some(terminal) = &terminal {
            terminal.give_to(getpid());
        }
        Ok(())
    };
    // SAFETY: only the calling thread exists in the forked child, so the closure must not allocate, lock or run
    // anything that might. It makes system calls (prctl, getppid, getpid, fcntl, write, sigprocmask, tcsetpgrp), which
    // are safe there, and builds errors from numbers.
    unsafe { command.pre_exec(between_fork_and_exec) };
}
