//! Lines as people see them.

use rusqlite::{Connection, Row, Rows};

use super::boot;
use super::rows::{int, mode_at, stored_name, ticket_at, uint_at};
use crate::driver::Query;
use crate::line::{ClaimView, LineView, Who};
use crate::time::Time;

/// Whether some claim has lapsed, or is of another boot: then a view is worth a write before it.
pub(super) fn any_lapsed(db: &Connection, now: Time) -> rusqlite::Result<bool> {
    let times = [int(now.as_micros()), int(boot::last_believed(now).as_micros())];
    db.prepare_cached(include_str!("sql/any_lapsed.sql"))?.exists(times)
}

/// Reads lines, without taking part in them.
pub(super) fn view(db: &Connection, query: &Query, now: Time) -> rusqlite::Result<Vec<LineView>> {
    let now_us = int(now.as_micros());
    match query {
        Query::Name(name) => {
            let mut select = db.prepare_cached(include_str!("sql/view_one.sql"))?;
            collect(select.query((name.as_str(), now_us))?, query, now)
        }
        Query::Prefix(prefix) => {
            // Names are ordered by their bytes: those with the prefix stand together, from the prefix on.
            let mut select = db.prepare_cached(include_str!("sql/view.sql"))?;
            collect(select.query((prefix, now_us))?, query, now)
        }
    }
}

fn collect(mut rows: Rows<'_>, query: &Query, now: Time) -> rusqlite::Result<Vec<LineView>> {
    let mut lines: Vec<LineView> = Vec::new();
    while let Some(row) = rows.next()? {
        let name = row.get_ref(0)?.as_str()?;
        if !query.matches(name) {
            break;
        }
        if lines.last().is_none_or(|line| line.name.as_str() != name) {
            lines.push(LineView::free(stored_name(name)?));
        }
        let Some(line) = lines.last_mut() else { continue };
        let list = if row.get(5)? { &mut line.holders } else { &mut line.waiters };
        list.push(claim(row, now)?);
    }
    Ok(lines)
}

fn claim(row: &Row<'_>, now: Time) -> rusqlite::Result<ClaimView> {
    Ok(ClaimView {
        ticket: ticket_at(row, 1)?,
        mode: mode_at(row, 2)?,
        who: Who { owner: row.get(9)?, host: row.get(10)?, pid: row.get(11)? },
        remaining: Time::from_micros(uint_at(row, 7)?).since(now),
        since: now.since(Time::from_micros(uint_at(row, 8)?)),
        held: Some(uint_at(row, 12)?)
            .filter(|entered| *entered > 0)
            .map(|entered| now.since(Time::from_micros(entered))),
        evicted: row.get(6)?,
    })
}
