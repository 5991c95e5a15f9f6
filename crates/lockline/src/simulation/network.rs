//! The way between a client and the engine: requests, answers and bells are late, lost, doubled and overtaken.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;

use super::chance::{below, strikes};
use super::engine::{Engine, lets_in};
use super::faults::{Fault, Faults};
use super::host::Host;
use crate::driver::{Bells, Driver, DriverInfo, Exclusion, Fencing, Guarantees, Query, Verb};
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Bell, Claim, LineView, Place, Standing, Ticket};
use crate::name::Name;
use crate::sync::locked;
use crate::time::Time;

/// How bad it is, in so many of a thousand messages, and how far the engine is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    pub(super) lost: u64,
    pub(super) doubled: u64,
    /// Later than a lease, perhaps.
    pub(super) late: u64,
    pub(super) refused: u64,
    pub(super) unsure: u64,
    /// So many of a thousand messages take no time.
    pub(super) near: u64,
    /// Bells say only that it is time to look.
    pub(super) bells_only_hint: bool,
    pub(super) lease: Duration,
}

impl Weather {
    /// From calm, where a fault meets a client that has been at work for long, to storms, where hardly anything passes.
    pub(super) fn by_chance(lease: Duration) -> Weather {
        let worst = match below(20) {
            0..10 => 6,
            10..16 => 30,
            16..19 => 80,
            _ => 320,
        };
        let bad = |most: u64| if strikes(300) { 0 } else { below(most) };
        Weather {
            lost: bad(worst),
            doubled: bad(worst),
            late: bad(worst),
            refused: bad(worst / 3),
            unsure: bad(worst / 3),
            near: if strikes(700) { 900 } else { 0 },
            bells_only_hint: strikes(200),
            lease,
        }
    }
}

/// What goes on a way.
#[derive(Clone, Copy)]
struct Sort {
    lost: Fault,
    late: Fault,
    doubled: Fault,
}

const MESSAGE: Sort =
    Sort { lost: Fault::MessageLost, late: Fault::MessageLate, doubled: Fault::MessageDoubled };
const BELL: Sort = Sort { lost: Fault::BellLost, late: Fault::BellLate, doubled: Fault::BellDoubled };

/// The way of one client.
#[derive(Debug)]
pub(super) struct Way {
    weather: Weather,
    host: Host,
    faults: Arc<Faults>,
    /// The client has crashed: nothing passes any more, also not what is under way.
    cut: AtomicBool,
    /// Nothing passes until then: microseconds of true time.
    blocked_until: AtomicU64,
    /// When something last kept this client from its engine, and the time before that.
    hits: Mutex<[Time; 2]>,
}

impl Way {
    pub(super) fn new(weather: Weather, host: Host, faults: Arc<Faults>) -> Arc<Way> {
        Arc::new(Way {
            weather,
            host,
            faults,
            cut: AtomicBool::new(false),
            blocked_until: AtomicU64::new(0),
            hits: Mutex::default(),
        })
    }

    /// A partition: whatever is sent before it ends is lost.
    pub(super) fn block(&self, time: Duration) {
        let end = self.host.true_time() + time;
        self.blocked_until.store(end.as_micros(), Ordering::Relaxed);
        *locked(&self.hits) = [end, end];
    }

    pub(super) fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    /// Whether nothing passes. In fair weather all is healed.
    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
            || self.host.true_time().as_micros() < self.blocked_until.load(Ordering::Relaxed)
                && !self.faults.is_fair()
    }

    fn strikes(&self, fault: Fault, per_mille: u64) -> bool {
        let struck = self.faults.strikes(fault, per_mille);
        if struck {
            let now = self.host.true_time();
            let mut hits = locked(&self.hits);
            *hits = [now.max(hits[0]), hits[0]];
        }
        struck
    }

    /// Since when at most one message of this client has gone astray.
    pub(super) fn good_since(&self) -> Time {
        locked(&self.hits)[1]
    }

    /// How long a message takes; `None` if it gets lost.
    fn passes(&self, sort: Sort) -> Option<Duration> {
        if self.is_cut() || self.strikes(sort.lost, self.weather.lost) {
            return None;
        }
        if self.strikes(sort.late, self.weather.late) {
            // Mostly by less than a call may take, sometimes by more than two leases.
            let part = below(1_600) as f64 / 1_000.0;
            return Some(self.weather.lease.mul_f64(part * part));
        }
        let at_once = self.weather.near > 0 && strikes(self.weather.near);
        Some(if at_once { Duration::ZERO } else { Duration::from_micros(50 + below(3_000)) })
    }

    /// The copies of a message that arrive, after how long each.
    fn copies(&self, sort: Sort) -> (Option<Duration>, Option<Duration>) {
        let doubled = self.faults.strikes(sort.doubled, self.weather.doubled);
        (self.passes(sort), doubled.then(|| self.passes(sort)).flatten())
    }
}

