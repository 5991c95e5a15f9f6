//! The one thread that owns the connection. SQLite blocks; nothing that blocks may run on the caller's runtime.
//!
//! It takes all requests that wait, runs them in one transaction, and after the commit rings and answers. The queue is
//! first in, first out, so a `leave` cannot overtake its `join`.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};

use tokio::sync::oneshot;

use super::bell::Belfry;
use super::checkpoint::Checkpoints;
use super::config::Clock;
use super::error::Failure;
use super::file::File;
use super::process::{Process, Watches};
use super::verbs::{Ledger, Ring, holds_of, processes_ahead};
use super::view;
use crate::driver::Query;
use crate::error::{Error, ErrorKind};
use crate::line::{Claim, ClaimId, LineView, Now, Place, Refusal, Standing, Ticket};
use crate::name::Name;

/// The most requests in one transaction: it must stay short, because everyone on the file waits for it.
const MOST_AT_ONCE: usize = 256;
/// How many rows at the head of a line are looked at for processes to watch.
const WATCHED_ROWS: u32 = 16;

pub(super) type Queue = Sender<Request>;
pub(super) type Reply = oneshot::Sender<Result<Done, Error>>;

#[derive(Debug)]
pub(super) enum Request {
    Work(Work, Reply),
    View(Query, oneshot::Sender<Result<Vec<LineView>, Error>>),
    /// A watched process ended.
    Died(Process),
}

/// What changes lines.
#[derive(Debug)]
pub(super) enum Work {
    Join(Claim, bool),
    Renew(Vec<Place>),
    Leave(Name, ClaimId),
    Evict(Name, Ticket, bool),
}

/// The answer to it.
#[derive(Debug)]
pub(super) enum Done {
    Joined(Result<Standing, Refusal>),
    Renewed(Vec<Standing>),
    Left,
    Evicted(bool),
}

impl Work {
    fn run(&self, ledger: &mut Ledger<'_>) -> rusqlite::Result<Done> {
        Ok(match self {
            Work::Join(claim, wait) => Done::Joined(ledger.join(claim, *wait)?),
            Work::Renew(places) => Done::Renewed(
                places.iter().map(|place| ledger.renew(place)).collect::<rusqlite::Result<_>>()?,
            ),
            Work::Leave(name, id) => {
                ledger.leave(name, *id)?;
                Done::Left
            }
            Work::Evict(name, ticket, at_once) => Done::Evicted(ledger.evict(name, *ticket, *at_once)?),
        })
    }

    fn verb(&self) -> &'static str {
        match self {
            Work::Join(..) => "join",
            Work::Renew(..) => "renew",
            Work::Leave(..) => "leave",
            Work::Evict(..) => "evict",
        }
    }
}

pub(super) struct Worker {
    pub(super) file: File,
    pub(super) clock: Clock,
    pub(super) me: Process,
    pub(super) address: Arc<str>,
    pub(super) belfry: Belfry,
    pub(super) watches: Watches,
    pub(super) checkpoints: Checkpoints,
    /// Weak: what waits for a process to end must not keep this thread alive.
    pub(super) queue: Weak<Queue>,
}

