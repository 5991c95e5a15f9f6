//! What SQLite calls while it works: when others are on the file, and when a commit went into the log.
//!
//! Both are plain functions without anything of their own: that is what rusqlite took before 0.41, and a program with sqlx or
//! diesel in it has an older one. What they need is kept per thread (SQLite calls them on the thread that asked it for
//! something) or, for how long to wait, in a small table of those durations that the process uses.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::hooks::Wal;

thread_local! {
    /// How long the log became with the last commit on this thread, in pages.
    static LOGGED: Cell<Option<usize>> = const { Cell::new(None) };
    /// Since when this thread has waited for others.
    static WAITING_SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Counts pages in place of SQLite's own checkpoints: those would run, and sync the disk, inside somebody's commit.
pub(super) fn count_log_pages(db: &mut Connection) -> rusqlite::Result<()> {
    WalHook::set(Connection::wal_hook, db)
}

/// To be called before a commit, so that afterwards another file's is not taken for this one's.
pub(super) fn forget_logged() {
    LOGGED.set(None);
}

/// How long the log is since the commit; `None` if it wrote nothing.
pub(super) fn logged() -> Option<usize> {
    LOGGED.take()
}

/// `Connection::wal_hook`, as it is in this version of rusqlite.
trait WalHook<Version> {
    fn set(self, db: &mut Connection) -> rusqlite::Result<()>;
}

struct Before41;
struct Since41;

impl<F> WalHook<Before41> for F
where
    F: FnOnce(&Connection, Option<fn(&Wal, i32) -> rusqlite::Result<()>>),
{
    fn set(self, db: &mut Connection) -> rusqlite::Result<()> {
        self(db, Some(|_, pages| note(pages)));
        Ok(())
    }
}

impl<F> WalHook<Since41> for F
where
    F: FnOnce(&mut Connection, Option<fn(&mut Wal, i32) -> rusqlite::Result<()>>) -> rusqlite::Result<()>,
{
    fn set(self, db: &mut Connection) -> rusqlite::Result<()> {
        self(db, Some(|_, pages| note(pages)))
    }
}

#[allow(clippy::unnecessary_wraps)] // As SQLite's hook has it.
fn note(pages: i32) -> rusqlite::Result<()> {
    LOGGED.set(Some(usize::try_from(pages).unwrap_or(0)));
    Ok(())
}

/// Waits for others on the file, for as long as `timeout`.
pub(super) fn wait_when_busy(db: &mut Connection, timeout: Duration) -> rusqlite::Result<()> {
    db.busy_handler(Some(HANDLERS[place(&TIMEOUTS, timeout)]))
}

type Handler = fn(i32) -> bool;

/// How many different durations a process can use; after that the nearest that is not longer is taken.
const MOST: usize = 8;

/// In microseconds and one more, so that zero is a free place.
type Timeouts = [AtomicU64; MOST];

static TIMEOUTS: Timeouts = [const { AtomicU64::new(0) }; MOST];

const HANDLERS: [Handler; MOST] =
    [wait::<0>, wait::<1>, wait::<2>, wait::<3>, wait::<4>, wait::<5>, wait::<6>, wait::<7>];

/// Where this duration stands in the table, or the nearest that does: one that is not longer, else the shortest.
fn place(timeouts: &Timeouts, timeout: Duration) -> usize {
    let wanted = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX - 1).saturating_add(1);
    let mut nearest: Option<(usize, u64)> = None;
    for (place, known) in timeouts.iter().enumerate() {
        let known = match known.compare_exchange(0, wanted, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => wanted,
            Err(known) => known,
        };
        if known == wanted {
            return place;
        }
        let is_nearer = nearest.is_none_or(|(_, so_far)| match (known <= wanted, so_far <= wanted) {
            (true, true) => known > so_far,
            (true, false) => true,
            (false, true) => false,
            (false, false) => known < so_far,
        });
        if is_nearer {
            nearest = Some((place, known));
        }
    }
    nearest.map_or(0, |(place, _)| place)
}

fn wait<const PLACE: usize>(tries: i32) -> bool {
    let micros = TIMEOUTS[PLACE].load(Ordering::Relaxed).saturating_sub(1);
    wait_for(Duration::from_micros(micros), tries)
}

/// SQLite's own handler sleeps up to 100 ms: with short transactions that is four owner changes a second.
fn wait_for(timeout: Duration, tries: i32) -> bool {
    let started = WAITING_SINCE.get().filter(|_| tries > 0).unwrap_or_else(Instant::now);
    WAITING_SINCE.set(Some(started));
    match tries {
        0..2 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(20 << (tries - 2).min(6))),
    }
    started.elapsed() < timeout
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_has_its_place_and_those_beyond_the_table_the_nearest() {
        let table: Timeouts = [const { AtomicU64::new(0) }; MOST];
        let ms = Duration::from_millis;
        for (expected, timeout) in [100, 0, 300, 200, 500, 400, 700, 600].into_iter().enumerate() {
            assert_eq!(place(&table, ms(timeout)), expected);
            assert_eq!(place(&table, ms(timeout)), expected, "again");
            assert_eq!(table[expected].load(Ordering::Relaxed), timeout * 1000 + 1);
        }
        assert_eq!(place(&table, ms(450)), 5, "400 ms");
        assert_eq!(place(&table, Duration::MAX), 6, "700 ms");
        let late: Timeouts = [9, 7, 8, 9, 9, 9, 9, 9].map(AtomicU64::new);
        assert_eq!(place(&late, Duration::ZERO), 1, "the shortest, if all are longer");
    }

    #[test]
    fn a_connection_waits_for_others_and_gives_up() {
        let path = tempfile::tempdir().unwrap();
        let path = path.path().join("x.db");
        let writer = Connection::open(&path).unwrap();
        writer.execute_batch("CREATE TABLE t (x); BEGIN IMMEDIATE").unwrap();
        let mut db = Connection::open(&path).unwrap();
        wait_when_busy(&mut db, Duration::from_millis(30)).unwrap();
        let start = Instant::now();
        assert!(db.execute_batch("BEGIN IMMEDIATE").is_err());
        assert!(start.elapsed() >= Duration::from_millis(30));
    }

    #[test]
    fn a_commit_tells_how_long_the_log_is_and_reading_tells_nothing() {
        let path = tempfile::tempdir().unwrap();
        let mut db = Connection::open(path.path().join("x.db")).unwrap();
        db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        count_log_pages(&mut db).unwrap();
        db.execute_batch("CREATE TABLE t (x)").unwrap();
        assert!(logged().is_some_and(|pages| pages > 0));
        db.query_row("SELECT count(*) FROM t", [], |_| Ok(())).unwrap();
        assert_eq!(logged(), None);
    }
}
