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
}