impl Worker {
    /// Serves until the driver is dropped and everything it asked for is done.
    pub(super) fn run(mut self, requests: &Receiver<Request>) {
        loop {
            let pause = self.belfry.retry_in().or_else(|| self.checkpoints.quiet_in(&self.file));
            let first = match pause {
                None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(pause) => requests.recv_timeout(pause),
            };
            match first {
                Ok(first) => self.serve(first, requests),
                Err(RecvTimeoutError::Timeout) => self.idle(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.checkpoints.after_commit(&self.file);
        }
        self.checkpoints.at_the_end(&self.file);
    }

    fn idle(&mut self) {
        if self.belfry.retry_in().is_some() {
            let silent = self.belfry.retry();
            self.bury(silent);
        } else {
            self.checkpoints.when_quiet(&self.file);
        }
    }

    fn serve(&mut self, first: Request, requests: &Receiver<Request>) {
        let mut jobs = Vec::new();
        let mut views = Vec::new();
        let mut died = Vec::new();
        for request in std::iter::once(first).chain(requests.try_iter().take(MOST_AT_ONCE - 1)) {
            match request {
                // Nobody waits for this join any more, and it has not happened: let it not happen.
                Request::Work(Work::Join(..), reply) if reply.is_closed() => {}
                Request::Work(work, reply) => jobs.push((work, reply)),
                Request::View(query, reply) => views.push((query, reply)),
                Request::Died(process) => died.push(process),
            }
        }
        if let Some(error) = self.replaced() {
            jobs.into_iter().for_each(|(work, reply)| drop(reply.send(Err(error(work.verb())))));
            views.into_iter().for_each(|(_, reply)| drop(reply.send(Err(error("view")))));
            return;
        }
        self.bury(died);
        self.work(jobs);
        for (query, reply) in views {
            let view = self.view(&query);
            // The caller may have gone: nothing depends on its hearing it.
            let _ = reply.send(view);
        }
    }

    /// Whether the path leads to another file by now. Those who open it hold locks there that this driver cannot see.
    fn replaced(&self) -> Option<impl Fn(&'static str) -> Error + use<>> {
        use std::os::unix::fs::MetadataExt;
        let there = std::fs::metadata(&self.file.path).map(|found| (found.dev(), found.ino()));
        if there.is_ok_and(|there| there == self.file.identity) {
            return None;
        }
        let address = self.address.clone();
        Some(move |verb| {
            Error::new(ErrorKind::Unsafe, verb, "the file was removed or replaced while it was in use")
                .hint("restart the processes that use it, and never remove the file while one runs")
                .at(&address)
        })
    }

    fn work(&mut self, jobs: Vec<(Work, Reply)>) {
        let (works, replies): (Vec<Work>, Vec<Reply>) = jobs.into_iter().unzip();
        let mut again = Vec::new();
        let mut waiting = Vec::new();
        let outcomes = self.attempt(&works);
        for ((work, outcome), reply) in works.into_iter().zip(outcomes).zip(replies) {
            match (&work, &outcome) {
                (Work::Join(..), Ok(Done::Joined(Ok(Standing::Waiting { .. } | Standing::Out)))) => {
                    again.push((work, outcome, reply));
                    continue;
                }
                (Work::Renew(places), Ok(Done::Renewed(standings))) => {
                    let still = places.iter().zip(standings);
                    let still = still.filter(|(_, standing)| matches!(standing, Standing::Waiting { .. }));
                    waiting.extend(still.map(|(place, _)| place.name.clone()));
                }
                _ => {}
            }
            let _ = reply.send(outcome);
        }
        self.look_twice(again);
        waiting.sort();
        waiting.dedup();
        for name in &waiting {
            self.bury_ahead(name);
        }
    }

    /// A join that is not in is asked once more if something may have changed for it since: the first that waits hangs
    /// up the bell, and a bell rung before that found nobody; and a holder may be found dead, which no lease tells.
    fn look_twice(&mut self, joins: Vec<(Work, Result<Done, Error>, Reply)>) {
        let mut again = Vec::new();
        for (work, outcome, reply) in joins {
            let Work::Join(claim, wait) = &work else { continue };
            let hung_up = *wait && self.hang_up_bell();
            let buried = self.bury_ahead(&claim.name);
            if hung_up || buried {
                again.push((work, reply));
            } else {
                let _ = reply.send(outcome);
            }
        }
        let (works, replies): (Vec<Work>, Vec<Reply>) = again.into_iter().unzip();
        for (outcome, reply) in self.attempt(&works).into_iter().zip(replies) {
            let _ = reply.send(outcome);
        }
    }

    /// Whether the bell was hung up just now.
    fn hang_up_bell(&mut self) -> bool {
        if self.belfry.is_listening() {
            return false;
        }
        match self.belfry.listen() {
            Ok(()) => true,
            Err(e) => {
                tracing::warn!(error = %e, "no bell: waiting claims look again by themselves");
                false
            }
        }
    }

    /// Runs all of it in one transaction; if that fails, each in its own, so that one that cannot be done does not
    /// stop the others. Rings after each commit.
    fn attempt(&mut self, works: &[Work]) -> Vec<Result<Done, Error>> {
        if works.is_empty() {
            return Vec::new();
        }
        let all = self.transact(|ledger| {
            works.iter().map(|work| work.run(ledger)).collect::<rusqlite::Result<Vec<_>>>()
        });
        match all {
            Ok(done) => done.into_iter().map(Ok).collect(),
            Err(failure) if works.len() == 1 && !failure.is_full() => {
                vec![Err(failure.explain(works[0].verb(), &self.address))]
            }
            Err(_) => works.iter().map(|work| self.attempt_alone(work)).collect(),
        }
    }

    fn attempt_alone(&mut self, work: &Work) -> Result<Done, Error> {
        let mut outcome = self.transact(|ledger| work.run(ledger));
        if outcome.as_ref().is_err_and(Failure::is_full) {
            // On a full disk the log cannot grow, but it can start again from its beginning.
            Checkpoints::make_room(&self.file);
            outcome = self.transact(|ledger| work.run(ledger));
        }
        outcome.map_err(|failure| failure.explain(work.verb(), &self.address))
    }

    /// One transaction, and its bells.
    fn transact<T>(
        &mut self,
        body: impl FnOnce(&mut Ledger<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        let (answer, rings) = self.commit(body)?;
        let silent = self.belfry.ring(rings);
        if !silent.is_empty() {
            self.bury(silent);
        }
        Ok(answer)
    }

    fn commit<T>(
        &self,
        body: impl FnOnce(&mut Ledger<'_>) -> rusqlite::Result<T>,
    ) -> Result<(T, Vec<Ring>), Failure> {
        let db = &self.file.db;
        db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        // The moment is read when the file is ours: it may have taken a while, and times must not run backwards.
        let now = self.clock.now();
        let done = Ledger::open(db, self.me, now).and_then(|mut ledger| {
            let answer = body(&mut ledger)?;
            Ok((answer, ledger.close()?))
        });
        let result = match done {
            Ok(done) => match db.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])) {
                Ok(_) => return Ok(done),
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

    /// Drops the claims of processes at the head of a line that are dead, and watches those that live.
    fn bury_ahead(&mut self, name: &Name) -> bool {
        let ahead = processes_ahead(&self.file.db, name, WATCHED_ROWS).unwrap_or_default();
        self.bury(ahead)
    }

    /// Drops the claims of those that are dead for certain. Ringing the next may find the next one dead, and so on.
    fn bury(&mut self, mut suspects: Vec<Process>) -> bool {
        let mut buried = false;
        while let Some(suspect) = suspects.pop() {
            let queue = self.queue.clone();
            let died = move || {
                if let Some(queue) = queue.upgrade() {
                    // The worker has ended: nobody needs to know.
                    let _ = queue.send(Request::Died(suspect));
                }
            };
            if !self.watches.is_dead(suspect, died) {
                continue;
            }
            let Ok(holds) = holds_of(&self.file.db, suspect) else { continue };
            if holds.is_empty() {
                self.watches.forget(suspect.nonce);
                continue;
            }
            match self.commit(|ledger| ledger.drop_holds(&holds)) {
                Ok(((), rings)) => {
                    tracing::debug!(
                        pid = suspect.pid,
                        claims = holds.len(),
                        "dropped the claims of a dead process"
                    );
                    self.watches.forget(suspect.nonce);
                    suspects.extend(self.belfry.ring(rings));
                    buried = true;
                }
                Err(failure) => {
                    tracing::debug!(error = %failure.error, "a dead process keeps its claims for now")
                }
            }
        }
        buried
    }

    fn view(&mut self, query: &Query) -> Result<Vec<LineView>, Error> {
        let Now { at: now, .. } = self.clock.now();
        let read = view::any_lapsed(&self.file.db, now).and_then(|lapsed| {
            if lapsed {
                // People should see who is in, not who was; if the disk is too full for it, they see what is there.
                let _ = self.transact(|_| Ok(()));
            }
            view::view(&self.file.db, query, now)
        });
        read.map_err(|error| Failure::from(error).explain("view", &self.address))
    }
}
