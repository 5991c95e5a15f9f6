//! What this client has in the ensemble's lines, and until when: the ensemble knows sessions, not leases, so a claim whose
//! lease ran out is taken out of its line by the client that made it, or by the ensemble when that client is gone.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::error::is_a_gap;
use super::node::Data;
use super::session::{Session, Sessions, next_turn};
use crate::driver::Bells;
use crate::drivers::turns::Turns;
use crate::drivers::under_way::UnderWay;
use crate::error::Result;
use crate::line::{Bell, ClaimId, News, Ticket};
use crate::name::Name;
use crate::pause;
use crate::sync::locked;
use crate::time::{Clock, Time};

/// Everything a driver has.
pub(super) struct Inner {
    pub(super) sessions: Sessions,
    pub(super) bells: Bells,
    pub(super) clock: Clock,
    runtime: Handle,
    claims: Mutex<HashMap<(Name, ClaimId), Arc<Entry>>>,
    turns: Turns,
    janitor: Arc<Janitor>,
}

/// When the janitor looks next.
#[derive(Default)]
struct Janitor {
    /// In microseconds; every claim that is quickly taken and released would wake it for nothing if it always were woken.
    sleeps_until: AtomicU64,
    sooner: Notify,
}

impl Janitor {
    /// A lease may end at this time.
    fn look_at(&self, at: Time) {
        if at.as_micros() < self.sleeps_until.load(Ordering::Acquire) {
            self.sooner.notify_one();
        }
    }
}

/// One claim of this client. Verbs that change it take effect one after the other, in the order in which they were called.
pub(super) struct Entry {
    pub(super) name: Name,
    pub(super) id: ClaimId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    spot: Option<Spot>,
    /// Verbs that are under way.
    under_way: usize,
}

/// Where a claim stands.
pub(super) struct Spot {
    pub(super) session: Arc<Session>,
    pub(super) path: String,
    pub(super) number: i32,
    pub(super) ticket: Ticket,
    pub(super) data: Data,
    /// Of the znode's data, as far as we know: another one means that somebody wrote to it.
    pub(super) version: i32,
    pub(super) deadline: Time,
    pub(super) since: Time,
    pub(super) is_in: bool,
    pub(super) evicted: bool,
    /// Ends with the place.
    pub(super) attendant: Option<Attendant>,
    /// For claims of this client that wait behind it.
    pub(super) departure: watch::Sender<Departure>,
}

/// Whether a claim has gone, and as what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Departure {
    No,
    OfHolder,
    OfWaiter,
}

/// A task that ends when this is dropped.
pub(super) struct Attendant(pub(super) AbortHandle);

impl Drop for Attendant {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Entry {
    /// Looks at where the claim stands, or changes it.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Option<Spot>) -> T) -> T {
        look(&mut locked(&self.state).spot)
    }

    /// Takes the claim's place away from it, if its lease ran out.
    fn take_lapsed(&self, now: Time) -> Option<Spot> {
        self.with(|spot| spot.take_if(|spot| spot.deadline <= now))
    }
}

impl Inner {
    pub(super) fn new(sessions: Sessions, bells: Bells) -> Arc<Inner> {
        let inner = Arc::new(Inner {
            sessions,
            bells,
            clock: Clock::Boot,
            runtime: Handle::current(),
            claims: Mutex::default(),
            turns: Turns::default(),
            janitor: Arc::default(),
        });
        inner.runtime.spawn(clean_up(Arc::downgrade(&inner), inner.janitor.clone(), inner.clock));
        inner
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// The session for a lease; a new one is looked after.
    pub(super) async fn session(
        self: &Arc<Self>,
        operation: &'static str,
        lease: Duration,
    ) -> Result<Arc<Session>> {
        let (session, is_new) = self.sessions.for_lease(operation, lease).await?;
        if is_new {
            let (inner, mut states) = (Arc::downgrade(self), session.client.state_watcher());
            let id = session.id;
            self.runtime.spawn(async move {
                loop {
                    let is_back = next_turn(&mut states).await;
                    let Some(inner) = inner.upgrade() else { return };
                    if !is_back {
                        inner.session_ended(id);
                    }
                    // Bells may have been lost in the gap.
                    inner.bells.look_at_all();
                    if !is_back {
                        return;
                    }
                }
            });
        }
        Ok(session)
    }

    /// Whatever stood because of this session is gone, or will be before anybody can tell.
    fn session_ended(&self, id: i64) {
        for entry in self.entries() {
            entry.with(|spot| spot.take_if(|spot| spot.session.id == id));
            self.forget_if_idle(&entry);
        }
    }

    pub(super) fn entry(&self, name: &Name, id: ClaimId) -> Option<Arc<Entry>> {
        locked(&self.claims).get(&(name.clone(), id)).cloned()
    }

    pub(super) fn entries(&self) -> Vec<Arc<Entry>> {
        locked(&self.claims).values().cloned().collect()
    }

    fn entries_of(&self, name: &Name) -> Vec<Arc<Entry>> {
        locked(&self.claims).values().filter(|entry| entry.name == *name).cloned().collect()
    }

    /// Lets `work` happen to a claim after everything that was called before it, whether or not the answer is awaited.
    pub(super) fn in_turn<T, W>(
        self: &Arc<Self>,
        name: &Name,
        id: ClaimId,
        work: impl FnOnce(Arc<Inner>, Arc<Entry>) -> W,
    ) -> UnderWay<Result<T>>
    where
        T: Send + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        let entry = {
            let mut claims = locked(&self.claims);
            let fresh = || Arc::new(Entry { name: name.clone(), id, state: Mutex::default() });
            let entry = claims.entry((name.clone(), id)).or_insert_with(fresh).clone();
            locked(&entry.state).under_way += 1;
            entry
        };
        let (mut turn, inner) = (self.turns.next(id), self.clone());
        let work = work(self.clone(), entry.clone());
        UnderWay::new(&self.runtime, async move {
            turn.comes().await;
            let result = work.await;
            locked(&entry.state).under_way -= 1;
            inner.forget_if_idle(&entry);
            result
        })
    }

