//! Which boot a file was used in, and what may be believed about it.
//!
//! Leases are counted on the boot clock. Whether a claim was made in *this* boot is told by that clock alone: nothing
//! happened at a moment that has not come yet. The boot id cannot tell it, because systemd-nspawn and LXC give each
//! container one of its own over the same kernel and clock. It is used in the safe direction only: an id that is new to
//! the file may mean that the power was lost, and the last commits with it, so tickets go on above all that were reserved.
//!
//! A claim of an earlier boot whose moment has passed on this boot's clock, too, cannot be told from a living one. It
//! ends with its deadline, which is at most its lease away, or when its process is found dead.

use std::time::Duration;

use rusqlite::Connection;

use crate::error::{Error, ErrorKind};
use crate::time::Time;

/// The boot clock never goes back, and is read while the file is locked. This is for clocks whose cores differ a little.
const GRANULARITY: Duration = Duration::from_millis(10);

/// What was renewed after this was renewed in another boot.
pub(super) fn last_believed(now: Time) -> Time {
    now + GRANULARITY
}

/// Whether something that happened at `then` must have happened in another boot.
pub(super) fn is_ahead(then: Time, now: Time) -> bool {
    then > last_believed(now)
}

/// Refuses to run where the boot clock is not the host's: its deadlines would be wrong by the difference for all others.
pub(super) fn refuse_other_clock() -> Result<(), Error> {
    let refuse = |message: &'static str| {
        let hint = "leases in the file are counted on the host's boot clock; run where /proc and that clock are the host's";
        Err(Error::new(ErrorKind::Unsafe, "open", message).hint(hint))
    };
    match std::fs::read_to_string("/proc/self/timens_offsets") {
        Ok(offsets) if is_shifted(&offsets) => {
            refuse("this process runs in a time namespace with a shifted boot clock")
        }
        Ok(_) => Ok(()),
        // A kernel without time namespaces has a `/proc`, but no such file.
        Err(_) if std::fs::metadata("/proc/self/stat").is_ok() => Ok(()),
        Err(_) => refuse("/proc cannot be read, which tells whether the boot clock is the host's"),
    }
}

fn is_shifted(offsets: &str) -> bool {
    let boot = offsets.lines().filter_map(|line| line.strip_prefix("boottime"));
    boot.flat_map(str::split_ascii_whitespace).any(|number| number != "0")
}

/// The boot id that this process is shown, if any.
pub(super) fn shown_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Whether the file was used under this boot id before, and not long ago.
pub(super) fn is_known(db: &Connection, id: Option<&str>) -> rusqlite::Result<bool> {
    let Some(id) = id else { return Ok(false) };
    db.prepare(include_str!("sql/is_known_boot.sql"))?.exists([id])
}

/// Takes note of a boot id, inside a transaction. Tickets that a power loss may have taken back are left out.
pub(super) fn note(db: &Connection, id: Option<&str>) -> rusqlite::Result<()> {
    db.execute(include_str!("sql/skip_reserve.sql"), [])?;
    if let Some(id) = id {
        db.execute(include_str!("sql/know_boot.sql"), [id])?;
        db.execute(include_str!("sql/forget_boots.sql"), [])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_moment_that_has_not_come_yet_is_of_another_boot() {
        let now = Time::from_micros(60_000_000);
        for then in [0, 1, 59_999_999, 60_000_000, 60_000_001, 60_010_000] {
            assert!(!is_ahead(Time::from_micros(then), now), "{then}");
        }
        for then in [60_010_001, 61_000_000, u64::MAX] {
            assert!(is_ahead(Time::from_micros(then), now), "{then}");
        }
        assert!(!is_ahead(Time::from_micros(u64::MAX), Time::from_micros(u64::MAX)));
    }

    #[test]
    fn a_shifted_boot_clock_is_told_from_others() {
        assert!(!is_shifted("monotonic           0         0\nboottime            0         0\n"));
        assert!(!is_shifted("monotonic        -100         0\nboottime            0         0\n"));
        assert!(is_shifted("monotonic           0         0\nboottime         -100         0\n"));
        assert!(is_shifted("monotonic           0         0\nboottime            0         5\n"));
    }
}
