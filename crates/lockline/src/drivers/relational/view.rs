//! Rows of claims as lines that people can read.

use std::collections::BTreeMap;

use crate::driver::Query;
use crate::line::{ClaimView, LineView, Mode, Ticket, Who};
use crate::name::Name;
use crate::time::Time;

/// One row of a view: a claim, its line, and the moment it was read. Rows come in line order.
pub(in crate::drivers) struct ClaimRow {
    pub(in crate::drivers) name: String,
    pub(in crate::drivers) is_in: bool,
    pub(in crate::drivers) now_us: i64,
    pub(in crate::drivers) ticket: i64,
    pub(in crate::drivers) kind: i16,
    pub(in crate::drivers) permits: i64,
    pub(in crate::drivers) permit_limit: i64,
    pub(in crate::drivers) deadline_us: i64,
    pub(in crate::drivers) since_us: i64,
    /// When it got in, if that was kept.
    pub(in crate::drivers) entered_us: Option<i64>,
    pub(in crate::drivers) closed: bool,
    pub(in crate::drivers) owner: String,
    pub(in crate::drivers) host: String,
    pub(in crate::drivers) pid: i64,
}

/// The lines that are asked for, sorted by name.
pub(in crate::drivers) fn assemble(rows: Vec<ClaimRow>, query: &Query) -> Vec<LineView> {
    let mut lines: BTreeMap<Name, LineView> = BTreeMap::new();
    for row in rows.into_iter().filter(|row| query.matches(&row.name)) {
        // Only something else than Lockline can have written a bad name.
        let Ok(name) = Name::new(&row.name) else { continue };
        let line = lines.entry(name.clone()).or_insert_with(|| LineView::free(name));
        let list = if row.is_in { &mut line.holders } else { &mut line.waiters };
        list.push(row.claim());
    }
    lines.into_values().collect()
}

impl ClaimRow {
    fn claim(self) -> ClaimView {
        let count = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        let now = time(self.now_us);
        ClaimView {
            ticket: Ticket::new(self.ticket.unsigned_abs()),
            // An unknown kind is read as exclusive: it lets nobody in beside it.
            mode: match self.kind {
                1 => Mode::Shared,
                2 => Mode::Permits { count: count(self.permits), limit: count(self.permit_limit) },
                _ => Mode::Exclusive,
            },
            who: Who { owner: self.owner, host: self.host, pid: count(self.pid) },
            remaining: time(self.deadline_us).since(now),
            since: now.since(time(self.since_us)),
            held: self.entered_us.filter(|_| self.is_in).map(|entered| now.since(time(entered))),
            evicted: self.closed,
        }
    }
}

fn time(micros: i64) -> Time {
    Time::from_micros(micros.max(0).unsigned_abs())
}
