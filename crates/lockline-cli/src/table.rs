//! Lines of claims as people read them.

use std::fmt::Write as _;
use std::time::Duration;

use lockline::driver::Fencing;
use lockline::line::{ClaimView, LineView, Mode};

use crate::output::{Paint, visible};

/// One row per lock.
pub(crate) fn locks(lines: &[LineView], paint: Paint) -> String {
    let mut rows = vec![cells(["NAME", "MODE", "HELD BY", "HOST", "PID", "HELD FOR", "LEASE", "WAITING"])];
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
            if line.holders.is_empty() { "-".to_owned() } else { held(first) },
            age(first.remaining),
            line.waiters.len().to_string(),
        ]);
    }
    if rows.len() == 1 { String::new() } else { aligned(&rows, paint) }
}

/// One row per claim of a lock, in line order; and if nobody gets it yet, why.
pub(crate) fn claims(line: &LineView, driver: &str, paint: Paint) -> String {
    let shut = line.shut.map(|shut| shut.about(driver));
    if line.holders.is_empty() && line.waiters.is_empty() {
        let name = visible(line.name.as_str());
        return match shut {
            Some(shut) => format!("{name} is shut: {shut}\n"),
            None => format!("{name} is free\n"),
        };
    }
    let mut rows =
        vec![cells(["STATE", "TICKET", "OWNER", "HOST", "PID", "MODE", "WAITED", "HELD FOR", "LEASE"])];
    rows.extend(line.holders.iter().map(|claim| row(if claim.evicted { "evicted" } else { "holds" }, claim)));
    rows.extend(line.waiters.iter().map(|claim| row("waits", claim)));
    let shut = shut.map(|shut| format!(" (shut: {shut})")).unwrap_or_default();
    format!("{}{shut}\n{}", paint.bold(&visible(line.name.as_str())), aligned(&rows, paint))
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

/// How long a holder has held it; with a sign where the engine keeps only how long it has stood in line.
pub(crate) fn held(holder: &ClaimView) -> String {
    holder.held.map_or_else(|| format!("≤{}", age(holder.since)), age)
}

/// A holder, as others are told of it.
pub(crate) fn whom(holder: &ClaimView) -> String {
    let (owner, host) = (visible(&holder.who.owner), visible(&holder.who.host));
    let held = match holder.held {
        Some(held) => age(held),
        None => format!("at most {}", age(holder.since)),
    };
    format!("{owner} ({host}, pid {}) for {held}", holder.who.pid)
}

fn row(state: &str, claim: &ClaimView) -> Vec<String> {
    let (waited, held_for) = match (state, claim.held) {
        ("waits", _) => (age(claim.since), "-".to_owned()),
        (_, Some(held)) => (age(claim.since.saturating_sub(held)), age(held)),
        (_, None) => ("?".to_owned(), held(claim)),
    };
    vec![
        state.to_owned(),
        claim.ticket.get().to_string(),
        visible(&claim.who.owner).into_owned(),
        visible(&claim.who.host).into_owned(),
        claim.who.pid.to_string(),
        mode(claim.mode),
        waited,
        held_for,
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
