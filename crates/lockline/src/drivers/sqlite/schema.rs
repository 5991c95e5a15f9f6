//! What makes a file ours: its schema, of this version.

use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use super::boot;
use super::error::Failure;
use super::platform;
use super::room;
use super::rows::int;
use crate::time::BootClock;

/// "LkLn": tells `file(1)` and us whose database it is.
const APPLICATION_ID: i32 = 0x4c6b_4c6e;
const SCHEMA_VERSION: i32 = 4;
/// Small pages: a verb changes one or two of them by a few bytes, and each is copied whole into the log.
const PAGE_SIZE: u32 = 1024;

/// Why a file is not taken.
pub(super) enum Trouble {
    Sqlite(Failure),
    Foreign(String),
    /// Somebody holds locks in it in the way of an older Lockline.
    InUse(String),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Trouble {
        Trouble::Sqlite(error.into())
    }
}

/// Makes sure that the file is ours. Writes only to a new file, or under a boot id that it does not know.
pub(super) fn adopt(db: &Connection, patience: Duration) -> Result<(), Trouble> {
    let boot = platform::boot_id();
    let boot = boot.as_deref();
    match look(db)? {
        Known::Ours => {}
        Known::Empty => retry_while_busy(patience, || create(db, boot))?,
        Known::Older => upgrade(db, boot)?,
    }
    let mode: String = db.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(Trouble::Foreign(format!("its journal mode was changed to {mode}")));
    }
    if !boot::is_known(db, boot)? {
        transaction(db, || {
            // Another process may have been first.
            if !boot::is_known(db, boot)? {
                boot::note(db, boot)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

enum Known {
    Ours,
    Empty,
    Older,
}

/// Whose file it is. Changes nothing.
///
/// All is read at one moment: whoever reads the head before another process has made the file, and its tables afterwards, takes
/// it for somebody else's.
fn look(db: &Connection) -> Result<Known, Trouble> {
    if !db.is_autocommit() {
        return look_inside(db);
    }
    db.execute_batch("BEGIN")?;
    let known = look_inside(db);
    // Nothing was written, so nothing can fail that matters.
    let _ = db.execute_batch("ROLLBACK");
    known
}

fn look_inside(db: &Connection) -> Result<Known, Trouble> {
    let number = |pragma: &str| db.query_row(pragma, [], |row| row.get::<_, i32>(0));
    let application = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    match (application, version) {
        (APPLICATION_ID, SCHEMA_VERSION) => Ok(Known::Ours),
        (APPLICATION_ID, 1..SCHEMA_VERSION) => Ok(Known::Older),
        (APPLICATION_ID, newer) if newer > SCHEMA_VERSION => Err(Trouble::Foreign(format!(
            "it was made by a newer Lockline (schema {newer}, this one knows {SCHEMA_VERSION})"
        ))),
        (0, 0) if number("SELECT count(*) FROM sqlite_schema")? == 0 => Ok(Known::Empty),
        _ => Err(Trouble::Foreign("it is the SQLite database of another application".to_owned())),
    }
}

fn create(db: &Connection, boot: Option<&str>) -> Result<(), Trouble> {
    db.pragma_update(None, "page_size", PAGE_SIZE)?;
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    transaction(db, || match look(db)? {
        Known::Empty => create_schema(db, boot, 0),
        _ => Ok(()),
    })?;
    room::free_reserve(db)?;
    Ok(())
}

/// Makes a file of an older schema one of this. Its programs know nothing of this one, so it is done when none of them
/// holds anything; one that comes back is told that the file is a newer Lockline's.
fn upgrade(db: &Connection, boot: Option<&str>) -> Result<(), Trouble> {
    transaction(db, || {
        if !matches!(look(db)?, Known::Older) {
            return Ok(());
        }
        let now = int(BootClock.now().as_micros());
        let held: i64 = db.query_row(include_str!("sql/held.sql"), [now], |row| row.get(0))?;
        if held > 0 {
            let message = format!("an older Lockline, whose files this one changes, has {held} claims in it");
            return Err(Trouble::InUse(message));
        }
        let last_ticket: i64 = db.query_row("SELECT last_ticket FROM meta", [], |row| row.get(0))?;
        db.execute_batch(
            "DROP TABLE claims; DROP TABLE meta; DROP TABLE reserve; DROP TABLE IF EXISTS boots",
        )?;
        create_schema(db, boot, last_ticket)
    })?;
    room::free_reserve(db)?;
    Ok(())
}

fn transaction(db: &Connection, body: impl FnOnce() -> Result<(), Trouble>) -> Result<(), Trouble> {
    db.execute_batch("BEGIN IMMEDIATE")?;
    if let Err(trouble) = body() {
        db.execute_batch("ROLLBACK")?;
        return Err(trouble);
    }
    Ok(db.execute_batch("COMMIT")?)
}

fn create_schema(db: &Connection, boot: Option<&str>, last_ticket: i64) -> Result<(), Trouble> {
    db.execute_batch(include_str!("schema.sql"))?;
    db.execute("INSERT INTO meta VALUES (1, ?1, 0, 0, 0, 0)", [last_ticket])?;
    boot::note(db, boot)?;
    room::first_reserve(db)?;
    db.pragma_update(None, "application_id", APPLICATION_ID)?;
    db.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    Ok(())
}

/// Two processes that make the file at once: turning on the log needs the file alone, and does not wait by itself.
fn retry_while_busy(
    patience: Duration,
    mut make: impl FnMut() -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let started = Instant::now();
    loop {
        match make() {
            Err(Trouble::Sqlite(failure))
                if failure.error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && started.elapsed() < patience =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}
