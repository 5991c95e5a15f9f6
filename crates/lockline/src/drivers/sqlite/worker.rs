//! The one thread that owns the connection. SQLite blocks; nothing that blocks may run on the caller's runtime.
//!
//! It takes all requests that wait, runs them in one transaction, and after the commit rings and answers. The queue is
//! first in, first out, so a `leave` cannot overtake its `join`.

use std::collections::HashSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::bell::Belfry;
use super::checkpoint::Checkpoints;
use super::config::Clock;
use super::early::Unheard;
use super::error::{self, Failure};
use super::file::{self, File};
use super::process::{Process, Watches};
use super::request::{Done, Queue, Reply, Request, Work};
use super::rows::{holds_of, processes_ahead};
use super::verbs::{Ledger, Ring};
use super::{room, view};
use crate::driver::Query;
use crate::error::{Error, ErrorKind};
use crate::line::{ClaimId, LineView, Now, Place, Standing};
use crate::name::Name;

/// The most requests in one transaction: it must stay short, because everyone on the file waits for it.
const MOST_AT_ONCE: usize = 256;
/// So many places are renewed at once when the disk is full.
const FEW_PLACES: usize = 16;
/// How many rows at the head of a line are looked at for processes to watch.
const WATCHED_ROWS: u32 = 16;

/// Whether the file has free pages for new claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Enough,
    /// Few are left: to be looked after when everyone has been answered.
    Little,
    /// Few are left, and the disk has no more.
    None,
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
    pub(super) room: Room,
    /// A claim of this process was told to wait.
    pub(super) awaited: bool,
    /// While there is no thread: what was got without a bell.
    pub(super) unheard: Option<Unheard>,
}

