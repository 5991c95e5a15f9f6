//! A driver with faults: it counts, loses, delays, repeats and hangs, and leaves the engine itself intact.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lockline::driver::{BellBoard, Bells, Driver, DriverInfo, Guarantees, Query, Verb};
use lockline::line::{Bell, Claim, ClaimId, LineView, News, Place, Shut, Standing, Ticket};
use lockline::{Error, ErrorKind, Name, Result};

/// One of a driver's verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `join`
    Join,
    /// `renew`
    Renew,
    /// `leave`
    Leave,
    /// `view`
    View,
    /// `evict`
    Evict,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] = [Kind::Join, Kind::Renew, Kind::Leave, Kind::View, Kind::Evict];
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The engine does it, but the answer gets lost.
    LoseReply,
    /// The engine never hears of it, and the caller cannot know that.
    LoseRequest,
    /// The engine never hears of it, and no answer ever comes.
    Hang,
    /// It reaches the engine late.
    Delay(Duration),
    /// Its answer comes late.
    DelayReply(Duration),
}

/// The hand on the switches of one disturbed client. Clones are the same hand.
#[derive(Clone, Default)]
pub struct Faults {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    counts: HashMap<Kind, usize>,
    once: Vec<(Kind, Fault)>,
    always: HashMap<Kind, Fault>,
    stepwise: bool,
    deaf: bool,
    joins: Vec<(Claim, bool)>,
    rung: Vec<Bell>,
    engine: Option<Arc<dyn Driver>>,
    board: Option<Bells>,
}

impl Faults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a driver and puts the faults between it and its client, in both directions.
    ///
    /// # Errors
    /// What `open` fails with.
    pub async fn put_between<F, Opening>(&self, bells: Bells, open: F) -> Result<Arc<dyn Driver>>
    where
        F: FnOnce(Bells) -> Opening,
        Opening: Future<Output = Result<Arc<dyn Driver>>>,
    {
        let engine =
            open(Arc::new(FaultyBells { to: bells.clone(), faults: Arc::downgrade(&self.state) })).await?;
        let mut state = self.state();
        state.engine = Some(engine.clone());
        state.board = Some(bells);
        Ok(Arc::new(FaultyDriver { engine, faults: self.clone() }))
    }

    /// The next call of this verb goes wrong like this. Several of one verb go wrong one after the other.
    pub fn once(&self, verb: Kind, fault: Fault) {
        self.state().once.push((verb, fault));
    }

    /// Every call of this verb goes wrong like this, until [`clear`](Faults::clear).
    pub fn always(&self, verb: Kind, fault: Fault) {
        self.state().always.insert(verb, fault);
    }

    /// Every call of every verb goes wrong like this: the network is gone.
    pub fn cut(&self, fault: Fault) {
        Kind::ALL.into_iter().for_each(|verb| self.always(verb, fault));
    }

    /// Everything works again, and bells are heard.
    pub fn clear(&self) {
        let mut state = self.state();
        state.once.clear();
        state.always.clear();
        state.deaf = false;
    }

    /// From now on every bell is lost.
    pub fn lose_bells(&self) {
        self.state().deaf = true;
    }

    /// From now on each call is suspended once before and once after it reaches the engine: every await point is seen.
    pub fn stepwise(&self) {
        self.state().stepwise = true;
    }

    /// How often a verb was called.
    pub fn count(&self, verb: Kind) -> usize {
        self.state().counts.get(&verb).copied().unwrap_or_default()
    }

    /// How often any verb was called.
    pub fn total(&self) -> usize {
        self.state().counts.values().sum()
    }

    /// The claims that were joined, oldest first, copies included.
    pub fn joined(&self) -> Vec<Claim> {
        self.state().joins.iter().map(|(claim, _)| claim.clone()).collect()
    }

    /// Whether the newest join was ready to wait.
    pub fn last_join_waits(&self) -> bool {
        self.state().joins.last().is_some_and(|(_, wait)| *wait)
    }

    /// How many bells of this kind came from the engine, lost ones included.
    pub fn bells(&self, news: News) -> usize {
        self.state().rung.iter().filter(|bell| bell.news == news).count()
    }

    /// Sends a copy of the newest join to the engine: what a network does that had kept it back.
    ///
    /// # Panics
    /// If nothing was joined, or the engine refuses.
    pub async fn join_again(&self) -> Standing {
        let (engine, join) = {
            let state = self.state();
            (state.engine.clone(), state.joins.last().cloned())
        };
        let (engine, (claim, wait)) = (engine.expect("a driver"), join.expect("a join to repeat"));
        engine.join(&claim, wait).await.expect("the engine takes the copy")
    }

    /// Rings a bell that the engine did not ring.
    ///
    /// # Panics
    /// If the faults stand between nothing.
    pub fn ring(&self, name: &str, id: ClaimId, ticket: Ticket, news: News) {
        let board = self.state().board.clone().expect("a board");
        board.ring(&Name::new(name).expect("a good name"), &Bell { id, ticket, news });
    }

    /// Takes every claim of this client out of the engine behind its back: what an engine does that lost its memory.
    ///
    /// # Panics
    /// If the engine refuses.
    pub async fn take_away_all(&self) {
        let engine = self.state().engine.clone().expect("a driver");
        for claim in self.joined() {
            let place =
                Place { name: claim.name, id: claim.id, ticket: None, lease: claim.lease, last: false };
            engine.leave(&place).await.expect("the place is left");
        }
    }

    /// Counts a call, and tells what happens to it.
    fn called(&self, verb: Kind) -> Option<Fault> {
        let mut state = self.state();
        *state.counts.entry(verb).or_default() += 1;
        let next = state.once.iter().position(|(of, _)| *of == verb);
        next.map(|index| state.once.remove(index).1).or_else(|| state.always.get(&verb).copied())
    }

    async fn step(&self) {
        let stepwise = self.state().stepwise;
        if stepwise {
            tokio::task::yield_now().await;
        }
    }

    async fn disturbed<T>(
        &self,
        verb: Kind,
        fault: Option<Fault>,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let lost =
            |what| Err(Error::new(ErrorKind::Unknown, "fault", format!("the {what} of {verb:?} was lost")));
        self.step().await;
        match fault {
            Some(Fault::LoseRequest) => return lost("request"),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Delay(by)) => tokio::time::sleep(by).await,
            Some(Fault::LoseReply | Fault::DelayReply(_)) | None => {}
        }
        let answer = call.await;
        self.step().await;
        match fault {
            Some(Fault::LoseReply) => return lost("reply"),
            Some(Fault::DelayReply(by)) => tokio::time::sleep(by).await,
            _ => {}
        }
        answer
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Faults")
            .field("counts", &state.counts)
            .field("once", &state.once)
            .finish_non_exhaustive()
    }
}

