//! Rows as they are stored.

use std::time::Duration;

use rusqlite::{Connection, Row, params};

use super::process::Process;
use crate::line::{ClaimId, Mode, Ticket};
use crate::name::Name;

type Sql<T> = rusqlite::Result<T>;

/// A row's key, as it is stored.
pub(super) struct HoldKey {
    pub(super) name: String,
    pub(super) ticket: i64,
    pub(super) id: Vec<u8>,
}

/// The holds of a process. A scan of the whole table, and therefore a read outside the write transaction.
pub(super) fn holds_of(db: &Connection, process: Process) -> Sql<Vec<HoldKey>> {
    db.prepare_cached(include_str!("sql/of_process.sql"))?
        .query_map([process.nonce.to_be_bytes()], |row| {
            Ok(HoldKey { name: row.get(0)?, ticket: row.get(1)?, id: row.get(2)? })
        })?
        .collect()
}

/// The processes at the head of a line, each once: those whose death would let someone in.
pub(super) fn processes_ahead(db: &Connection, name: &Name, rows: u32) -> Sql<Vec<Process>> {
    let mut found: Vec<Process> = Vec::new();
    let mut head = db.prepare_cached(include_str!("sql/ahead_processes.sql"))?;
    for process in head.query_map(params![name.as_str(), rows], |row| Process::at(row, 0))? {
        let process = process?;
        if !found.contains(&process) {
            found.push(process);
        }
    }
    Ok(found)
}

/// SQLite's integers are signed. No time or ticket reaches 2^63 µs (the year 294 000).
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn uint_at(row: &Row<'_>, column: usize) -> Sql<u64> {
    row.get::<_, i64>(column).map(|number| number.max(0).unsigned_abs())
}

pub(super) fn ticket_at(row: &Row<'_>, column: usize) -> Sql<Ticket> {
    uint_at(row, column).map(Ticket::new)
}

pub(super) fn bits_at(row: &Row<'_>, column: usize) -> Sql<u128> {
    row.get::<_, [u8; 16]>(column).map(u128::from_be_bytes)
}

pub(super) fn id_at(row: &Row<'_>, column: usize) -> Sql<ClaimId> {
    bits_at(row, column).map(ClaimId::from_u128)
}

/// The mode in this column and the two behind it. An unknown kind is read as exclusive: it lets nobody in beside it.
pub(super) fn mode_at(row: &Row<'_>, column: usize) -> Sql<Mode> {
    Ok(match row.get::<_, i64>(column)? {
        1 => Mode::Shared,
        2 => Mode::Permits { count: row.get(column + 1)?, limit: row.get(column + 2)? },
        _ => Mode::Exclusive,
    })
}

/// A name from a row. Only a file that something else wrote to can hold a bad one.
pub(super) fn stored_name(text: &str) -> Sql<Name> {
    Name::new(text)
        .map_err(|e| rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, e.into()))
}