/// An engine at the other end of a way.
#[derive(Debug)]
pub(super) struct Far {
    engine: Arc<Engine>,
    way: Arc<Way>,
    bells: Arc<FarBells>,
    info: DriverInfo,
}

impl Far {
    /// With the bells that ring at this end.
    pub(super) fn new(engine: Arc<Engine>, way: Arc<Way>, board: Bells) -> (Far, Arc<FarBells>) {
        let info = DriverInfo { driver: "simulated", address: "simulated:".into() };
        let bells = Arc::new(FarBells { board, way: way.clone() });
        (Far { engine, way, bells: bells.clone(), info }, bells)
    }

    /// Every copy of a request that arrives is done, whoever still waits for the answer; the first that is answered counts.
    async fn exchange<T: Send + 'static>(
        &self,
        request: impl Fn(&Engine) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        let way = &self.way;
        if way.strikes(Fault::Refused, way.weather.refused) {
            return Err(Error::new(ErrorKind::Unavailable, "send", "nobody listens"));
        }
        let copies = way.copies(MESSAGE);
        if copies == (Some(Duration::ZERO), None) {
            let answer = request(&self.engine);
            return match way.passes(MESSAGE) {
                Some(Duration::ZERO) => answer,
                Some(delay) => {
                    sleep(delay).await;
                    answer
                }
                // Whoever asked has a deadline.
                None => pending().await,
            };
        }
        let (answered, first) = oneshot::channel();
        let answered = Arc::new(Mutex::new(Some(answered)));
        let request = Arc::new(request);
        for delay in [copies.0, copies.1].into_iter().flatten() {
            let (engine, way) = (self.engine.clone(), way.clone());
            let (request, answered) = (request.clone(), answered.clone());
            tokio::spawn(async move {
                sleep(delay).await;
                if way.is_cut() {
                    return;
                }
                let answer = request(&engine);
                if let Some(delay) = way.passes(MESSAGE) {
                    if !delay.is_zero() {
                        sleep(delay).await;
                    }
                    if let Some(answered) = locked(&answered).take() {
                        let _ = answered.send(answer);
                    }
                }
            });
        }
        drop(answered);
        match first.await {
            Ok(answer) => answer,
            Err(_) => pending().await,
        }
    }
}

impl Driver for Far {
    fn info(&self) -> &DriverInfo {
        &self.info
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees { fencing: Fencing::ClockBounded, exclusion: Exclusion::BoundedRates }
    }

    fn join<'a>(&'a self, claim: &'a Claim, wait: bool) -> Verb<'a, Standing> {
        let (claim, bells) = (claim.clone(), self.bells.clone());
        Box::pin(self.exchange(move |engine| engine.join(&claim, wait, &bells)))
    }

    fn renew<'a>(&'a self, places: &'a [Place]) -> Verb<'a, Vec<Standing>> {
        let (places, way) = (places.to_vec(), self.way.clone());
        let one = move |engine: &Engine, place: &Place| {
            if way.strikes(Fault::Unsure, way.weather.unsure) {
                return Standing::Unsure;
            }
            engine.renew(place)
        };
        Box::pin(self.exchange(move |engine| Ok(places.iter().map(|place| one(engine, place)).collect())))
    }

    fn leave<'a>(&'a self, place: &'a Place) -> Verb<'a, ()> {
        let place = place.clone();
        Box::pin(self.exchange(move |engine| {
            engine.leave(&place);
            Ok(())
        }))
    }

    fn view<'a>(&'a self, _: &'a Query) -> Verb<'a, Vec<LineView>> {
        Box::pin(self.exchange(move |engine| Ok(engine.view())))
    }

    fn evict<'a>(&'a self, name: &'a Name, ticket: Ticket, at_once: bool) -> Verb<'a, bool> {
        let name = name.clone();
        Box::pin(self.exchange(move |engine| Ok(engine.evict(&name, ticket, at_once))))
    }
}

/// Bells on the same way.
#[derive(Debug)]
pub(super) struct FarBells {
    board: Bells,
    way: Arc<Way>,
}

impl FarBells {
    /// A bell is on its way. One that comes to a process that stands still waits there.
    pub(super) fn ring(self: &Arc<FarBells>, name: &Name, bell: &Bell) {
        let (first, second) = self.way.copies(BELL);
        for delay in [first, second].into_iter().flatten() {
            let (bells, name, bell) = (self.clone(), name.clone(), bell.clone());
            tokio::spawn(self.way.host.runs(async move {
                if !delay.is_zero() {
                    sleep(delay).await;
                }
                if !bells.way.is_cut() {
                    bells.arrives(&name, &bell);
                }
            }));
        }
    }

    fn arrives(&self, name: &Name, bell: &Bell) {
        if self.way.weather.bells_only_hint && lets_in(bell) {
            self.board.look_now(bell.id);
        } else {
            self.board.ring(name, bell);
        }
    }

    /// It was cut off, and may have missed bells.
    pub(super) fn connected_again(&self) {
        self.board.look_at_all();
    }
}
