//! Tickets that no power loss can take back.
//!
//! A commit is not synced to the disk, so the last ones may be lost with the power, and the ticket counter with them. The
//! wall clock is a floor for tickets, but it may be behind after such a start. So tickets are given only below a limit
//! that is on the disk for certain, and under a boot that the file does not know they go on above it. The limit is raised
//! ten minutes of tickets at a time: one sync for all that is given meanwhile.
//!
//! The disk is waited for without holding the file: first the reserve is raised in an ordinary commit, then the log is
//! synced, and only then the limit follows. Who asked waits; other processes do not.

use std::fs::File as Log;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, ffi};

use super::error::Failure;
use super::file::{File, connect};
use super::rows::int;

/// How many tickets are reserved at once: one for each microsecond of ten minutes. More would cost even fewer syncs,
/// but after a power loss tickets are so far ahead of the wall clock, which is all that is left if the file is removed.
pub(super) const AHEAD_US: u64 = 10 * 60 * 1_000_000;

/// Reserves tickets, and waits until that is on the disk. Not to be called inside a transaction.
pub(super) fn reserve(db: &Connection, log: &Path, wall_us: u64) -> Result<(), Failure> {
    // By itself, so a transaction by itself. Not with `RETURNING`: a commit that fails as the statement is reset tells nobody.
    // And only a write if it is needed: many processes may find few tickets left at the same time.
    db.prepare_cached(include_str!("sql/reserve_tickets.sql"))?.execute([int(wall_us), int(AHEAD_US)])?;
    let (limit, reserved): (i64, i64) =
        db.query_row("SELECT ticket_limit, ticket_reserve FROM meta", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    if limit >= reserved {
        return Ok(());
    }
    sync(log)?;
    db.prepare_cached(include_str!("sql/raise_limit.sql"))?.execute([reserved])?;
    Ok(())
}

/// Syncs the log, with all commits so far. If it was written back and begun anew meanwhile, that has synced it.
///
/// It is opened for that: SQLite has no lock on this file that closing a descriptor could drop.
fn sync(log: &Path) -> Result<(), Failure> {
    let synced = Log::open(log).and_then(|log| log.sync_data());
    synced.map_err(|e| {
        let code = ffi::Error { code: ErrorCode::SystemIoFailure, extended_code: ffi::SQLITE_IOERR_FSYNC };
        Failure::from(rusqlite::Error::SqliteFailure(code, Some(format!("the log cannot be synced: {e}"))))
    })
}

/// Reserves in the background, before it is urgent.
#[derive(Debug, Default)]
pub(super) struct Reserving {
    helper: Option<JoinHandle<()>>,
}

impl Reserving {
    pub(super) fn start(&mut self, file: &File, wall_us: u64) {
        if self.helper.as_ref().is_some_and(|helper| !helper.is_finished()) {
            return;
        }
        let (path, log) = (file.path.clone(), file.log.clone());
        let work = move || {
            let connected = connect(&path, Duration::from_millis(100)).map_err(Failure::from);
            if let Err(failure) = connected.and_then(|db| reserve(&db, &log, wall_us)) {
                tracing::debug!(error = %failure.error, "no tickets were reserved yet");
            }
        };
        // Without it whoever finds no tickets left reserves some.
        self.helper = std::thread::Builder::new().name("lockline-tickets".to_owned()).spawn(work).ok();
    }
}
