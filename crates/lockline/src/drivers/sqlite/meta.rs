//! What the file keeps for all lines together: the ticket counter, and when a claim may lapse next.

use std::cell::Cell;
use std::collections::BTreeSet;

use rusqlite::Connection;

use super::rows::{int, ticket_at, uint_at};
use crate::line::Ticket;
use crate::time::Time;

type Sql<T> = rusqlite::Result<T>;

/// As of one transaction, at whose end it is written once, however many claims changed it.
#[derive(Debug)]
pub(super) struct Meta {
    now: Cell<Values>,
    in_file: Values,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Values {
    last_ticket: Ticket,
    /// No claim lapses before this. Renewals leave it alone: then it is too early, and the table is read for nothing once.
    earliest: Time,
}

impl Meta {
    pub(super) fn read(db: &Connection) -> Sql<Meta> {
        let in_file = db.prepare_cached(include_str!("sql/meta.sql"))?.query_row([], |row| {
            Ok(Values { last_ticket: ticket_at(row, 0)?, earliest: Time::from_micros(uint_at(row, 1)?) })
        })?;
        Ok(Meta { now: Cell::new(in_file), in_file })
    }

    pub(super) fn write(&self, db: &Connection) -> Sql<()> {
        let now = self.now.get();
        if now != self.in_file {
            let values = [int(now.last_ticket.get()), int(now.earliest.as_micros())];
            db.prepare_cached(include_str!("sql/set_meta.sql"))?.execute(values)?;
        }
        Ok(())
    }

    pub(super) fn next_ticket(&self, wall_us: u64) -> Ticket {
        let now = self.now.get();
        let last_ticket = now.last_ticket.next(wall_us);
        self.now.set(Values { last_ticket, ..now });
        last_ticket
    }

    /// A claim ends then, if nobody renews it.
    pub(super) fn ends_at(&self, deadline: Time) {
        let now = self.now.get();
        self.now.set(Values { earliest: now.earliest.min(deadline), ..now });
    }

    /// Whether there can be a claim that has ended at this time.
    pub(super) fn may_have_lapsed(&self, at: Time) -> bool {
        self.now.get().earliest <= at
    }

    /// Drops what has lapsed from all lines, and tells which those are. Reads the whole table.
    pub(super) fn drop_lapsed(&self, db: &Connection, at: Time) -> Sql<BTreeSet<String>> {
        let micros = int(at.as_micros());
        // Found first, then deleted: `RETURNING` would make SQLite build a temporary table every time, for nothing.
        let mut lapsed = db.prepare_cached(include_str!("sql/lapsed.sql"))?;
        let lines = lapsed.query_map([micros], |row| row.get(0))?.collect::<Sql<BTreeSet<String>>>()?;
        if !lines.is_empty() {
            db.prepare_cached(include_str!("sql/drop_lapsed.sql"))?.execute([micros])?;
        }
        let earliest: Option<i64> =
            db.prepare_cached(include_str!("sql/earliest.sql"))?.query_row([], |row| row.get(0))?;
        let earliest = Time::from_micros(earliest.unwrap_or(i64::MAX).unsigned_abs());
        self.now.set(Values { earliest, ..self.now.get() });
        Ok(lines)
    }
}
