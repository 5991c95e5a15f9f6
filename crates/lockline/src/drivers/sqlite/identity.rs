//! Which file this is, and whether the path still leads to it, and nothing else does.
//!
//! A lock file is three files: its log and the log's index stand beside the *path*, under the same name with `-wal` and
//! `-shm` behind it. So one file that is reached by two paths (a hard link, a bind mount of the file alone) has two logs, and
//! whoever uses one cannot see the locks in the other. The same happens if one of the three is removed or replaced.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::platform;
use crate::error::{Error, ErrorKind};

/// Device and inode.
pub(super) type Inode = (u64, u64);

/// What the path leads to now.
#[derive(Debug)]
pub(super) enum Found {
    /// The file that was opened.
    Same,
    /// The same, but it has other names by now: nobody else may come to it.
    Linked,
    /// Another file, or none: whoever opens the path does not see our locks.
    Gone,
    /// It cannot be told.
    Unclear(io::Error),
}

/// The three files, as they were when they were opened.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) file: Inode,
    log: Inode,
    index: Inode,
}

impl Identity {
    /// Of files that SQLite has open.
    pub(super) fn of(path: &Path, log: &Path, index: &Path) -> io::Result<Identity> {
        Ok(Identity { file: inode(path)?.0, log: inode(log)?.0, index: inode(index)?.0 })
    }

    /// Looks whether they are still there. `path` is as the user gave it: a symbolic link may lead elsewhere by now.
    pub(super) fn look(&self, path: &Path, log: &Path, index: &Path) -> Found {
        let mut links = 1;
        for (path, known) in [(path, self.file), (log, self.log), (index, self.index)] {
            match inode(path) {
                Ok((there, count)) if there == known => links = links.max(count),
                Ok(_) => return Found::Gone,
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    return Found::Gone;
                }
                Err(e) => return Found::Unclear(e),
            }
        }
        if links > 1 { Found::Linked } else { Found::Same }
    }
}

fn inode(path: &Path) -> io::Result<(Inode, u64)> {
    std::fs::metadata(path).map(|found| ((found.dev(), found.ino()), found.nlink()))
}

/// The path of the log or of its index: SQLite resolves symbolic links before it adds the ending.
pub(super) fn beside(resolved: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(resolved);
    name.push(ending);
    name.into()
}

/// Refuses a file that may be reached by another path with another log beside it.
pub(super) fn refuse_other_names(path: &Path) -> Result<(), Error> {
    let refuse =
        |message: String, hint: &'static str| Err(Error::new(ErrorKind::Unsafe, "open", message).hint(hint));
    if inode(path).is_ok_and(|(_, links)| links > 1) {
        let message = format!(
            "{} has another name (a hard link), whose users would not see these locks",
            path.display()
        );
        return refuse(message, "use one path for all, and remove the other link");
    }
    if platform::is_mount_point(path) {
        let message = format!(
            "{} is mounted by itself, so its log is not the one of the file's other users",
            path.display()
        );
        return refuse(message, "mount the directory that holds the file, not the file alone");
    }
    Ok(())
}
