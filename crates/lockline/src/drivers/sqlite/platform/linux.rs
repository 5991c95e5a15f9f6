//! Linux: abstract sockets, pidfds, `/proc`.

use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statfs, statx};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::{Interest, unix::AsyncFd};

use super::super::process::Life;
use crate::error::{Error, ErrorKind};

/// How often who waits looks at the line by itself, where nobody can ring. Here bells ring.
pub(in super::super) const LOOK_AGAIN: Option<Duration> = None;

/// Where a process hears its bell. The name is in Linux's abstract namespace, so nothing remains of it when the process dies.
pub(in super::super) fn bell_address(file: (u64, u64), nonce: u128) -> io::Result<SocketAddr> {
    let (device, inode) = file;
    SocketAddr::from_abstract_name(format!("lockline/{device:x}/{inode:x}/{nonce:032x}"))
}

/// When this process started, and the pid namespace its pid means something in; zeros if that cannot be told.
pub(in super::super) fn this_process(pid: u32) -> (u64, u64) {
    let ns = std::fs::metadata("/proc/self/ns/pid").map_or(0, |ns| ns.ino());
    match stat("self") {
        // A `/proc` of another namespace shows this process under another pid: no pid there means what it says.
        Some(stat) if stat.pid == pid => (stat.start, ns),
        _ => (0, 0),
    }
}

/// A process that lived when it was looked at: its descriptor becomes readable when it ends.
#[derive(Debug)]
pub(in super::super) struct Alive(OwnedFd);

/// Looks whether a process of this pid namespace lives.
///
/// A missing `/proc/PID` proves nothing (`hidepid` hides other users' processes), and a zombie may be the leader of
/// threads that still run; a pidfd knows both.
pub(in super::super) fn look(pid: u32, start: u64) -> Life {
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Life::Unknown };
    let alive = match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(fd) => Alive(fd),
        Err(Errno::SRCH) => return Life::Dead,
        Err(_) => return Life::Unknown,
    };
    // In this order: if the start time is right after the descriptor was opened, the descriptor is of that process.
    match stat(&pid.to_string()) {
        Some(stat) if stat.start != start => Life::Dead,
        _ if alive.has_ended() => Life::Dead,
        Some(_) => Life::Alive(alive),
        None => Life::Unknown,
    }
}

impl Alive {
    pub(in super::super) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// Waits for its end. Answers whether that could be seen.
    pub(in super::super) async fn ended(self: Arc<Alive>) -> bool {
        // Deprecated for descriptors that may be closed while they are registered, in favour of an `unsafe` one. This one
        // lives as long as its `Arc`.
        #[allow(deprecated)]
        let Ok(ended) = AsyncFd::with_interest(Descriptor(self), Interest::READABLE) else { return false };
        ended.readable().await.is_ok()
    }
}

struct Descriptor(Arc<Alive>);

impl std::os::fd::AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.0.as_raw_fd()
    }
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

/// Whether a file is mounted by itself.
pub(in super::super) fn is_mount_point(path: &Path) -> bool {
    match statx(CWD, path, AtFlags::empty(), StatxFlags::empty()) {
        Ok(found) if found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => {
            found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        }
        // A kernel before 5.8 does not say.
        Ok(_) | Err(Errno::NOSYS | Errno::PERM) => is_listed_mount_point(path),
        // It has just gone: opening it tells.
        Err(_) => false,
    }
}

fn is_listed_mount_point(path: &Path) -> bool {
    let Ok(resolved) = path.canonicalize() else { return false };
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    lists_mount_point(&mounts, &resolved)
}

fn lists_mount_point(mounts: &[u8], path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    mounts.split(|&byte| byte == b'\n').filter_map(|line| line.split(|&byte| byte == b' ').nth(4)).any(
        |escaped| {
            let mut plain = Vec::with_capacity(escaped.len());
            let mut rest = escaped;
            while let Some((&byte, behind)) = rest.split_first() {
                // Spaces and the like are written as a backslash and three octal digits.
                let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
                match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
                    Some(meant) if byte == b'\\' => {
                        plain.push(meant);
                        rest = &behind[3..];
                    }
                    _ => {
                        plain.push(byte);
                        rest = behind;
                    }
                }
            }
            plain == path.as_os_str().as_bytes()
        },
    )
}

