//! The guardian: a tiny process that outlives a killed wrapper, and then kills the command with all its children.
//!
//! The parent-death signal reaches only the command itself, not what it started. So the wrapper starts this program once
//! more, with a pipe of which only the wrapper holds the other end. A byte on it says that all is well; its end
//! without one says that the wrapper was killed.

use std::ffi::OsStr;
use std::io::{self, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Short commands do not pay for a guardian.
pub(crate) const STARTS_AFTER: Duration = Duration::from_millis(100);

/// How the program is called as a guardian. Nobody writes this by chance.
const CALLED: &str = "__lockline-guardian";
const GOODBYE: &[u8] = b".";

/// A guardian at work. Dropping it without [`dismiss`](Guardian::dismiss) sets it off.
#[derive(Debug)]
pub(crate) struct Guardian {
    line: PipeWriter,
}

impl Guardian {
    /// Starts one for a process group.
    pub(crate) fn start(group: Pid) -> io::Result<Guardian> {
        let (ear, line) = io::pipe()?;
        Command::new("/proc/self/exe")
            .arg(CALLED)
            .arg(group.to_string())
            .stdin(ear)
            // It must not keep open what others wait to be closed.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            // Nor die with the wrapper when a whole group is killed.
            .process_group(0)
            .spawn()?;
        Ok(Guardian { line })
    }

    /// The command has ended: the guardian goes home.
    pub(crate) fn dismiss(mut self) {
        // It is not waited for: the process ends now, and init takes care of it.
        let _ = self.line.write_all(GOODBYE);
    }
}

/// If this process was started as a guardian: does its work.
pub(crate) fn if_called() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != OsStr::new(CALLED) {
        return None;
    }
    let group = words.next().and_then(|word| word.to_str()?.parse().ok()).filter(|group| *group > 1);
    let Some(group) = group else { return Some(ExitCode::FAILURE) };
    let mut heard = Vec::new();
    // An error is an end, too: unsure means that nobody is there.
    let _ = io::stdin().read_to_end(&mut heard);
    if heard != GOODBYE {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    Some(ExitCode::SUCCESS)
}
