//! The keeper and the belief on a clock that stands still until told otherwise: exact, and without waiting.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, advance};

use super::bells::Board;
use super::meters::Meters;
use super::spot::Spot;
use super::validity::{Belief, Phase, margin, valid_until};
use crate::driver::{BellBoard, Driver, DriverInfo, Exclusion, Fencing, Guarantees, Query, Verb};
use crate::drivers::memory::{Memory, MemoryDriver};
use crate::line::{Claim, ClaimId, LineView, Mode, Place, Standing, Ticket, Who};
use crate::name::Name;
use crate::time::{Clock, Time};
use crate::{Builder, Locks};
use crate::{LossReason, Result};

const LEASE: Duration = Duration::from_secs(10);

/// A memory engine that counts renewals, and can be made to hang.
#[derive(Debug)]
struct Watched {
    memory: MemoryDriver,
    calls: Arc<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    renewals: AtomicUsize,
    places: AtomicUsize,
    hangs: AtomicBool,
    /// The part of the engine that keeps locks called `far` cannot be asked.
    far_is_down: AtomicBool,
    /// An operator has weakened the engine.
    is_weak: AtomicBool,
}

impl Driver for Watched {
    fn info(&self) -> &DriverInfo {
        self.memory.info()
    }

    fn guarantees(&self) -> Guarantees {
        if self.calls.is_weak.load(Ordering::Acquire) {
            return Guarantees { exclusion: Exclusion::Probable, ..self.memory.guarantees() };
        }
        self.memory.guarantees()
    }

    fn join<'a>(&'a self, claim: &'a Claim, wait: bool) -> Verb<'a, Standing> {
        self.memory.join(claim, wait)
    }

    fn renew<'a>(&'a self, places: &'a [Place]) -> Verb<'a, Vec<Standing>> {
        if self.calls.hangs.load(Ordering::Acquire) {
            return Box::pin(pending());
        }
        self.calls.renewals.fetch_add(1, Ordering::AcqRel);
        self.calls.places.fetch_add(places.len(), Ordering::AcqRel);
        if self.calls.far_is_down.load(Ordering::Acquire) {
            return Box::pin(async move {
                let mut standings = self.memory.renew(places).await?;
                for (place, standing) in places.iter().zip(&mut standings) {
                    if place.name.as_str() == "far" {
                        *standing = Standing::Unsure;
                    }
                }
                Ok(standings)
            });
        }
        self.memory.renew(places)
    }

    fn leave<'a>(&'a self, place: &'a Place) -> Verb<'a, ()> {
        self.memory.leave(place)
    }

    fn view<'a>(&'a self, query: &'a Query) -> Verb<'a, Vec<LineView>> {
        self.memory.view(query)
    }

    fn evict<'a>(&'a self, name: &'a Name, ticket: Ticket, at_once: bool) -> Verb<'a, bool> {
        self.memory.evict(name, ticket, at_once)
    }
}

async fn watched() -> (Locks, Arc<Calls>) {
    watched_by(|builder| builder).await
}

async fn watched_by(settings: impl FnOnce(Builder) -> Builder) -> (Locks, Arc<Calls>) {
    let clock = Clock::Tokio(Instant::now());
    let calls = Arc::new(Calls::default());
    let counted = calls.clone();
    let builder = settings(Builder::on_clock(clock).lease(LEASE));
    let open = async move |bells| -> Result<Arc<dyn Driver>> {
        let memory = MemoryDriver::new(Memory::on(clock), bells);
        Ok(Arc::new(Watched { memory, calls: counted }) as Arc<dyn Driver>)
    };
    (builder.driver(open).await.unwrap(), calls)
}