    fn forget_if_idle(&self, entry: &Arc<Entry>) {
        let mut claims = locked(&self.claims);
        let state = locked(&entry.state);
        if state.spot.is_none() && state.under_way == 0 {
            claims.remove(&(entry.name.clone(), entry.id));
        }
    }

    /// Gives a claim a place, and has the janitor know.
    pub(super) fn settle_in(&self, entry: &Entry, spot: Spot) {
        let deadline = spot.deadline;
        entry.with(|place| *place = Some(spot));
        // Not before: a janitor that looked in between would find nothing, and sleep past this lease.
        self.janitor.look_at(deadline);
    }

    /// The lease of a claim may end sooner than it would have.
    pub(super) fn ends_at(&self, deadline: Time) {
        self.janitor.look_at(deadline);
    }

    /// Takes a claim out of its line, and tells whoever of this client waits behind it.
    pub(super) async fn depart(&self, spot: Spot) -> Result<()> {
        self.remove(&spot.session, &spot.path).await?;
        spot.departure.send_replace(if spot.is_in { Departure::OfHolder } else { Departure::OfWaiter });
        Ok(())
    }

    /// Removes a znode of ours. A connection that breaks is waited for: as long as the session lives, so does the znode.
    pub(super) async fn remove(&self, session: &Session, path: &str) -> Result<()> {
        loop {
            let error = match session.client.delete(path, None).await {
                Ok(()) | Err(zookeeper_client::Error::NoNode) => return Ok(()),
                Err(error) => error,
            };
            if session.is_over() {
                return Ok(());
            }
            if !is_a_gap(&error) {
                return Err(self.sessions.explain("leave", &error, true));
            }
            tokio::time::sleep(pause::about(GAP)).await;
        }
    }

    /// Takes all claims of ours whose leases ran out from their lines, or from one of them. Whoever waits behind them hears
    /// of it from the ensemble.
    pub(super) async fn drop_lapsed(&self, name: Option<&Name>) {
        let now = self.now();
        for entry in name.map_or_else(|| self.entries(), |name| self.entries_of(name)) {
            let Some(spot) = entry.take_lapsed(now) else { continue };
            self.forget_if_idle(&entry);
            if let Err(error) = self.depart(spot).await {
                tracing::debug!(lock = %entry.name, %error, "a lease ran out; its session will remove the claim");
            }
        }
    }

    /// When the next place of ours in a line before this number lapses.
    pub(super) fn next_lapse(&self, name: &Name, before: &dyn Fn(i32) -> bool) -> Option<Duration> {
        let now = self.now();
        let deadlines = self.entries_of(name).into_iter().filter_map(|entry| {
            entry.with(|spot| spot.as_ref().filter(|spot| before(spot.number)).map(|spot| spot.deadline))
        });
        deadlines.min().map(|deadline| deadline.since(now))
    }

    pub(super) fn ring(&self, entry: &Entry, ticket: Ticket, news: News) {
        self.bells.ring(&entry.name, &Bell { id: entry.id, ticket, news });
    }

    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.runtime.spawn(work).abort_handle()
    }

    /// Ends everything: the sessions close, and with them whatever they had in the ensemble.
    pub(super) fn close(&self) {
        locked(&self.claims).clear();
        self.sessions.close();
        self.janitor.sooner.notify_one();
    }
}

/// How long to wait before asking again over a connection that broke.
pub(super) const GAP: Duration = Duration::from_millis(20);

/// The janitor: removes claims of ours whose leases ran out, for as long as the driver lives.
async fn clean_up(inner: Weak<Inner>, janitor: Arc<Janitor>, clock: Clock) {
    /// How long it sleeps when there is nothing to do.
    const IDLE: Duration = Duration::from_secs(60);
    loop {
        let until = {
            let Some(inner) = inner.upgrade() else { return };
            let now = inner.now();
            // Whoever comes from now on wakes it, or is seen here.
            janitor.sleeps_until.store(u64::MAX, Ordering::Release);
            let deadlines = inner
                .entries()
                .into_iter()
                .filter_map(|entry| entry.with(|spot| Some(spot.as_ref()?.deadline)));
            let first = deadlines.min().unwrap_or(now + IDLE);
            if first <= now {
                let lapsing = inner.clone();
                inner.spawn(async move { lapsing.drop_lapsed(None).await });
            }
            // A claim that is on its way out is looked at again soon, not at once.
            first.max(now + Duration::from_millis(5))
        };
        janitor.sleeps_until.store(until.as_micros(), Ordering::Release);
        tokio::select! {
            () = clock.sleep_until(until) => {}
            () = janitor.sooner.notified() => {}
        }
    }
}
