//! When the log goes back into the file.
//!
//! A checkpoint syncs the disk, which takes milliseconds: never inside a commit, and if possible not on the worker's
//! thread. But it must happen: the first process to open a file reads its whole log, two microseconds a page. So the
//! log is written back when it is quiet; under load only when it has become large; and by a process that finds a long
//! one with its first commit, because where all processes live for a millisecond, it never is quiet.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::file::{File, connect};

/// Worth writing back when nobody asks for anything.
const WHEN_QUIET: usize = 200;
/// A process that finds this much with its first commit writes it back before it goes on. A command leaves three pages:
/// one of thirty pays for the disk, and all read fifty pages less, on average, than with twice as much.
const WHEN_FIRST: usize = 100;
/// Written back under load, making all writers wait at the end: they leave no gap for it.
const WHEN_BUSY: usize = 8000;
/// So long without a request is quiet.
const QUIET: Duration = Duration::from_millis(50);
/// A process that ends sooner is a short-lived one, whose end should not wait for the disk.
const YOUNG: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Checkpoints {
    helper: Option<JoinHandle<()>>,
    opened: Instant,
    committed: bool,
}

impl Checkpoints {
    pub(super) fn new() -> Checkpoints {
        Checkpoints { helper: None, opened: Instant::now(), committed: false }
    }

    /// When to call [`when_quiet`](Checkpoints::when_quiet), if nothing is asked before.
    pub(super) fn quiet_in(&self, file: &File) -> Option<Duration> {
        (file.log_pages.get() >= WHEN_QUIET).then_some(QUIET)
    }

    pub(super) fn when_quiet(&mut self, file: &File) {
        self.help(file, false);
    }

    /// To be called when everyone has been answered.
    pub(super) fn after_commit(&mut self, file: &File) {
        let pages = file.log_pages.get();
        let first = pages > 0 && !self.committed;
        self.committed |= first;
        if first && pages >= WHEN_FIRST {
            write_back(&file.db, false);
            file.log_pages.set(0);
        } else if pages >= WHEN_BUSY {
            self.help(file, true);
        }
    }

    /// The last thing a driver does.
    pub(super) fn at_the_end(&self, file: &File) {
        if self.opened.elapsed() >= YOUNG && file.log_pages.get() >= WHEN_QUIET {
            write_back(&file.db, false);
        }
    }

    /// On a full disk the log cannot grow, but it can start again from its beginning.
    pub(super) fn make_room(file: &File) {
        write_back(&file.db, true);
    }

    fn help(&mut self, file: &File, insist: bool) {
        if self.helper.as_ref().is_some_and(|helper| !helper.is_finished()) {
            return;
        }
        // Until the next commit tells better: one attempt for what is there now.
        file.log_pages.set(0);
        let path = file.path.clone();
        let helper =
            std::thread::Builder::new().name("lockline-log".to_owned()).spawn(move || {
                match connect(&path, Duration::from_millis(100)) {
                    Ok(db) => write_back(&db, insist),
                    Err(e) => tracing::debug!(error = %e, "the log was not written back"),
                }
            });
        self.helper = helper.ok();
    }
}

/// Writes the log back and starts it again. Without `insist` only if no other process writes meanwhile.
fn write_back(db: &Connection, insist: bool) {
    if let Err(e) = try_write_back(db, insist) {
        // A later commit tries again; the log is only longer than it need be.
        tracing::debug!(error = %e, "the log was not written back");
    }
}

fn try_write_back(db: &Connection, insist: bool) -> rusqlite::Result<()> {
    // A connection that has read nothing does not know yet that there is a log.
    db.query_row("SELECT 1 FROM meta", [], |_| Ok(()))?;
    // First without stopping anyone; what is left for the second pass, which stops the writers, is little.
    let (logged, written): (i64, i64) =
        db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| Ok((row.get(1)?, row.get(2)?)))?;
    if logged != written && !insist {
        return Ok(());
    }
    db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))?;
    // The log starts again with the next commit, which syncs its new head: better this one than somebody's handover.
    // Until then whoever opens the file first would read the old log to its end.
    db.execute("UPDATE meta SET last_ticket = last_ticket", []).map(drop)
}
