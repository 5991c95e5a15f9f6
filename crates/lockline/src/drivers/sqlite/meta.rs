//! What the file keeps for all lines together: the ticket counter, when a claim may lapse next, and of which boot it is.

use std::cell::Cell;
use std::collections::BTreeSet;

use rusqlite::Connection;

use super::boot;
use super::rows::{int, ticket_at, uint_at};
use super::tickets::AHEAD_US;
use super::worker::MOST_AT_ONCE;
use crate::line::{Now, Ticket};
use crate::time::Time;

type Sql<T> = rusqlite::Result<T>;

/// As of one transaction, at whose end it is written once, however many claims changed it.
#[derive(Debug)]
pub(super) struct Meta {
    now: Cell<Values>,
    in_file: Values,
    /// Only tickets below it are given: see [`tickets`](super::tickets).
    ticket_limit: u64,
    ticket_reserve: Ticket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Values {
    last_ticket: Ticket,
    /// No claim lapses before this. Renewals leave it alone: then it is too early, and the table is read for nothing once.
    earliest: Time,
    /// No claim was renewed after this.
    latest: Time,
}

impl Meta {
    pub(super) fn read(db: &Connection) -> Sql<Meta> {
        db.prepare_cached(include_str!("sql/meta.sql"))?.query_row([], |row| {
            let in_file = Values {
                last_ticket: ticket_at(row, 0)?,
                earliest: Time::from_micros(uint_at(row, 1)?),
                latest: Time::from_micros(uint_at(row, 2)?),
            };
            let (ticket_limit, ticket_reserve) = (uint_at(row, 3)?, ticket_at(row, 4)?);
            Ok(Meta { now: Cell::new(in_file), in_file, ticket_limit, ticket_reserve })
        })
    }

    pub(super) fn write(&self, db: &Connection) -> Sql<()> {
        let now = self.now.get();
        if now != self.in_file {
            let values =
                [int(now.last_ticket.get()), int(now.earliest.as_micros()), int(now.latest.as_micros())];
            db.prepare_cached(include_str!("sql/set_meta.sql"))?.execute(values)?;
        }
        Ok(())
    }

    /// Whether there are tickets for a whole transaction.
    pub(super) fn has_tickets(&self, wall_us: u64) -> bool {
        self.tickets_left(wall_us) > MOST_AT_ONCE as u64
    }

    /// Whether it is time to reserve more of them.
    pub(super) fn is_low_on_tickets(&self, wall_us: u64) -> bool {
        self.tickets_left(wall_us) < AHEAD_US / 2
    }

    fn tickets_left(&self, wall_us: u64) -> u64 {
        self.ticket_limit.saturating_sub(self.now.get().last_ticket.next(wall_us).get())
    }

    pub(super) fn next_ticket(&self, wall_us: u64) -> Ticket {
        let now = self.now.get();
        let last_ticket = now.last_ticket.next(wall_us);
        debug_assert!(last_ticket.get() < self.ticket_limit, "a power loss could give {last_ticket:?} again");
        self.now.set(Values { last_ticket, ..now });
        last_ticket
    }

    /// A claim is joined or renewed now, and ends then if nobody renews it.
    pub(super) fn renewed(&self, at: Time, deadline: Time) {
        let now = self.now.get();
        self.now.set(Values { earliest: now.earliest.min(deadline), latest: now.latest.max(at), ..now });
    }

    /// Whether there can be a claim that has ended at this time.
    pub(super) fn may_have_lapsed(&self, at: Time) -> bool {
        self.now.get().earliest <= at
    }

    /// Whether the file was last used under a clock that is ahead of this one: before the host was started again.
    pub(super) fn is_of_another_boot(&self, at: Time) -> bool {
        boot::is_ahead(self.now.get().latest, at)
    }

    /// Begins with this boot: the tickets that a power loss may have taken back are left out.
    pub(super) fn begin_boot(&self, Now { at, .. }: Now) {
        let now = self.now.get();
        let last_ticket = now.last_ticket.max(self.ticket_reserve);
        self.now.set(Values { last_ticket, latest: at, ..now });
    }

    /// Drops what has lapsed from all lines, or was renewed in another boot, and tells which those are. Reads the whole
    /// table.
    pub(super) fn drop_lapsed(&self, db: &Connection, at: Time) -> Sql<BTreeSet<String>> {
        let times = [int(at.as_micros()), int(boot::last_believed(at).as_micros())];
        // Found first, then deleted: `RETURNING` would make SQLite build a temporary table every time, for nothing.
        let mut lapsed = db.prepare_cached(include_str!("sql/lapsed.sql"))?;
        let lines = lapsed.query_map(times, |row| row.get(0))?.collect::<Sql<BTreeSet<String>>>()?;
        if !lines.is_empty() {
            db.prepare_cached(include_str!("sql/drop_lapsed.sql"))?.execute(times)?;
        }
        let earliest: Option<i64> =
            db.prepare_cached(include_str!("sql/earliest.sql"))?.query_row([], |row| row.get(0))?;
        let earliest = Time::from_micros(earliest.unwrap_or(i64::MAX).unsigned_abs());
        self.now.set(Values { earliest, ..self.now.get() });
        Ok(lines)
    }
}
