//! The file: what is refused before anything is touched, and how it is opened.

use std::fs::{DirBuilder, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, access, statfs};

use super::config::SqliteConfig;
use super::error::Failure;
use super::schema::{self, Trouble};
use crate::error::{Error, ErrorKind};

/// Before it, two writers could corrupt a log that was being reset (sqlite.org/wal.html#walresetbug).
const OLDEST_SQLITE: i32 = 3_051_003;

/// An open file.
pub(super) struct File {
    pub(super) db: Connection,
    pub(super) path: PathBuf,
    /// Device and inode.
    pub(super) identity: (u64, u64),
    /// How many pages the log has, as of the last commit.
    pub(super) log_pages: Arc<AtomicUsize>,
}

/// Opens the file, and makes it if it is new. Blocks.
pub(super) fn open(config: &SqliteConfig, path: &Path, address: &Arc<str>) -> Result<File, Error> {
    refuse_old_sqlite().map_err(|e| e.at(address))?;
    let identity = prepare(config, path).map_err(|e| e.at(address))?;
    let boot = boot().map_err(|e| e.at(address))?;
    let sqlite = |failure: Failure| failure.explain("open", address);
    let mut db = connect(path, config.busy_timeout).map_err(|e| sqlite(e.into()))?;
    let log_pages = Arc::new(AtomicUsize::new(0));
    let counter = log_pages.clone();
    // In place of SQLite's own checkpoints: those would run, and sync the disk, inside somebody's commit.
    db.wal_hook(Some(move |_: &mut _, pages: i32| {
        counter.store(usize::try_from(pages).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }))
    .map_err(|e| sqlite(e.into()))?;
    schema::adopt(&db, &boot, config.busy_timeout).map_err(|trouble| match trouble {
        Trouble::Sqlite(failure) => sqlite(failure),
        Trouble::Foreign(message) => Error::new(ErrorKind::Unsafe, "open", message)
            .hint("choose another path for the locks; this file was not changed")
            .at(address),
        Trouble::InUse(message) => Error::new(ErrorKind::Unavailable, "open", message)
            .hint("try again when its programs have ended, or choose another path")
            .at(address),
    })?;
    Ok(File { db, path: path.to_owned(), identity, log_pages })
}

/// A connection with our settings, which reads nothing yet.
pub(super) fn connect(path: &Path, busy_timeout: Duration) -> rusqlite::Result<Connection> {
    // Without CREATE: the file was made before, with the right mode, which the -wal and -shm files take over.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(path, flags)?;
    db.set_prepared_statement_cache_capacity(64);
    // A checkpoint on closing would make every short-lived process sync the disk.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Otherwise SQLite, built with STAT4, plans a statement anew whenever other values are bound to it.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    wait_when_busy(&mut db, busy_timeout)?;
    // A power loss may undo the last commits, but it also ends the boot whose leases they were; and tickets have the
    // wall clock as their floor. A crash of a process loses nothing.
    db.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(db)
}

/// Waits for others on the file, for as long as `timeout`.
pub(super) fn wait_when_busy(db: &mut Connection, timeout: Duration) -> rusqlite::Result<()> {
    let mut started = Instant::now();
    // SQLite's own handler sleeps up to 100 ms: with short transactions that is four owner changes a second.
    db.busy_handler(Some(move |tries: i32| {
        if tries == 0 {
            started = Instant::now();
        }
        match tries {
            0..2 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(20 << (tries - 2).min(6))),
        }
        started.elapsed() < timeout
    }))
}

fn refuse_old_sqlite() -> Result<(), Error> {
    if rusqlite::version_number() >= OLDEST_SQLITE {
        return Ok(());
    }
    let message = format!("SQLite {} corrupts files that several processes write", rusqlite::version());
    Err(Error::new(ErrorKind::Unsafe, "open", message)
        .hint("build with the bundled SQLite, or link SQLite 3.51.3 or newer"))
}

