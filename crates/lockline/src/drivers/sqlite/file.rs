//! The file: what is refused before anything is touched, and how it is opened.

use std::cell::Cell;
use std::fs::{DirBuilder, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, access};

use super::config::SqliteConfig;
use super::error::Failure;
use super::hooks;
use super::identity::{Found, Identity, beside, refuse_other_names};
use super::platform;
use super::refuse::{cannot, refuse_file_system, refuse_owner};
use super::schema::{self, Trouble};
use crate::error::{Error, ErrorKind};

/// Before it, two writers could corrupt a log that was being reset (sqlite.org/wal.html#walresetbug).
const OLDEST_SQLITE: i32 = 3_051_003;

/// How often a file is opened that is another one afterwards than before.
const MOST_OPENINGS: u32 = 5;

/// An open file.
pub(super) struct File {
    pub(super) db: Connection,
    /// As the user gave it.
    pub(super) path: PathBuf,
    /// Its log, and the log's index.
    pub(super) log: PathBuf,
    index: PathBuf,
    pub(super) identity: Identity,
    /// How many pages the log has, as of the last commit.
    pub(super) log_pages: Cell<usize>,
}

impl File {
    /// What the path leads to now.
    pub(super) fn look(&self) -> Found {
        self.identity.look(&self.path, &self.log, &self.index)
    }
}

/// Opens the file, and makes it if it is new. Blocks.
pub(super) fn open(config: &SqliteConfig, path: &Path, address: &Arc<str>) -> Result<File, Error> {
    refuse_old_sqlite().map_err(|e| e.at(address))?;
    let resolved = prepare(config, path).map_err(|e| e.at(address))?;
    platform::refuse_other_clock().map_err(|e| e.at(address))?;
    let (log, index) = (beside(&resolved, "-wal"), beside(&resolved, "-shm"));
    for _ in 0..MOST_OPENINGS {
        let before = std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
        let (db, log_pages) = open_database(config, path, address)?;
        // Only now: on an overlay file system a file of a lower layer becomes another one when it is opened for writing.
        let identity = Identity::of(path, &log, &index);
        let identity = identity.map_err(|e| cannot("find the log of", path, &e).at(address))?;
        if before.is_ok_and(|before| before == identity.file) {
            let log_pages = Cell::new(log_pages);
            return Ok(File { db, path: path.to_owned(), log, index, identity, log_pages });
        }
    }
    Err(Error::new(
        ErrorKind::Unavailable,
        "open",
        "the file was replaced again and again while it was opened",
    )
    .hint("find out who replaces it; a lock file must stay where it is")
    .at(address))
}

/// A connection to a file that is ours, and how many pages its log has.
fn open_database(
    config: &SqliteConfig,
    path: &Path,
    address: &Arc<str>,
) -> Result<(Connection, usize), Error> {
    let sqlite = |failure: Failure| failure.explain("open", address);
    let mut db = connect(path, config.busy_timeout).map_err(|e| sqlite(e.into()))?;
    hooks::forget_logged();
    hooks::count_log_pages(&mut db).map_err(|e| sqlite(e.into()))?;
    schema::adopt(&db, config.busy_timeout).map_err(|trouble| match trouble {
        Trouble::Sqlite(failure) => sqlite(failure),
        Trouble::Foreign(message) => Error::new(ErrorKind::Unsafe, "open", message)
            .hint("choose another path for the locks; this file was not changed")
            .at(address),
        Trouble::InUse(message) => Error::new(ErrorKind::Unavailable, "open", message)
            .hint("try again when its programs have ended, or choose another path")
            .at(address),
    })?;
    Ok((db, hooks::logged().unwrap_or(0)))
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
    hooks::wait_when_busy(&mut db, busy_timeout)?;
    // A power loss may undo the last commits, but it also ends the boot whose leases they were; and tickets are given
    // only below a limit that was synced. A crash of a process loses nothing.
    db.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(db)
}

fn refuse_old_sqlite() -> Result<(), Error> {
    if rusqlite::version_number() >= OLDEST_SQLITE {
        return Ok(());
    }
    let message = format!("SQLite {} corrupts files that several processes write", rusqlite::version());
    Err(Error::new(ErrorKind::Unsafe, "open", message)
        .hint("build with the bundled SQLite, or link SQLite 3.51.3 or newer"))
}

/// Refuses what cannot be a lock file, makes the file if it is missing, and tells its path without symbolic links.
///
/// An existing file is never opened here: closing *any* descriptor of a file drops all POSIX locks this process has on
/// it, those of another connection of the same process included.
fn prepare(config: &SqliteConfig, path: &Path) -> Result<PathBuf, Error> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    // Nobody in this process may connect to the file between its creation and the close of that descriptor.
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = path.parent().unwrap_or(Path::new("/"));
    let there = directory.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/"));
    refuse_file_system(config, there)?;
    if config.create_dir && there != directory {
        make_directory(directory, there).map_err(|e| cannot("make the directory", directory, &e))?;
    }
    let writable = Access::READ_OK | Access::WRITE_OK;
    // The -wal and -shm files are made beside it.
    let may_write_to = |directory: &Path| {
        access(directory, writable | Access::EXEC_OK)
            .map_err(|e| cannot("write to the directory", directory, &e.into()))
    };
    if look(path)?.is_none() {
        may_write_to(directory)?;
        let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        match made {
            Ok(_) => {}
            // Another process was first.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && look(path)?.is_some() => {}
            Err(e) => return Err(cannot("make the file", path, &e)),
        }
    }
    refuse_owner(config, path)?;
    refuse_other_names(path)?;
    let resolved = path.canonicalize().map_err(|e| cannot("reach the file", path, &e))?;
    let directory = resolved.parent().unwrap_or(Path::new("/"));
    // A symbolic link may lead to another file system.
    refuse_file_system(config, directory)?;
    may_write_to(directory)?;
    access(&resolved, writable).map_err(|e| cannot("write the file", path, &e.into()))?;
    Ok(resolved)
}

/// Makes a directory, and those between it and `there`, so that they survive a power loss: with them the file would go, and
/// its ticket counter. What is in the directory itself is synced by SQLite.
fn make_directory(directory: &Path, there: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    for above in directory.ancestors().skip(1).take_while(|above| above.starts_with(there)) {
        // Not every file system can do it, and not every directory may be read.
        let _ = std::fs::File::open(above).and_then(|above| above.sync_all());
    }
    Ok(())
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