/// Refuses to run where the boot clock is not the host's: its deadlines would be wrong by the difference for all others.
pub(in super::super) fn refuse_other_clock() -> Result<(), Error> {
    let refuse = |message: &'static str| {
        let hint = "leases in the file are counted on the host's boot clock; run where /proc and that clock are the host's";
        Err(Error::new(ErrorKind::Unsafe, "open", message).hint(hint))
    };
    match std::fs::read_to_string("/proc/self/timens_offsets") {
        Ok(offsets) if is_shifted(&offsets) => {
            refuse("this process runs in a time namespace with a shifted boot clock")
        }
        Ok(_) => Ok(()),
        // A kernel without time namespaces has a `/proc`, but no such file.
        Err(_) if std::fs::metadata("/proc/self/stat").is_ok() => Ok(()),
        Err(_) => refuse("/proc cannot be read, which tells whether the boot clock is the host's"),
    }
}

fn is_shifted(offsets: &str) -> bool {
    let boot = offsets.lines().filter_map(|line| line.strip_prefix("boottime"));
    boot.flat_map(str::split_ascii_whitespace).any(|number| number != "0")
}

/// The boot id that this process is shown, if any.
pub(in super::super) fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// The name of the file system, if locks or the shared memory of the log are not those of one host on it, and whether it
/// may be one that works after all.
pub(in super::super) fn foreign_file_system(directory: &Path) -> io::Result<Option<(&'static str, bool)>> {
    // Magic numbers have 32 bits; the field is wider, and on some targets signed.
    Ok(network_file_system(statfs(directory)?.f_type as u32))
}

fn network_file_system(magic: u32) -> Option<(&'static str, bool)> {
    Some(match magic {
        0x6969 => ("NFS", false),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => ("SMB", false),
        0x5346_414f | 0x6b41_4653 => ("AFS", false),
        0x00c3_6400 => ("Ceph", false),
        0x0bd0_0bd0 => ("Lustre", false),
        0x4750_4653 => ("GPFS", false),
        0x7375_7245 => ("Coda", false),
        0x564c => ("NCP", false),
        0x0116_1970 => ("GFS2", false),
        0x7461_636f => ("OCFS2", false),
        0x1983_0326 => ("BeeGFS", false),
        0x2003_0528 => ("OrangeFS", false),
        0xaad7_aaea => ("PanFS", false),
        0xbeef_dead => ("StorNext", false),
        0x6573_5546 => ("FUSE", true),
        0x0102_1997 => ("9p", true),
        0x786f_4256 => ("a VirtualBox share", true),
        0xbacb_acbc => ("a VMware share", true),
        0x7c7c_6673 => ("a Parallels share", true),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        assert_eq!(network_file_system(0x6969), Some(("NFS", false)));
        assert_eq!(network_file_system(0xfe53_4d42), Some(("SMB", false)));
        assert_eq!(network_file_system(0x6573_5546), Some(("FUSE", true)));
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert_eq!(network_file_system(local), None);
        }
    }

    #[test]
    fn a_mount_point_is_found_in_the_list_of_an_old_kernel() {
        let list = b"22 1 8:1 / / rw - ext4 /dev/a rw\n\
            23 22 8:1 /x/locks.db /data/my\\040locks.db rw - ext4 /dev/a rw\n";
        assert!(lists_mount_point(list, Path::new("/data/my locks.db")));
        assert!(!lists_mount_point(list, Path::new("/data")));
        assert!(!lists_mount_point(list, Path::new("/x/locks.db")));
        assert!(is_mount_point(Path::new("/proc")) && is_listed_mount_point(Path::new("/proc")));
        assert!(!is_mount_point(Path::new("/proc/self/stat")));
    }

    #[test]
    fn a_shifted_boot_clock_is_told_from_others() {
        assert!(!is_shifted("monotonic           0         0\nboottime            0         0\n"));
        assert!(!is_shifted("monotonic        -100         0\nboottime            0         0\n"));
        assert!(is_shifted("monotonic           0         0\nboottime         -100         0\n"));
        assert!(is_shifted("monotonic           0         0\nboottime            0         5\n"));
    }
}
