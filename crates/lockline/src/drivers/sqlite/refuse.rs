//! What is refused before anything is touched: file systems that cannot keep a lock, and files of users who are not trusted.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::config::SqliteConfig;
use super::platform;
use crate::error::{Error, ErrorKind};

/// File systems on which locks or the shared memory of the log are not those of one host.
pub(super) fn refuse_file_system(config: &SqliteConfig, directory: &Path) -> Result<(), Error> {
    let found = platform::foreign_file_system(directory)
        .map_err(|e| cannot("examine the file system of", directory, &e))?;
    let Some((name, unproven)) = found else { return Ok(()) };
    if unproven && config.allow_unproven_file_system {
        return Ok(());
    }
    let message = format!("{} is on {name}, where SQLite cannot keep a lock", directory.display());
    Err(Error::new(ErrorKind::Unsafe, "open", message).hint(if unproven {
        "choose a local file system; if this one is known to work, allow it with allow_unproven_file_system"
    } else {
        "choose a local file system, or an engine with a server for several hosts"
    }))
}

/// Refuses, for root, a file that belongs to somebody else: that user can read, change and forge every lock in it, and
/// may have put it there in advance. A symbolic link that leads to the file counts as well.
pub(super) fn refuse_owner(config: &SqliteConfig, path: &Path) -> Result<(), Error> {
    if config.any_owner || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let directory = path.parent().filter(|_| config.is_of_user);
    let looked_at = [std::fs::symlink_metadata(path).ok(), std::fs::metadata(path).ok()]
        .into_iter()
        .map(|found| (path, found))
        .chain(directory.map(|directory| (directory, std::fs::metadata(directory).ok())));
    for (path, found) in looked_at {
        let Some(uid) = found.map(|found| found.uid()).filter(|&uid| is_foreign(uid)) else { continue };
        let message =
            format!("{} belongs to user {uid}, who could change every lock that root takes", path.display());
        return Err(Error::new(ErrorKind::Unsafe, "open", message).hint(
            "give it to root (its users need only the right to write), run this as that user, choose another path, or trust \
             every owner with owner=any",
        ));
    }
    Ok(())
}

/// Whether a user is somebody else than root. An owner from outside of a user namespace is shown as nobody, and root
/// inside has no more rights than an ordinary user there.
fn is_foreign(uid: u32) -> bool {
    const NOBODY: u32 = 65534;
    let is_everybody = |map: String| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    uid != 0 && (uid != NOBODY || std::fs::read_to_string("/proc/self/uid_map").is_ok_and(is_everybody))
}

/// A failure of the operating system, told as one of opening.
pub(super) fn cannot(what: &str, path: &Path, error: &io::Error) -> Error {
    use io::ErrorKind as Io;
    let (kind, hint) = match error.kind() {
        Io::PermissionDenied | Io::ReadOnlyFilesystem => {
            (ErrorKind::Denied, "give this user the right to write there, or choose another path")
        }
        Io::NotFound | Io::NotADirectory => {
            (ErrorKind::Invalid, "make the directory first, or correct the path")
        }
        Io::AlreadyExists => {
            (ErrorKind::Invalid, "it is a symbolic link that leads nowhere; correct or remove it")
        }
        Io::StorageFull | Io::QuotaExceeded => (ErrorKind::Full, "free some space"),
        _ => (ErrorKind::Unavailable, "check the path"),
    };
    Error::new(kind, "open", format!("cannot {what} {}", path.display()))
        .hint(hint)
        .caused_by(error.to_string())
}
