//! Lines of claims as people read them.

use std::fmt::Write as _;
use std::time::Duration;

use lockline::driver::Fencing;
use lockline::line::{ClaimView, LineView, Mode};

use crate::output::{Paint, visible};

/// One row per lock.
pub(crate) fn locks(lines: &[LineView], paint: Paint) -> String {
    let mut rows = vec![cells(["NAME", "MODE", "HELD BY", "HOST", "PID", "IN LINE", "LEASE", "WAITING"])];
    for line in lines {
        let Some(first) = line.holders.first().or(line.waiters.first()) else { continue };
        let more = line.holders.len().saturating_sub(1);
        let holder = if line.holders.is_empty() {
            "(nobody yet)".to_owned()
        } else if more > 0 {
            format!("{} +{more}", visible(&first.who.owner))
        } else {
            visible(&first.who.owner).into_owned()
        };
        rows.push(vec![
            visible(line.name.as_str()).into_owned(),
            mode(first.mode),
            holder,
            visible(&first.who.host).into_owned(),
            first.who.pid.to_string(),
            age(first.since),
            age(first.remaining),
            line.waiters.len().to_string(),
        ]);
    }
    if rows.len() == 1 { String::new() } else { aligned(&rows, paint) }
}

/// One row per claim of a lock, in line order.
pub(crate) fn claims(line: &LineView, paint: Paint) -> String {
    if line.holders.is_empty() && line.waiters.is_empty() {
        return format!("{} is free\n", visible(line.name.as_str()));
    }
    let mut rows = vec![cells(["STATE", "TICKET", "OWNER", "HOST", "PID", "MODE", "IN LINE", "LEASE"])];
    rows.extend(line.holders.iter().map(|claim| row(if claim.evicted { "evicted" } else { "holds" }, claim)));
    rows.extend(line.waiters.iter().map(|claim| row("waits", claim)));
    format!("{}\n{}", paint.bold(&visible(line.name.as_str())), aligned(&rows, paint))
}

/// A lock in one line, for a log.
pub(crate) fn sentence(line: &LineView, fencing: Fencing) -> String {
    let name = visible(line.name.as_str());
    let waiting = line.waiters.len();
    match line.holders.as_slice() {
        [] if waiting == 0 => format!("{name}: free"),
        [] => format!("{name}: held by nobody yet, {waiting} waiting"),
        [first, rest @ ..] => {
            let who = format!(
                "{} ({}, pid {})",
                visible(&first.who.owner),
                visible(&first.who.host),
                first.who.pid
            );
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            let evicted = if first.evicted { ", evicted" } else { "" };
            let number = if fencing == Fencing::None { "ticket" } else { "token" };
            format!(
                "{name}: held by {who}{more}{evicted}, {number} {}, {waiting} waiting",
                first.ticket.get()
            )
        }
    }
}

/// A duration with as much precision as is worth reading: `350ms`, `12s`, `3m 5s`, `2h 10m`.
pub(crate) fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.subsec_millis()),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        _ => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
    }
}

fn row(state: &str, claim: &ClaimView) -> Vec<String> {
    vec![
        state.to_owned(),
        claim.ticket.get().to_string(),
        visible(&claim.who.owner).into_owned(),
        visible(&claim.who.host).into_owned(),
        claim.who.pid.to_string(),
        mode(claim.mode),
        age(claim.since),
        age(claim.remaining),
    ]
}

fn mode(mode: Mode) -> String {
    match mode {
        Mode::Permits { count, limit } => format!("permits {count}/{limit}"),
        other => other.word().to_owned(),
    }
}

fn cells<const N: usize>(titles: [&str; N]) -> Vec<String> {
    titles.map(str::to_owned).to_vec()
}

fn aligned(rows: &[Vec<String>], paint: Paint) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        let line = line.trim_end();
        let line = if number == 0 {
            paint.dim(line)
        } else if row[0] == "holds" {
            paint.green(line)
        } else {
            line.to_owned()
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        assert_eq!(age(Duration::from_millis(350)), "350ms");
        assert_eq!(age(Duration::from_millis(12_900)), "12s");
        assert_eq!(age(Duration::from_secs(185)), "3m 5s");
        assert_eq!(age(Duration::from_secs(7_800)), "2h 10m");
    }
}