/// Refuses what cannot be a lock file, makes the file if it is missing, and tells its device and inode.
///
/// An existing file is never opened here: closing *any* descriptor of a file drops all POSIX locks this process has on
/// it, those of another connection of the same process included.
fn prepare(config: &SqliteConfig, path: &Path) -> Result<(u64, u64), Error> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    // Nobody in this process may connect to the file between its creation and the close of that descriptor.
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = path.parent().unwrap_or(Path::new("/"));
    let there = directory.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/"));
    refuse_file_system(config, there)?;
    if config.create_dir {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|e| cannot("make the directory", directory, &e))?;
    }
    let found = look(path)?;
    let writable = Access::READ_OK | Access::WRITE_OK;
    // The -wal and -shm files are made beside it.
    access(directory, writable | Access::EXEC_OK)
        .map_err(|e| cannot("write to the directory", directory, &e.into()))?;
    let metadata = match found {
        Some(metadata) => {
            access(path, writable).map_err(|e| cannot("write the file", path, &e.into()))?;
            metadata
        }
        None => {
            let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
            match made.and_then(|file| file.metadata()) {
                Ok(metadata) => metadata,
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    look(path)?.ok_or_else(|| cannot("make the file", path, &e))?
                }
                Err(e) => return Err(cannot("make the file", path, &e)),
            }
        }
    };
    Ok((metadata.dev(), metadata.ino()))
}

fn look(path: &Path) -> Result<Option<Metadata>, Error> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(Some(found)),
        Ok(found) => {
            let what = if found.is_dir() { "a directory" } else { "not a regular file" };
            Err(Error::new(ErrorKind::Invalid, "open", format!("{} is {what}", path.display()))
                .hint("name a file for the locks, such as locks.db in that directory"))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let directory = path.parent().unwrap_or(Path::new("/"));
            match std::fs::metadata(directory) {
                Ok(_) => Ok(None),
                Err(e) => Err(cannot("find the directory", directory, &e)),
            }
        }
        Err(e) => Err(cannot("reach the file", path, &e)),
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Error {
    use io::ErrorKind as Io;
    let (kind, hint) = match error.kind() {
        Io::PermissionDenied | Io::ReadOnlyFilesystem => {
            (ErrorKind::Denied, "give this user the right to write there, or choose another path")
        }
        Io::NotFound | Io::NotADirectory => {
            (ErrorKind::Invalid, "make the directory first, or correct the path")
        }
        Io::StorageFull | Io::QuotaExceeded => (ErrorKind::Full, "free some space"),
        _ => (ErrorKind::Unavailable, "check the path"),
    };
    Error::new(kind, "open", format!("cannot {what} {}", path.display()))
        .hint(hint)
        .caused_by(error.to_string())
}

/// File systems on which locks or the shared memory of the log are not those of one host.
fn refuse_file_system(config: &SqliteConfig, directory: &Path) -> Result<(), Error> {
    let found = statfs(directory).map_err(|e| cannot("examine the file system of", directory, &e.into()))?;
    // Magic numbers have 32 bits; the field is wider, and on some targets signed.
    let Some((name, unproven)) = network_file_system(found.f_type as u32) else { return Ok(()) };
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

/// Its name, and whether it may be one that works after all.
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
        0x6573_5546 => ("FUSE", true),
        0x0102_1997 => ("9p", true),
        0x786f_4256 => ("a VirtualBox share", true),
        _ => return None,
    })
}

/// The boot id: times on the boot clock are compared only under the same one.
fn boot() -> Result<String, Error> {
    let unsafe_clock = |message: &'static str| {
        Error::new(ErrorKind::Unsafe, "open", message)
            .hint("leases in the file are counted on the host's boot clock; run where /proc and that clock are the host's")
    };
    // A time namespace shifts the boot clock: its deadlines would be wrong by that much for everyone else.
    let shifted = std::fs::read_to_string("/proc/self/timens_offsets").is_ok_and(|offsets| {
        offsets
            .lines()
            .filter_map(|line| line.strip_prefix("boottime"))
            .any(|rest| rest.split_ascii_whitespace().any(|number| number != "0"))
    });
    if shifted {
        return Err(unsafe_clock("this process runs in a time namespace with a shifted boot clock"));
    }
    match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(id) if !id.trim().is_empty() => Ok(id.trim().to_owned()),
        _ => Err(unsafe_clock("the boot id cannot be read from /proc")),
    }
}

#[cfg(test)]
mod tests {
    use super::network_file_system;

    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        assert_eq!(network_file_system(0x6969), Some(("NFS", false)));
        assert_eq!(network_file_system(0xfe53_4d42), Some(("SMB", false)));
        assert_eq!(network_file_system(0x6573_5546), Some(("FUSE", true)));
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630] {
            assert_eq!(network_file_system(local), None);
        }
    }
}
