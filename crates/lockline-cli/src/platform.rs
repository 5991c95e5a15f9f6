//! What differs between Linux and macOS: how a stopped child is seen, which signals are ignored, who is in a group.
//!
//! Where it is a matter of a line, it stands where it belongs: the parent-death signal (`child.rs`), the alarm
//! (`guardian/alarm.rs`) and the guardian's name are Linux's. On macOS the guardian, which hears by a pipe that its wrapper
//! is gone, does all of that work.

use std::process::ExitStatus;

use nix::sys::signal::Signal;

/// What a look at a child found.
#[derive(Debug)]
pub(crate) enum Seen {
    Stopped(Signal),
    /// It has ended since it was asked for the last time, and nobody else will be told.
    #[cfg_attr(target_os = "linux", allow(dead_code))]
    Ended(ExitStatus),
    Nothing,
}

/// Looks whether a child was stopped.
#[cfg(target_os = "linux")]
pub(crate) fn look_at_child(child: nix::unistd::Pid) -> Seen {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    match waitid(Id::Pid(child), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
        Ok(WaitStatus::Stopped(_, signal)) => Seen::Stopped(signal),
        _ => Seen::Nothing,
    }
}

/// The signals this process ignores, as a set of bits. Unknown means none.
#[cfg(target_os = "linux")]
pub(crate) fn ignored() -> u64 {
    use std::io::Read;
    // One read, because every `run` makes it: the file is far smaller, and what is asked for stands in its middle.
    let mut status = [0; 4096];
    let length =
        std::fs::File::open("/proc/self/status").and_then(|mut file| file.read(&mut status)).unwrap_or(0);
    let status = String::from_utf8_lossy(&status[..length]);
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

/// The same without `waitid` (`waitpid` tells of an end as well, and tells it once) and without `/proc`.
#[cfg(any(not(target_os = "linux"), test))]
#[cfg_attr(target_os = "linux", allow(dead_code))]
mod portable {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};

    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::Pid;

    use super::Seen;
    use crate::members::Member;

    pub(crate) fn look_at_child(child: Pid) -> Seen {
        match waitpid(child, Some(WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Stopped(_, signal)) => Seen::Stopped(signal),
            Ok(WaitStatus::Exited(_, code)) => Seen::Ended(ExitStatus::from_raw((code & 0xff) << 8)),
            Ok(WaitStatus::Signaled(_, signal, _)) => Seen::Ended(ExitStatus::from_raw(signal as i32)),
            _ => Seen::Nothing,
        }
    }

    /// The signals this process ignores, as a set of bits.
    #[allow(unsafe_code)]
    pub(crate) fn ignored() -> u64 {
        let mut ignored = 0;
        for signal in 1..32 {
            // SAFETY: without a new action the call only writes the present one to where it is told, which is ours; all
            // zeros are a valid value of it.
            let action = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                (libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0)
                    .then_some(action.sa_sigaction)
            };
            if action == Some(libc::SIG_IGN) {
                ignored |= 1 << (signal - 1);
            }
        }
        ignored
    }

    /// The members of a group, as `ps` shows them.
    pub(crate) fn members(group: Pid) -> Vec<Member> {
        let listed = Command::new("ps").args(["-A", "-o", "pid=,pgid=,uid=,stat=,comm="]).output();
        let Ok(listed) = listed else { return Vec::new() };
        let text = String::from_utf8_lossy(&listed.stdout);
        text.lines().filter_map(|line| member(line, group)).collect()
    }

    pub(super) fn member(line: &str, group: Pid) -> Option<Member> {
        let mut words = line.split_ascii_whitespace();
        let pid = words.next()?.parse().ok()?;
        let its_group: i32 = words.next()?.parse().ok()?;
        let uid = words.next()?.parse().ok();
        let lives = !words.next()?.starts_with('Z');
        let command = words.collect::<Vec<_>>().join(" ");
        (lives && its_group == group.as_raw()).then_some(Member { pid, command, uid })
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) use portable::{ignored, look_at_child, members};

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::kill;
    use nix::unistd::Pid;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "nothing was seen");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    #[allow(clippy::zombie_processes)] // The very thing that is looked at.
    fn a_child_is_seen_stopped_and_ended_without_waitid() {
        let child = Command::new("cat").stdin(Stdio::piped()).process_group(0).spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed());
        assert!(matches!(portable::look_at_child(pid), Seen::Nothing));
        assert!(portable::members(pid).iter().any(|member| member.pid == pid.as_raw()));
        kill(pid, Signal::SIGSTOP).unwrap();
        until(|| matches!(portable::look_at_child(pid), Seen::Stopped(Signal::SIGSTOP)).then_some(()));
        kill(pid, Signal::SIGKILL).unwrap();
        let status = until(|| match portable::look_at_child(pid) {
            Seen::Ended(status) => Some(status),
            _ => None,
        });
        assert_eq!(status.signal(), Some(9));
    }

    #[test]
    fn lines_of_ps_are_read() {
        let group = Pid::from_raw(77);
        let member = portable::member(" 9  77   501 S+   a b", group).unwrap();
        assert_eq!((member.pid, member.uid, member.command.as_str()), (9, Some(501), "a b"));
        assert_eq!(portable::member(" 9  78   501 S+   a", group), None);
        assert_eq!(portable::member(" 9  77   501 Z    a", group), None);
    }

    #[test]
    fn ignored_signals_are_told() {
        // The standard library ignores SIGPIPE before `main`.
        assert_ne!(portable::ignored() & (1 << (libc::SIGPIPE - 1)), 0);
        assert_eq!(portable::ignored() & (1 << (libc::SIGTERM - 1)), 0);
    }
}
