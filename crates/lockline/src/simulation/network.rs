//! The way between a client and the engine: requests, answers and bells are late, lost, doubled and overtaken.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::chance::{below, strikes};
use crate::driver::{BellBoard, Bells, Driver, DriverInfo, Query, Verb};
use crate::drivers::memory::{Memory, MemoryDriver};
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Bell, Claim, ClaimId, LineView, Place, Standing, Ticket};
use crate::name::Name;
use crate::time::Clock;

/// How bad it is, in so many of a thousand messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    pub(super) lost: u64,
    pub(super) doubled: u64,
    /// Later than a lease, perhaps.
    pub(super) late: u64,
    pub(super) refused: u64,
    pub(super) lease: Duration,
}

impl Weather {
    pub(super) fn by_chance(lease: Duration) -> Weather {
        let storm: u64 = if strikes(250) { 4 } else { 1 };
        let bad = |worst: u64| if strikes(300) { 0 } else { below(worst * storm) };
        Weather { lost: bad(80), doubled: bad(80), late: bad(60), refused: bad(20), lease }
    }
}

/// The way of one client.
#[derive(Debug)]
pub(super) struct Way {
    weather: Weather,
    /// Nothing goes wrong any more.
    fair: Arc<AtomicBool>,
    /// The client has crashed: nothing passes any more, also not what is under way.
    cut: AtomicBool,
    /// Nothing passes until then: microseconds of the simulated clock.
    blocked_until: AtomicU64,
    clock: Clock,
    faults: Arc<AtomicU64>,
}

impl Way {
    pub(super) fn new(
        weather: Weather,
        clock: Clock,
        fair: Arc<AtomicBool>,
        faults: Arc<AtomicU64>,
    ) -> Arc<Way> {
        Arc::new(Way {
            weather,
            fair,
            cut: AtomicBool::new(false),
            blocked_until: AtomicU64::new(0),
            clock,
            faults,
        })
    }

    /// A partition: whatever is sent before it ends is lost.
    pub(super) fn block(&self, time: Duration) {
        self.blocked_until.store((self.clock.now() + time).as_micros(), Ordering::Relaxed);
    }

    pub(super) fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
            || self.clock.now().as_micros() < self.blocked_until.load(Ordering::Relaxed)
    }

    fn fault(&self, per_mille: u64) -> bool {
        let struck = !self.fair.load(Ordering::Relaxed) && strikes(per_mille);
        self.faults.fetch_add(u64::from(struck), Ordering::Relaxed);
        struck
    }

    /// How long a message takes; `None` if it gets lost.
    fn passes(&self) -> Option<Duration> {
        if self.is_cut() || self.fault(self.weather.lost) {
            return None;
        }
        let usual = Duration::from_micros(50 + below(3_000));
        let late = if self.fault(self.weather.late) {
            // Mostly by less than a call may take, sometimes by more than two leases.
            let part = below(1_600) as f64 / 1_000.0;
            self.weather.lease.mul_f64(part * part)
        } else {
            Duration::ZERO
        };
        Some(usual + late)
    }

    /// The copies of a message that arrive, after how long each.
    fn copies(&self) -> impl Iterator<Item = Duration> + use<> {
        let second = self.fault(self.weather.doubled).then(|| self.passes()).flatten();
        [self.passes(), second].into_iter().flatten()
    }
}

/// An engine at the other end of a way.
#[derive(Debug)]
pub(super) struct Far {
    engine: Arc<MemoryDriver>,
    way: Arc<Way>,
}

impl Far {
    pub(super) fn new(memory: Memory, way: Arc<Way>, board: Bells) -> Far {
        let bells = Arc::new(FarBells { board, way: way.clone() });
        Far { engine: Arc::new(MemoryDriver::new(memory, bells)), way }
    }

    /// Every copy of a request that arrives is done, whoever still waits for the answer; the first that is answered counts.
    async fn exchange<T: Send + 'static>(
        &self,
        request: impl Fn(&MemoryDriver) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        if self.way.fault(self.way.weather.refused) {
            return Err(Error::new(ErrorKind::Unavailable, "send", "nobody listens"));
        }
        let (answers, mut first) = tokio::sync::mpsc::unbounded_channel();
        let request = Arc::new(request);
        for delay in self.way.copies() {
            let (engine, way) = (self.engine.clone(), self.way.clone());
            let (request, answers) = (request.clone(), answers.clone());
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                if way.is_cut() {
                    return;
                }
                let answer = request(&engine);
                if let Some(delay) = way.passes() {
                    tokio::time::sleep(delay).await;
                    let _ = answers.send(answer);
                }
            });
        }
        drop(answers);
        match first.recv().await {
            Some(answer) => answer,
            // Whoever asked has a deadline.
            None => pending().await,
        }
    }
}

/// The verbs of the memory engine are done when they are first polled.
fn at_once<T>(verb: Verb<'_, T>) -> Result<T> {
    match pin!(verb).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("the memory engine waits for nobody"),
    }
}

impl Driver for Far {
    fn info(&self) -> &DriverInfo {
        self.engine.info()
    }

    fn join<'a>(&'a self, claim: &'a Claim, wait: bool) -> Verb<'a, Standing> {
        let claim = claim.clone();
        Box::pin(self.exchange(move |engine| at_once(engine.join(&claim, wait))))
    }

    fn renew<'a>(&'a self, places: &'a [Place]) -> Verb<'a, Vec<Standing>> {
        let places = places.to_vec();
        Box::pin(self.exchange(move |engine| at_once(engine.renew(&places))))
    }

    fn leave<'a>(&'a self, place: &'a Place) -> Verb<'a, ()> {
        let place = place.clone();
        Box::pin(self.exchange(move |engine| at_once(engine.leave(&place))))
    }

    fn view<'a>(&'a self, query: &'a Query) -> Verb<'a, Vec<LineView>> {
        let query = query.clone();
        Box::pin(self.exchange(move |engine| at_once(engine.view(&query))))
    }

    fn evict<'a>(&'a self, name: &'a Name, ticket: Ticket, at_once_: bool) -> Verb<'a, bool> {
        let name = name.clone();
        Box::pin(self.exchange(move |engine| at_once(engine.evict(&name, ticket, at_once_))))
    }
}

/// Bells on the same way.
#[derive(Debug)]
struct FarBells {
    board: Bells,
    way: Arc<Way>,
}

impl BellBoard for FarBells {
    fn ring(&self, name: &Name, bell: &Bell) {
        for delay in self.way.copies() {
            let (board, way, name, bell) = (self.board.clone(), self.way.clone(), name.clone(), bell.clone());
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                if !way.is_cut() {
                    board.ring(&name, &bell);
                }
            });
        }
    }

    fn acknowledged(&self, id: ClaimId, replicas: u32) {
        self.board.acknowledged(id, replicas);
    }

    fn look_now(&self, id: ClaimId) {
        self.board.look_now(id);
    }

    fn look_at_all(&self) {
        self.board.look_at_all();
    }
}
