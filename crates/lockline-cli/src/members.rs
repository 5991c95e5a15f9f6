//! Who is in a process group, as `/proc` shows it: to tell the truth about what could not be stopped, or works on.

use std::fmt;
#[cfg(target_os = "linux")]
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde::Serialize;

use crate::output::visible;

/// A process that runs, or is stopped: not one that has ended and only waits to be reaped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Member {
    pub(crate) pid: i32,
    pub(crate) command: String,
    /// Whose it is, if that can be seen.
    pub(crate) uid: Option<u32>,
}

impl Member {
    /// Whether this process may not send it signals.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        kill(Pid::from_raw(self.pid), None) == Err(Errno::EPERM)
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} ({}", self.pid, visible(&self.command))?;
        match self.uid {
            Some(uid) => write!(f, ", user {uid})"),
            None => write!(f, ")"),
        }
    }
}

/// The first few of them, in words.
pub(crate) fn named(members: &[Member]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = members.iter().take(SHOWN).map(ToString::to_string).collect();
    match members.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) use crate::platform::members as of;

/// The members of a group that can be seen here: `/proc` may hide those of other users.
#[cfg(target_os = "linux")]
pub(crate) fn of(group: Pid) -> Vec<Member> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut members: Vec<Member> = pids.filter_map(|pid| look(pid, group)).collect();
    members.sort_by_key(|member| member.pid);
    members
}

#[cfg(target_os = "linux")]
fn look(pid: i32, group: Pid) -> Option<Member> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let command = member(&String::from_utf8_lossy(&stat), group)?;
    let uid = std::fs::metadata(format!("/proc/{pid}")).ok().map(|process| process.uid());
    Some(Member { pid, command, uid })
}

/// The name of the process, if it is a living one of this group.
#[cfg(any(target_os = "linux", test))]
fn member(stat: &str, group: Pid) -> Option<String> {
    // The name stands in parentheses and may itself contain spaces and parentheses.
    let (before, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace();
    let state = fields.next()?;
    let its_group: i32 = fields.nth(1)?.parse().ok()?;
    let lives = !matches!(state, "Z" | "X" | "x");
    let name = before.split_once('(')?.1;
    (lives && its_group == group.as_raw()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_told_from_others_and_from_zombies() {
        let group = Pid::from_raw(77);
        assert_eq!(member("9 (a) b) (c) S 1 77 3", group).as_deref(), Some("a) b) (c"));
        assert_eq!(member("9 (x) S 77 78 3", group), None);
        assert_eq!(member("9 (x) Z 1 77 3", group), None);
        assert_eq!(member("nonsense", group), None);
    }

    #[test]
    fn this_process_is_in_its_group() {
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(of(nix::unistd::getpgrp()).iter().any(|member| member.pid == me && member.uid.is_some()));
    }

    #[test]
    fn many_are_named_shortly() {
        let member = |pid| Member { pid, command: "sh".to_owned(), uid: Some(0) };
        assert_eq!(named(&[member(1)]), "pid 1 (sh, user 0)");
        assert!(named(&(1..=5).map(member).collect::<Vec<_>>()).ends_with(" and 2 more"));
    }
}