/// Lets time pass in small steps, so that everything that is due in between happens in between.
async fn pass(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_locks_are_renewed_in_batches() {
    let (locks, calls) = watched().await;
    let mut held = Vec::new();
    for n in 0..10_000 {
        held.push(locks.mutex(format!("lock/{n}")).lock().await.unwrap());
        if n % 100 == 0 {
            // They are taken over a second and not in one instant.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    pass(LEASE * 6).await;
    assert!(held.iter().all(|guard| guard.is_valid()));
    let (calls, places) = (calls.renewals.load(Ordering::Acquire), calls.places.load(Ordering::Acquire));
    assert!(places >= 10_000 * 12, "each lock about every third of its lease: {places}");
    assert!(places / calls >= 100, "{calls} calls for {places} places");
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_engine_hangs_is_told_by_its_own_clock() {
    let (locks, calls) = watched().await;
    let began = Instant::now();
    let guard = locks.mutex("m").lock().await.unwrap();
    calls.hangs.store(true, Ordering::Release);
    let lost = guard.lost().await;
    assert_eq!(lost.reason, LossReason::Unreachable);
    let told = began.elapsed();
    let valid = LEASE - margin(LEASE);
    assert!(told >= valid && told <= valid + Duration::from_millis(2), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_part_of_an_engine_that_is_down_costs_only_its_own_locks() {
    let (locks, calls) = watched().await;
    let began = Instant::now();
    let (near, far) = (locks.mutex("near").lock().await.unwrap(), locks.mutex("far").lock().await.unwrap());
    calls.far_is_down.store(true, Ordering::Release);
    assert_eq!(far.lost().await.reason, LossReason::Unreachable);
    assert!(began.elapsed() <= LEASE, "an answer that is none extends nothing");
    pass(LEASE * 2).await;
    assert!(near.is_valid());

    calls.far_is_down.store(false, Ordering::Release);
    let again = locks.mutex("far").lock().await.unwrap();
    calls.far_is_down.store(true, Ordering::Release);
    pass(LEASE / 2).await;
    calls.far_is_down.store(false, Ordering::Release);
    pass(LEASE).await;
    assert!(again.is_valid(), "it is asked again soon enough");
}

#[tokio::test(start_paused = true)]
async fn the_first_look_after_a_pause_tells() {
    let (locks, _) = watched().await;
    let guard = locks.mutex("m").lock().await.unwrap();
    // Nothing else runs while the clock jumps: a stopped process, a frozen machine.
    advance(LEASE * 3).await;
    assert!(!guard.is_valid());
    assert_eq!(guard.loss().map(|lost| lost.reason), Some(LossReason::Expired));
    pass(LEASE).await;
    assert!(!guard.is_valid(), "a lost guard never comes back");
}

#[tokio::test(start_paused = true)]
async fn a_capped_hold_ends_at_its_cap_and_the_next_one_follows() {
    let (locks, _) = watched().await;
    let cap = LEASE * 4;
    let guard = locks.mutex("m").max_hold(cap).lock().await.unwrap();
    let began = Instant::now();
    let next = tokio::spawn({
        let next = locks.mutex("m");
        async move { next.lock().await }
    });
    assert_eq!(guard.lost().await.reason, LossReason::MaxHold);
    assert!(began.elapsed() >= cap && began.elapsed() <= cap + Duration::from_millis(2));
    assert!(next.await.unwrap().is_ok());
    assert!(began.elapsed() < cap + Duration::from_secs(1), "it left, and did not wait for its lease to end");
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_is_not_renewed() {
    let (locks, calls) = watched().await;
    let guard = locks.mutex("m").lease(LEASE * 2).fixed().lock().await.unwrap();
    let began = Instant::now();
    assert_eq!(calls.renewals.load(Ordering::Acquire), 1, "the final renewal");
    assert_eq!(guard.lost().await.reason, LossReason::Expired);
    assert!(began.elapsed() <= LEASE * 2);
    assert_eq!(calls.renewals.load(Ordering::Acquire), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_slept_through_its_lease_stands_in_line_again() {
    let (locks, _) = watched().await;
    let holder = locks.mutex("m").lease(LEASE * 100).fixed().lock().await.unwrap();
    let waiter = tokio::spawn({
        let waiter = locks.mutex("m");
        async move { waiter.lock().await }
    });
    pass(LEASE).await;
    let before = locks.show("m").await.unwrap().waiters[0].ticket;
    advance(LEASE * 3).await;
    pass(LEASE).await;
    let after = locks.show("m").await.unwrap().waiters[0].ticket;
    assert!(after > before, "a new place, with a new ticket");
    holder.release().await.unwrap();
    assert!(waiter.await.unwrap().unwrap().fence().token() >= after.get());
}

#[tokio::test(start_paused = true)]
async fn a_cap_that_has_passed_at_once_gives_a_lost_guard() {
    let (locks, _) = watched().await;
    let guard = locks.mutex("m").max_hold(Duration::from_nanos(1)).lock().await.unwrap();
    assert_eq!(guard.loss().map(|lost| lost.reason), Some(LossReason::MaxHold));
    assert!(locks.mutex("m").lock().await.unwrap().is_valid());
}

/// Bells that arrive late, as between two processes.
#[derive(Debug)]
struct LateBells(crate::driver::Bells, Duration);

impl crate::driver::BellBoard for LateBells {
    fn ring(&self, name: &Name, bell: &crate::line::Bell) {
        let (board, name, bell, late) = (self.0.clone(), name.clone(), bell.clone(), self.1);
        tokio::spawn(async move {
            tokio::time::sleep(late).await;
            board.ring(&name, &bell);
        });
    }

    fn acknowledged(&self, id: crate::line::ClaimId, replicas: u32) {
        self.0.acknowledged(id, replicas);
    }

    fn look_now(&self, id: crate::line::ClaimId) {
        self.0.look_now(id);
    }

    fn look_at_all(&self) {
        self.0.look_at_all();
    }
}

#[tokio::test(start_paused = true)]
async fn who_looks_between_its_eviction_and_the_bell_stays_evicted() {
    // A waiter looks again once a second at the latest: with a bell that takes as long, a look comes first.
    for (late, is_told) in [(Duration::from_millis(60), true), (Duration::from_millis(1_500), false)] {
        let clock = Clock::Tokio(Instant::now());
        let open = async move |bells| -> Result<Arc<dyn Driver>> {
            let bells = Arc::new(LateBells(bells, late));
            Ok(Arc::new(MemoryDriver::new(Memory::on(clock), bells)) as Arc<dyn Driver>)
        };
        let locks = Builder::on_clock(clock).lease(LEASE).driver(open).await.unwrap();
        let holder = locks.mutex("m").lock().await.unwrap();
        let waiting = tokio::spawn({
            let mutex = locks.mutex("m");
            async move { mutex.lock().await.map(|guard| guard.fence().token()) }
        });
        // Its first look is a second after it joined; the eviction comes right before.
        pass(Duration::from_millis(950)).await;
        let ticket = locks.view("m").await.unwrap()[0].waiters[0].ticket;
        assert!(locks.evict("m", ticket, false).await.unwrap());
        pass(Duration::from_secs(3)).await;
        if is_told {
            assert_eq!(waiting.await.unwrap().unwrap_err().kind(), crate::ErrorKind::Evicted);
            assert!(locks.view("m").await.unwrap()[0].waiters.is_empty(), "it is out");
        } else {
            // What no bell tells in time cannot be told from an engine that forgot.
            assert_eq!(locks.view("m").await.unwrap()[0].waiters.len(), 1, "it stands in line again");
            holder.release().await.unwrap();
            waiting.await.unwrap().unwrap();
        }
    }
}

/// Where there is no line a claim that waits has no ticket: it learns one when it gets in, and from then on only that counts.
#[test]
fn a_claim_without_a_ticket_learns_it_when_it_gets_in() {
    let (waits, sent) =
        (Standing::Waiting { ticket: Ticket::ZERO, ahead: 1, look_again: LEASE }, |seconds| {
            Time::ZERO + Duration::from_secs(seconds)
        });
    let mut belief = Belief::new();
    belief.answer(sent(1), sent(1), LEASE, waits);
    assert_eq!((belief.phase(), belief.ticket()), (Phase::Waiting, None));
    belief.answer(sent(4), sent(4), LEASE, waits);
    assert_eq!(belief.valid_until(), valid_until(sent(4), LEASE), "waiting is renewed like holding");
    belief.answer(sent(5), sent(5), LEASE, Standing::In { ticket: Ticket::new(7) });
    assert_eq!((belief.phase(), belief.ticket()), (Phase::In, Some(Ticket::new(7))));
    belief.answer(sent(6), sent(6), LEASE, waits);
    assert_eq!(belief.phase(), Phase::In);
    assert_eq!(belief.valid_until(), valid_until(sent(5), LEASE), "an old answer extends nothing");
    belief.answer(sent(7), sent(7), LEASE, Standing::In { ticket: Ticket::new(8) });
    assert_eq!(belief.phase(), Phase::Lost(LossReason::Forgotten), "another place is not this one");
}

/// Something happens while a request is under way, after the engine answered it and before anybody here knows the answer.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_to_be_looked_at_meanwhile_is_looked_at_again() {
    let clock = Clock::Tokio(Instant::now());
    let board = Board::new(clock, LEASE);
    let who = Who { owner: "me".into(), host: "here".into(), pid: 1 };
    let claim = Claim {
        name: Name::new("m").unwrap(),
        id: ClaimId::random(),
        mode: Mode::Exclusive,
        lease: LEASE,
        who: Arc::new(who),
        identity: None,
        primitive: crate::line::Primitive::Mutex,
    };
    let spot = Arc::new(Spot::new(claim, Arc::new(Meters::new("test"))));
    assert!(board.hang(&spot, 1).is_ok());
    // The join is under way, and its answer says to look again in a second.
    board.look_now(spot.claim.id);
    spot.answer(
        clock.now(),
        clock.now(),
        LEASE,
        Standing::Waiting { ticket: Ticket::ZERO, ahead: 1, look_again: LEASE },
    );
    board.look_in(&spot, Duration::from_secs(1));
    assert_eq!(board.take_due(clock.now()).len(), 1, "now, not in a second");
    // Nothing happened meanwhile.
    board.look_in(&spot, Duration::from_secs(1));
    assert!(board.take_due(clock.now()).is_empty());
    board.look_in(&spot, Duration::from_secs(1));
    board.look_now(spot.claim.id);
    assert_eq!(board.take_due(clock.now()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_demanded_of_an_engine_ends_when_it_is_weakened() {
    let demanded = Guarantees { fencing: Fencing::Always, exclusion: Exclusion::Always };
    let (locks, calls) = watched_by(|builder| builder.require(demanded)).await;
    let guard = locks.mutex("m").lock().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = locks.mutex("m");
        async move { mutex.lock().await.map(drop) }
    });
    pass(LEASE).await;
    assert!(guard.is_valid());
    calls.is_weak.store(true, Ordering::Release);
    pass(LEASE).await;
    assert_eq!(guard.loss().map(|lost| lost.reason), Some(LossReason::Weakened), "within a lease");
    for refused in [waiting.await.unwrap(), locks.mutex("other").lock().await.map(drop)] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Unsupported);
        assert!(error.message().contains("probable exclusion"), "{error}");
    }
    calls.is_weak.store(false, Ordering::Release);
    pass(Duration::from_millis(100)).await;
    assert!(locks.mutex("other").try_lock().await.unwrap().is_some(), "nothing of what was refused stays");
}

#[tokio::test(start_paused = true)]
async fn who_demands_nothing_keeps_its_lock_on_a_weakened_engine_and_can_see_it() {
    let (locks, calls) = watched().await;
    let guard = locks.mutex("m").lock().await.unwrap();
    calls.is_weak.store(true, Ordering::Release);
    pass(LEASE * 2).await;
    assert!(guard.is_valid());
    assert_eq!(guard.guarantees().exclusion, Exclusion::Probable);
    assert_eq!(locks.guarantees().exclusion, Exclusion::Probable);
}

/// "Not free" would be a guess: the engine did not say so.
#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_while_the_engine_does_not_answer_says_so() {
    let (locks, calls) = watched().await;
    let _holder = locks.mutex("m").lock().await.unwrap();
    let busy = locks.mutex("m").try_lock_for(Duration::from_millis(500)).await.unwrap();
    assert!(busy.is_none(), "the engine said that it is taken");
    let waiting = tokio::spawn({
        let mutex = locks.mutex("m");
        async move { mutex.try_lock_for(Duration::from_secs(5)).await.map(|guard| guard.is_some()) }
    });
    pass(Duration::from_millis(500)).await;
    calls.hangs.store(true, Ordering::Release);
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Unknown);
    assert_eq!(error.name().map(Name::as_str), Some("m"));
}

#[tokio::test(start_paused = true)]
async fn who_stands_far_back_looks_again_only_to_renew() {
    let (locks, calls) = watched().await;
    let _holder = locks.mutex("m").lock().await.unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..1000 {
        let mutex = locks.mutex("m");
        waiting.spawn(async move { mutex.lock().await.map(drop) });
    }
    pass(LEASE).await;
    let before = calls.places.load(Ordering::Acquire);
    pass(LEASE * 3).await;
    let often = (calls.places.load(Ordering::Acquire) - before) / 1001;
    assert!((9..=16).contains(&often), "{often} renewals each in three leases, and not thirty");
}
