//! When the log goes back into the file.
//!
//! A checkpoint syncs the disk, which takes milliseconds: never inside a commit, and if possible not on the worker's
//! thread. But it must happen, also if every process on the file lives for a millisecond only: the first to open a
//! file reads its whole log.

use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use super::file::{File, connect};

/// From this size on, a helper thread writes the log back.
const SOFT_PAGES: usize = 1000;
/// From this size on, the worker does it itself, and makes the writers wait if they never leave a gap for it.
const HARD_PAGES: usize = 8000;

#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    helper: Option<JoinHandle<()>>,
    /// The log's size at the last attempt: the next is due when it has grown by as much again.
    tried_at: usize,
}

impl Checkpoints {
    /// To be called when nobody waits for an answer.
    pub(super) fn after_commit(&mut self, file: &File) {
        let pages = file.log_pages.load(Ordering::Relaxed);
        if pages < self.tried_at {
            self.tried_at = 0;
        }
        if pages < self.tried_at + SOFT_PAGES
            || self.helper.as_ref().is_some_and(|helper| !helper.is_finished())
        {
            return;
        }
        self.tried_at = pages;
        if pages >= HARD_PAGES {
            self.make_room(file);
            return;
        }
        let path = file.path.clone();
        let helper = std::thread::Builder::new().name("lockline-log".to_owned()).spawn(move || {
            let done = connect(&path, Duration::from_millis(50))
                .and_then(|db| db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())));
            if let Err(e) = done {
                tracing::debug!(error = %e, "the log was not written back; a later commit tries again");
            }
        });
        self.helper = helper.ok();
    }

    /// Writes the whole log back, so that the next commit starts it from its beginning.
    pub(super) fn make_room(&mut self, file: &File) {
        // First without stopping anyone: what is left for the second pass, which stops the writers, is little.
        for mode in ["PRAGMA wal_checkpoint(PASSIVE)", "PRAGMA wal_checkpoint(RESTART)"] {
            if let Err(e) = file.db.query_row(mode, [], |_| Ok(())) {
                tracing::debug!(error = %e, "the log was not written back");
            }
        }
    }
}
