//! One transaction: what each begins and ends with, and the tickets it may give.

use super::checkpoint::Checkpoints;
use super::error::Failure;
use super::verbs::{Ledger, Ring};
use super::worker::{Room, Worker};
use super::{hooks, room, tickets};

/// What a transaction did.
pub(super) struct Committed<T> {
    answer: T,
    pub(super) rings: Vec<Ring>,
    /// Few free pages are left.
    low_on_room: bool,
    low_on_tickets: Option<u64>,
}

impl Worker {
    /// One transaction, and its bells. If it may make places but the tickets for them have yet to be reserved, that is done
    /// between two transactions: the disk is slow, and nobody else should wait for it.
    pub(super) fn transact<T>(
        &mut self,
        may_join: bool,
        body: impl FnOnce(&mut Ledger<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        let mut body = Some(body);
        loop {
            let done = self.commit(|ledger| match body.take_if(|_| !may_join || ledger.has_tickets()) {
                Some(body) => body(ledger).map(Some),
                None => Ok(None),
            })?;
            if done.low_on_room {
                self.room = Room::Little;
            }
            self.low_on_tickets = done.low_on_tickets.filter(|_| may_join).or(self.low_on_tickets);
            let silent = self.belfry.ring(done.rings);
            if !silent.is_empty() {
                self.bury(silent);
            }
            if let Some(answer) = done.answer {
                return Ok(answer);
            }
            tickets::reserve(&self.file.db, &self.file.log, self.clock.now().ticket_us)?;
        }
    }

    pub(super) fn commit<T>(
        &self,
        body: impl FnOnce(&mut Ledger<'_>) -> rusqlite::Result<T>,
    ) -> Result<Committed<T>, Failure> {
        let db = &self.file.db;
        db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        // The moment is read when the file is ours: it may have taken a while, and times must not run backwards.
        let now = self.clock.now();
        let done = Ledger::open(db, self.me, now).and_then(|mut ledger| {
            let answer = body(&mut ledger)?;
            let low_on_room = ledger.has_new_places() && room::is_low(db)?;
            let low_on_tickets = ledger.is_low_on_tickets().then_some(now.ticket_us);
            Ok(Committed { answer, rings: ledger.close()?, low_on_room, low_on_tickets })
        });
        hooks::forget_logged();
        let result = match done {
            Ok(done) => match db.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])) {
                Ok(_) => {
                    if let Some(pages) = hooks::logged() {
                        self.file.log_pages.set(pages);
                    }
                    return Ok(done);
                }
                Err(error) => Err(Failure { error, at_commit: true }),
            },
            Err(error) => Err(Failure::from(error)),
        };
        if !db.is_autocommit() {
            // It fails only if SQLite has rolled back by itself.
            let _ = db.execute_batch("ROLLBACK");
        }
        result
    }

    pub(super) fn transact_with_room<T>(
        &mut self,
        may_join: bool,
        body: impl FnOnce(&mut Ledger<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        Checkpoints::make_room(&self.file);
        self.transact(may_join, body)
    }
}