impl Worker {
    /// Serves until the driver is dropped and everything it asked for is done.
    pub(super) fn run(mut self, requests: &Receiver<Request>) {
        self.begin_to_hear();
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
            self.look_after_file();
        }
        self.checkpoints.at_the_end(&self.file);
    }

    /// Serves what is there now, for a worker that has no thread yet.
    pub(super) fn serve_all(&mut self, requests: &Receiver<Request>) {
        while let Ok(first) = requests.try_recv() {
            self.serve(first, requests);
            self.look_after_file();
        }
    }

    /// Whether claims of this process wait.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// It gets a thread: from now on it can wait longer for others on the file.
    pub(super) fn settle_down(&mut self, busy_timeout: Duration) {
        if let Err(e) = file::wait_when_busy(&mut self.file.db, busy_timeout) {
            tracing::debug!(error = %e, "the file's patience stays short");
        }
    }

    /// When everyone has been answered.
    fn look_after_file(&mut self) {
        if self.room == Room::Little {
            self.find_room();
        }
        self.checkpoints.after_commit(&self.file);
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
        let jobs = self.refuse_without_room(jobs);
        let jobs = self.try_unheard(jobs);
        self.work(jobs);
        for (query, reply) in views {
            let view = self.view(&query);
            // The caller may have gone: nothing depends on its hearing it.
            let _ = reply.send(view);
        }
    }

    /// Without free pages, a join that could make a place is refused; all else goes on.
    fn refuse_without_room(&mut self, jobs: Vec<(Work, Reply)>) -> Vec<(Work, Reply)> {
        let is_join = |(work, _): &(Work, Reply)| matches!(work, Work::Join(..));
        if self.room == Room::None && jobs.iter().any(is_join) {
            self.find_room();
        }
        if self.room != Room::None {
            return jobs;
        }
        let (joins, others): (Vec<_>, Vec<_>) = jobs.into_iter().partition(is_join);
        for (_, reply) in joins {
            let _ = reply.send(Err(error::full("join", &self.address)));
        }
        others
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
        let left: HashSet<(Name, ClaimId)> = works.iter().filter_map(Work::left).collect();
        if works.iter().any(|work| matches!(work, Work::Join(..))) {
            // Before the join, so that no bell finds nobody: neither the one that lets a waiter in, nor the one that
            // tells a holder at once that it was evicted.
            self.hang_up_bell();
        }
        let outcomes = self.attempt(&works);
        for ((work, outcome), reply) in works.into_iter().zip(outcomes).zip(replies) {
            match (&work, &outcome) {
                // A join whose leave has just been done must not be done again.
                (Work::Join(claim, _), Ok(Done::Joined(Ok(Standing::Waiting { .. } | Standing::Out))))
                    if !left.contains(&(claim.name.clone(), claim.id)) && !reply.is_closed() =>
                {
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
        self.awaited |= !again.is_empty() || !waiting.is_empty();
        self.look_twice(again);
        waiting.sort();
        waiting.dedup();
        for name in &waiting {
            self.bury_ahead(name);
        }
    }

    /// A join that is not in is asked once more if a holder is found dead, which no lease tells.
    fn look_twice(&mut self, joins: Vec<(Work, Result<Done, Error>, Reply)>) {
        let mut again = Vec::new();
        for (work, outcome, reply) in joins {
            let Work::Join(claim, _) = &work else { continue };
            if self.bury_ahead(&claim.name) {
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

    pub(super) fn hang_up_bell(&mut self) {
        if self.belfry.is_listening() {
            return;
        }
        if let Err(e) = self.belfry.listen() {
            tracing::warn!(error = %e, "no bell: waiting claims look again by themselves");
        }
    }

    /// Runs all of it in one transaction; if that fails, each in its own, so that one that cannot be done does not
    /// stop the others. Rings after each commit.
    pub(super) fn attempt(&mut self, works: &[Work]) -> Vec<Result<Done, Error>> {
        if works.is_empty() {
            return Vec::new();
        }
        let all = self.transact(|ledger| {
            works.iter().map(|work| work.run(ledger)).collect::<rusqlite::Result<Vec<_>>>()
        });
        match all {
            Ok(done) => done.into_iter().map(Ok).collect(),
            // Who waited in vain for the file once does not wait again for each of them.
            Err(failure) if failure.is_busy() || works.len() == 1 && !failure.is_full() => {
                works.iter().map(|work| Err(failure.explain(work.verb(), &self.address))).collect()
            }
            Err(_) => works.iter().map(|work| self.attempt_alone(work)).collect(),
        }
    }

    fn attempt_alone(&mut self, work: &Work) -> Result<Done, Error> {
        let outcome = self.transact(|ledger| work.run(ledger));
        let outcome = match (outcome, work) {
            (Err(failure), _) if !failure.is_full() => Err(failure),
            (Err(_), Work::Renew(places)) => self.renew_in_parts(places).map(Done::Renewed),
            (Err(_), _) => self.transact_with_room(|ledger| work.run(ledger)),
            (done, _) => done,
        };
        outcome.map_err(|failure| failure.explain(work.verb(), &self.address))
    }

    /// A full disk has a log of the size it has: many places at once may not fit into it, a few do.
    fn renew_in_parts(&mut self, places: &[Place]) -> Result<Vec<Standing>, Failure> {
        let mut standings = Vec::with_capacity(places.len());
        for part in places.chunks(FEW_PLACES) {
            let renew = |ledger: &mut Ledger<'_>| part.iter().map(|place| ledger.renew(place)).collect();
            let renewed: Vec<Standing> = match self.transact(renew) {
                Err(failure) if failure.is_full() => self.transact_with_room(renew)?,
                other => other?,
            };
            standings.extend(renewed);
        }
        Ok(standings)
    }

    fn transact_with_room<T>(
        &mut self,
        body: impl FnOnce(&mut Ledger<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        Checkpoints::make_room(&self.file);
        self.transact(body)
    }

    /// Sees to it that the file has free pages, and remembers whether it has.
    fn find_room(&mut self) {
        self.room = match room::top_up(&self.file.db, &self.file.path).map_err(Failure::from) {
            Ok(true) => Room::Enough,
            Ok(false) => Room::None,
            Err(failure) if failure.is_full() => Room::None,
            // Somebody else is at it, or the next join tells what is wrong.
            Err(_) => Room::Enough,
        };
    }

    /// One transaction, and its bells.
    fn transact<T>(
        &mut self,
        body: impl FnOnce(&mut Ledger<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Failure> {
        let (answer, rings, low) = self.commit(body)?;
        if low {
            self.room = Room::Little;
        }
        let silent = self.belfry.ring(rings);
        if !silent.is_empty() {
            self.bury(silent);
        }
        Ok(answer)
    }

    fn commit<T>(
        &self,
        body: impl FnOnce(&mut Ledger<'_>) -> rusqlite::Result<T>,
    ) -> Result<(T, Vec<Ring>, bool), Failure> {
        let db = &self.file.db;
        db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        // The moment is read when the file is ours: it may have taken a while, and times must not run backwards.
        let now = self.clock.now();
        let done = Ledger::open(db, self.me, now).and_then(|mut ledger| {
            let answer = body(&mut ledger)?;
            let low = ledger.has_new_places() && room::is_low(db)?;
            Ok((answer, ledger.close()?, low))
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
                Ok(((), rings, _)) => {
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