/// Rings through, unless bells are being lost.
#[derive(Debug)]
struct FaultyBells {
    to: Bells,
    /// Weak, because the state holds the driver, which holds this: a driver that is never dropped never closes.
    faults: Weak<Mutex<State>>,
}

impl FaultyBells {
    /// Whether bells are being lost. Notes the bell, if there is one.
    fn is_deaf(&self, bell: Option<&Bell>) -> bool {
        let Some(state) = self.faults.upgrade() else { return false };
        let faults = Faults { state };
        let mut state = faults.state();
        state.rung.extend(bell.cloned());
        state.deaf
    }
}

impl BellBoard for FaultyBells {
    fn ring(&self, name: &Name, bell: &Bell) {
        if !self.is_deaf(Some(bell)) {
            self.to.ring(name, bell);
        }
    }

    fn acknowledged(&self, id: ClaimId, replicas: u32) {
        self.to.acknowledged(id, replicas);
    }

    fn look_now(&self, id: ClaimId) {
        if !self.is_deaf(None) {
            self.to.look_now(id);
        }
    }

    fn look_at_all(&self) {
        if !self.is_deaf(None) {
            self.to.look_at_all();
        }
    }
}

#[derive(Debug)]
struct FaultyDriver {
    engine: Arc<dyn Driver>,
    faults: Faults,
}

impl FaultyDriver {
    /// The engine's verb is called only when the fault lets it through: a driver may act as soon as it is called.
    fn call<'a, T, F>(&'a self, verb: Kind, call: F) -> Verb<'a, T>
    where
        T: Send + 'a,
        F: FnOnce(&'a dyn Driver) -> Verb<'a, T> + Send + 'a,
    {
        let fault = self.faults.called(verb);
        Box::pin(self.faults.disturbed(verb, fault, async move { call(&*self.engine).await }))
    }
}

impl Driver for FaultyDriver {
    fn info(&self) -> &DriverInfo {
        self.engine.info()
    }

    fn guarantees(&self) -> Guarantees {
        self.engine.guarantees()
    }

    fn shut(&self, name: Option<&Name>) -> Option<Shut> {
        self.engine.shut(name)
    }

    fn join<'a>(&'a self, claim: &'a Claim, wait: bool) -> Verb<'a, Standing> {
        self.faults.state().joins.push((claim.clone(), wait));
        self.call(Kind::Join, move |engine| engine.join(claim, wait))
    }

    fn renew<'a>(&'a self, places: &'a [Place]) -> Verb<'a, Vec<Standing>> {
        self.call(Kind::Renew, move |engine| engine.renew(places))
    }

    fn leave<'a>(&'a self, place: &'a Place) -> Verb<'a, ()> {
        self.call(Kind::Leave, move |engine| engine.leave(place))
    }

    fn view<'a>(&'a self, query: &'a Query) -> Verb<'a, Vec<LineView>> {
        self.call(Kind::View, move |engine| engine.view(query))
    }

    fn evict<'a>(&'a self, name: &'a Name, ticket: Ticket, at_once: bool) -> Verb<'a, bool> {
        self.call(Kind::Evict, move |engine| engine.evict(name, ticket, at_once))
    }
}
