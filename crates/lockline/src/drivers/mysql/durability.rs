//! What the server does for what it answers. What an operator can change while it runs is said by every answer to a join or a renewal; the
//! rest is read with every session.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::driver::{Exclusion, Fencing, Guarantees};

/// True (1) if a crash may take back what was answered, as statements read it, at the moment: the log is not on the disk before
/// the answer; or the binary log is not, and by that one the server decides after a crash which transactions there were.
pub(super) const WEAK: &str =
    "(@@global.innodb_flush_log_at_trx_commit <> 1 OR (@@global.log_bin AND @@global.sync_binlog <> 1))";

/// What can change while the server runs keeps less.
const NOW: u8 = 1;
/// What the server was started with keeps less.
const ALWAYS: u8 = 2;

/// The last that was heard of it.
#[derive(Debug)]
pub(super) struct Durability {
    weak: AtomicU8,
    is_mysql: AtomicBool,
}

impl Default for Durability {
    fn default() -> Durability {
        Durability { weak: AtomicU8::new(NOW | ALWAYS), is_mysql: AtomicBool::new(false) }
    }
}

impl Durability {
    /// Notes what an answer says.
    pub(super) fn note(&self, is_weak: bool) {
        self.set(NOW, is_weak);
    }

    /// Notes what the server's settings say, as a new session finds them.
    pub(super) fn read(&self, settings: &HashMap<String, String>) {
        let is = |name: &str, values: &[&str]| {
            settings.get(name).is_some_and(|set| values.iter().any(|value| set.eq_ignore_ascii_case(value)))
        };
        let is_mysql = settings.get("version").is_some_and(|version| !version.contains("MariaDB"));
        self.is_mysql.store(is_mysql, Ordering::Relaxed);
        let log_is_kept = is("innodb_flush_log_at_trx_commit", &["1"]);
        let binary_log_is_kept = !is("log_bin", &["ON", "1"]) || is("sync_binlog", &["1"]);
        self.set(NOW, !log_is_kept || !binary_log_is_kept);
        // Nothing is waited for; half a page may be found after a power loss; several servers take writes at once.
        let syncs_nothing = is("innodb_flush_method", &["nosync", "littlesync"]);
        let tears_pages = is("innodb_doublewrite", &["OFF", "0", "DETECT_ONLY"]);
        let is_cluster = is("wsrep_on", &["ON", "1"]);
        self.set(ALWAYS, syncs_nothing || tears_pages || is_cluster);
    }

    fn set(&self, bit: u8, is_weak: bool) {
        if is_weak {
            self.weak.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.weak.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Whether it is MySQL itself, whose sessions cannot be told to wait for no row.
    pub(super) fn is_mysql(&self) -> bool {
        self.is_mysql.load(Ordering::Relaxed)
    }

    /// What a lock can promise now.
    pub(super) fn guarantees(&self) -> Guarantees {
        if self.weak.load(Ordering::Relaxed) == 0 {
            Guarantees { fencing: Fencing::Always, exclusion: Exclusion::NoForwardStep }
        } else {
            Guarantees { fencing: Fencing::ClockBounded, exclusion: Exclusion::Probable }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(settings: &[(&str, &str)]) -> Exclusion {
        let durability = Durability::default();
        durability.read(&settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect());
        durability.guarantees().exclusion
    }

    #[test]
    fn the_row_says_no_more_than_what_the_settings_keep() {
        let kept = ("innodb_flush_log_at_trx_commit", "1");
        assert_eq!(row(&[kept]), Exclusion::NoForwardStep);
        assert_eq!(row(&[kept, ("log_bin", "ON"), ("sync_binlog", "1")]), Exclusion::NoForwardStep);
        assert_eq!(row(&[kept, ("log_bin", "OFF"), ("sync_binlog", "0")]), Exclusion::NoForwardStep);
        for weak in [
            &[][..],
            &[("innodb_flush_log_at_trx_commit", "0")],
            &[("innodb_flush_log_at_trx_commit", "2")],
            &[kept, ("log_bin", "ON"), ("sync_binlog", "0")],
            &[kept, ("innodb_flush_method", "nosync")],
            &[kept, ("innodb_doublewrite", "OFF")],
            &[kept, ("wsrep_on", "ON")],
        ] {
            assert_eq!(row(weak), Exclusion::Probable, "{weak:?}");
        }
    }

    #[test]
    fn what_changes_while_it_runs_is_noticed_both_ways() {
        let durability = Durability::default();
        durability.read(&HashMap::from([("innodb_flush_log_at_trx_commit".to_owned(), "1".to_owned())]));
        durability.note(true);
        assert_eq!(durability.guarantees().fencing, Fencing::ClockBounded);
        durability.note(false);
        assert_eq!(durability.guarantees().fencing, Fencing::Always);
    }
}
