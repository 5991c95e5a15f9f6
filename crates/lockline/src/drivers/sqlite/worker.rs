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
use super::file::File;
use super::identity::Found;
use super::process::{Process, Watches};
use super::request::{Done, Queue, Reply, Request, ViewReply, Work};
use super::rows::{holds_of, processes_ahead};
use super::tickets::Reserving;
use super::verbs::Ledger;
use super::{hooks, platform, room, view};
use crate::driver::Query;
use crate::error::Error;
use crate::line::{ClaimId, LineView, Now, Place, Standing};
use crate::name::Name;

/// The most requests in one transaction: it must stay short, because everyone on the file waits for it.
pub(super) const MOST_AT_ONCE: usize = 256;
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
    /// While there is no thread: what could not be done because others were on the file. The thread, which can wait, does it.
    pub(super) deferred: Vec<(Work, Reply)>,
    /// The last attempt waited in vain for others on the file, and did nothing.
    pub(super) was_busy: bool,
    pub(super) reserving: Reserving,
    /// Few tickets are left below the limit, at this time on the wall clock.
    pub(super) low_on_tickets: Option<u64>,
    /// It was said already that the file is gone.
    pub(super) said_gone: bool,
}

impl Worker {
    /// Serves until the driver is dropped and everything it asked for is done.
    pub(super) fn run(mut self, requests: &Receiver<Request>) {
        self.begin_to_hear();
        self.work_deferred();
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
        while self.deferred.is_empty()
            && let Ok(first) = requests.try_recv()
        {
            self.serve(first, requests);
            self.look_after_file();
        }
    }

    /// Whether claims of this process wait, or callers for the file.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited || !self.deferred.is_empty()
    }

    /// Does what was put off until there is a thread; or now, if none can be had.
    pub(super) fn work_deferred(&mut self) {
        let mut deferred = std::mem::take(&mut self.deferred);
        // Nobody waits for such a join any more: it must not happen now.
        deferred.retain(|job| !(is_join(job) && job.1.is_closed()));
        self.work(deferred);
    }

    /// It gets a thread: from now on it can wait longer for others on the file.
    pub(super) fn settle_down(&mut self, busy_timeout: Duration) {
        if let Err(e) = hooks::wait_when_busy(&mut self.file.db, busy_timeout) {
            tracing::debug!(error = %e, "the file's patience stays short");
        }
    }

    /// No thread can be had: what was to wait for one is done here.
    pub(super) fn stay_here(&mut self) {
        self.begin_to_hear();
        self.work_deferred();
    }

    /// When everyone has been answered.
    fn look_after_file(&mut self) {
        if self.room == Room::Little {
            self.find_room();
        }
        // Whoever has no thread lives too shortly for it: when no tickets are left, that is soon enough.
        if self.unheard.is_none()
            && let Some(wall_us) = self.low_on_tickets.take()
        {
            self.reserving.start(&self.file, wall_us);
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
        let found = self.file.look();
        if !matches!(found, Found::Same | Found::Linked) {
            return self.answer_without_file(&found, jobs, views);
        }
        if matches!(found, Found::Linked) {
            jobs = self.refuse_joins(jobs, || error::linked(&self.address));
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
        if self.room == Room::None && jobs.iter().any(is_join) {
            self.find_room();
        }
        if self.room != Room::None {
            return jobs;
        }
        self.refuse_joins(jobs, || error::full("join", &self.address))
    }

    /// Answers joins with an error, and leaves the rest to be done.
    fn refuse_joins(&self, jobs: Vec<(Work, Reply)>, error: impl Fn() -> Error) -> Vec<(Work, Reply)> {
        let (joins, others): (Vec<_>, Vec<_>) = jobs.into_iter().partition(is_join);
        for (_, reply) in joins {
            let _ = reply.send(Err(error()));
        }
        others
    }

    /// The path does not lead to this file any more. Those who open it cannot see our locks, so nobody may believe in one:
    /// renewals are told that their places are gone, all else that the file is.
    fn answer_without_file(
        &mut self,
        found: &Found,
        jobs: Vec<(Work, Reply)>,
        views: Vec<(Query, ViewReply)>,
    ) {
        let is_gone = matches!(found, Found::Gone);
        if is_gone && !std::mem::replace(&mut self.said_gone, true) {
            tracing::error!(file = %self.file.path.display(), "the lock file was removed or replaced: its locks are lost");
        }
        for (work, reply) in jobs {
            let answer = match &work {
                Work::Renew(places) if is_gone => Ok(Done::Renewed(vec![Standing::Lapsed; places.len()])),
                _ => Err(error::no_file(work.verb(), found, &self.address)),
            };
            let _ = reply.send(answer);
        }
        for (_, reply) in views {
            let _ = reply.send(Err(error::no_file("view", found, &self.address)));
        }
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
        if self.unheard.is_some() && self.was_busy {
            // None of it was done: the one transaction of all has not begun.
            self.deferred = works.into_iter().zip(replies).collect();
            return;
        }
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
        if self.belfry.is_listening() || platform::LOOK_AGAIN.is_some() {
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
        let may_join = works.iter().any(|work| matches!(work, Work::Join(..)));
        let all = self.transact(may_join, |ledger| {
            works.iter().map(|work| work.run(ledger)).collect::<rusqlite::Result<Vec<_>>>()
        });
        self.was_busy = all.as_ref().is_err_and(Failure::is_busy);
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
        let may_join = matches!(work, Work::Join(..));
        let outcome = self.transact(may_join, |ledger| work.run(ledger));
        let outcome = match (outcome, work) {
            (Err(failure), _) if !failure.is_full() => Err(failure),
            (Err(_), Work::Renew(places)) => self.renew_in_parts(places).map(Done::Renewed),
            (Err(_), _) => self.transact_with_room(may_join, |ledger| work.run(ledger)),
            (done, _) => done,
        };
        outcome.map_err(|failure| failure.explain(work.verb(), &self.address))
    }

    /// A full disk has a log of the size it has: many places at once may not fit into it, a few do.
    fn renew_in_parts(&mut self, places: &[Place]) -> Result<Vec<Standing>, Failure> {
        let mut standings = Vec::with_capacity(places.len());
        for part in places.chunks(FEW_PLACES) {
            let renew = |ledger: &mut Ledger<'_>| part.iter().map(|place| ledger.renew(place)).collect();
            let renewed: Vec<Standing> = match self.transact(false, renew) {
                Err(failure) if failure.is_full() => self.transact_with_room(false, renew)?,
                other => other?,
            };
            standings.extend(renewed);
        }
        Ok(standings)
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

    /// Drops the claims of processes at the head of a line that are dead, and watches those that live.
    fn bury_ahead(&mut self, name: &Name) -> bool {
        let ahead = processes_ahead(&self.file.db, name, WATCHED_ROWS).unwrap_or_default();
        self.bury(ahead)
    }

    /// Drops the claims of those that are dead for certain. Ringing the next may find the next one dead, and so on.
    pub(super) fn bury(&mut self, mut suspects: Vec<Process>) -> bool {
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
                Ok(done) => {
                    tracing::debug!(
                        pid = suspect.pid,
                        claims = holds.len(),
                        "dropped the claims of a dead process"
                    );
                    self.watches.forget(suspect.nonce);
                    suspects.extend(self.belfry.ring(done.rings));
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
                let _ = self.transact(false, |_| Ok(()));
            }
            view::view(&self.file.db, query, now)
        });
        read.map_err(|error| Failure::from(error).explain("view", &self.address))
    }
}

fn is_join((work, _): &(Work, Reply)) -> bool {
    matches!(work, Work::Join(..))
}
