//! macOS: no abstract sockets, so who waits looks by itself; no pidfds, so processes are looked at again and again.

use std::io;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

#[cfg(target_vendor = "apple")]
use super::super::process::Life;
use crate::error::Error;
use crate::platform::since_boot;

/// How often who waits looks at the line by itself: this is how long a hand-over may take. One short transaction each.
pub(in super::super) const LOOK_AGAIN: Option<Duration> = Some(Duration::from_millis(100));

/// How often a process that stands ahead is looked at.
const PULSE: Duration = Duration::from_millis(200);

/// A boot began in this stretch of wall-clock time. Coarse, because the two clocks that tell it are not read in one moment.
const STRETCH: Duration = Duration::from_secs(60);

/// There is no bell: a socket with a path stays behind when its process is killed, and who may write the lock file may not
/// be allowed to write to the socket.
pub(in super::super) fn bell_address(_: (u64, u64), _: u128) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A start time is not needed: without one a pid that is used again looks alive, and then only the lease counts. There are no
/// pid namespaces; 0 would mean that it cannot be told.
pub(in super::super) fn this_process(_: u32) -> (u64, u64) {
    (0, 1)
}

/// A process that lived when it was looked at.
#[derive(Debug)]
pub(in super::super) struct Alive(Pid);

/// Looks whether a process lives. That there is no process of this number is the proof that it is gone.
#[cfg(target_vendor = "apple")]
pub(in super::super) fn look(pid: u32, _: u64) -> Life {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Life::Unknown };
    let alive = Alive(pid);
    if alive.has_ended() { Life::Dead } else { Life::Alive(alive) }
}

impl Alive {
    pub(in super::super) fn has_ended(&self) -> bool {
        test_kill_process(self.0) == Err(Errno::SRCH)
    }

    /// Waits for its end. Answers whether that could be seen.
    pub(in super::super) async fn ended(self: Arc<Alive>) -> bool {
        while !self.has_ended() {
            tokio::time::sleep(PULSE).await;
        }
        true
    }
}

/// Whether a file is mounted by itself: macOS mounts directories only.
pub(in super::super) fn is_mount_point(_: &Path) -> bool {
    false
}

/// All processes of a machine have one clock.
#[allow(clippy::unnecessary_wraps)] // As on Linux, where they may not.
pub(in super::super) fn refuse_other_clock() -> Result<(), Error> {
    Ok(())
}

/// Names the boot by the moment when it began. If somebody sets the wall clock it gets another name, which is the safe
/// direction: tickets go on above all that were reserved.
pub(in super::super) fn boot_id() -> Option<String> {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let began = wall.checked_sub(since_boot())?.as_secs() / STRETCH.as_secs();
    Some(format!("began-{began}"))
}

/// Whether a file system is one of the network, and then how it is called.
#[cfg(target_vendor = "apple")]
pub(in super::super) fn foreign_file_system(directory: &Path) -> io::Result<Option<(&'static str, bool)>> {
    const MNT_LOCAL: u32 = 0x1000;
    let found = rustix::fs::statfs(directory)?;
    Ok((found.f_flags & MNT_LOCAL == 0).then_some(("a network file system", false)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[tokio::test]
    async fn the_end_of_a_process_is_seen_by_looking() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let alive = Arc::new(Alive(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()));
        assert!(!alive.has_ended());
        let ended = tokio::spawn(alive.clone().ended());
        drop(child.stdin.take());
        // Until somebody has asked for its exit code, its number is not free.
        child.wait().unwrap();
        assert!(tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap().unwrap());
        assert!(alive.has_ended());
    }

    #[test]
    fn a_boot_has_one_name() {
        let id = boot_id().unwrap();
        // Once more if the minute was just over.
        assert!(id == boot_id().unwrap() || boot_id() == boot_id());
    }
}
