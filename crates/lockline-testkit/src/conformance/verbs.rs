//! The driver's contract, asked without the library above it.

use std::sync::Arc;
use std::time::Duration;

use lockline::driver::{BellBoard, Bells, Driver, Query};
use lockline::line::{Bell, Claim, ClaimId, Mode, Place, Primitive, Standing, Who};
use lockline::{ErrorKind, Name};

use crate::setup::{LONG, SHORT, SOON, Setup, within};

/// Hears nothing: these tests ask.
#[derive(Debug)]
struct Deaf;

impl BellBoard for Deaf {
    fn ring(&self, _name: &Name, _bell: &Bell) {}
    fn acknowledged(&self, _id: ClaimId, _replicas: u32) {}
    fn look_now(&self, _id: ClaimId) {}
    fn look_at_all(&self) {}
}

async fn driver(setup: &Setup) -> Arc<dyn Driver> {
    setup.engine().open(Arc::new(Deaf) as Bells).await.expect("the engine can be reached")
}

fn claim(name: &str, lease: Duration) -> Claim {
    let who = Who { owner: "test".to_owned(), host: "here".to_owned(), pid: std::process::id() };
    Claim {
        name: Name::new(name).unwrap(),
        id: ClaimId::random(),
        mode: Mode::Exclusive,
        lease,
        who: Arc::new(who),
        identity: None,
        primitive: Primitive::Mutex,
    }
}

fn place(claim: &Claim, standing: Standing) -> Place {
    Place {
        name: claim.name.clone(),
        id: claim.id,
        ticket: standing.ticket(),
        lease: claim.lease,
        last: false,
    }
}

/// Joins on a short lease. A driver that waits for several servers gives them a fraction of it, and on a busy machine that
/// may be too little: then the outcome is unknown, and is closed as core closes it, by asking again with the same id.
async fn joined(driver: &dyn Driver, claim: &Claim) -> Standing {
    let began = std::time::Instant::now();
    loop {
        match driver.join(claim, true).await {
            Err(error) if error.kind() == ErrorKind::Unknown && began.elapsed() < SOON => {}
            outcome => return outcome.unwrap(),
        }
    }
}

async fn renewed(driver: &dyn Driver, place: &Place) -> Standing {
    driver.renew(std::slice::from_ref(place)).await.unwrap()[0]
}

/// §4 `join`: "idempotent, extends".
pub async fn join_is_idempotent(setup: &Setup) {
    let driver = driver(setup).await;
    let (holder, waiter) = (claim("m", LONG), claim("m", LONG));
    let first = driver.join(&holder, true).await.unwrap();
    let second = driver.join(&waiter, true).await.unwrap();
    assert!(matches!(first, Standing::In { .. }));
    assert!(matches!(second, Standing::Waiting { ahead: 1, .. }));
    assert!(second.ticket() > first.ticket());
    for _ in 0..3 {
        assert_eq!(driver.join(&holder, true).await.unwrap(), first);
        assert_eq!(driver.join(&waiter, true).await.unwrap().ticket(), second.ticket());
    }
    let lines = driver.view(&Query::Name(holder.name.clone())).await.unwrap();
    assert_eq!((lines[0].holders.len(), lines[0].waiters.len()), (1, 1));
}

/// §4 `join`: "wait = false leaves nothing behind".
pub async fn join_without_waiting_leaves_nothing(setup: &Setup) {
    let driver = driver(setup).await;
    let (holder, hasty) = (claim("m", LONG), claim("m", LONG));
    let stands = driver.join(&holder, false).await.unwrap();
    assert!(matches!(stands, Standing::In { .. }));
    assert_eq!(driver.join(&hasty, false).await.unwrap(), Standing::Out);
    assert_eq!(driver.view(&Query::Name(holder.name.clone())).await.unwrap()[0].waiters.len(), 0);
    driver.leave(&place(&holder, stands)).await.unwrap();
    assert_eq!(renewed(&*driver, &place(&hasty, stands)).await, Standing::Lapsed);
}

/// §4 `renew`: "never makes a place"; a batch is answered in the order asked, unknown ones included.
pub async fn renew_never_makes_a_place(setup: &Setup) {
    let driver = driver(setup).await;
    let (here, there, nowhere) = (claim("a", LONG), claim("b", LONG), claim("c", LONG));
    let (a, b) = (driver.join(&here, true).await.unwrap(), driver.join(&there, true).await.unwrap());
    let batch = [place(&nowhere, a), place(&there, b), place(&nowhere, b), place(&here, a)];
    let standings = driver.renew(&batch).await.unwrap();
    assert_eq!(standings, [Standing::Lapsed, b, Standing::Lapsed, a]);
    assert_eq!(driver.view(&Query::Prefix(String::new())).await.unwrap().len(), 2);
    assert_eq!(driver.renew(&[]).await.unwrap(), []);
}

/// §4 `leave`: "in, waiting or unknown: always Ok, nothing remains".
pub async fn leave_is_always_ok(setup: &Setup) {
    let driver = driver(setup).await;
    let (holder, waiter, stranger) = (claim("m", LONG), claim("m", LONG), claim("m", LONG));
    let first = driver.join(&holder, true).await.unwrap();
    let second = driver.join(&waiter, true).await.unwrap();
    for _ in 0..2 {
        driver.leave(&place(&stranger, first)).await.unwrap();
        driver.leave(&place(&waiter, second)).await.unwrap();
    }
    assert_eq!(renewed(&*driver, &place(&holder, first)).await, first, "nobody else was touched");
    // A client that never learnt its ticket leaves by its id.
    driver.leave(&Place { ticket: None, ..place(&holder, first) }).await.unwrap();
    assert!(
        driver.view(&Query::Prefix(String::new())).await.unwrap().is_empty(),
        "a free line is not listed"
    );
}

/// §6.2: "Only the claim that owns a place can renew or leave it": knowing name and ticket is not enough.
pub async fn only_the_owner_of_a_place_can_touch_it(setup: &Setup) {
    let driver = driver(setup).await;
    let (holder, thief) = (claim("m", SHORT), claim("m", LONG));
    let stands = joined(&*driver, &holder).await;
    let stolen = place(&thief, stands);
    assert_eq!(renewed(&*driver, &stolen).await, Standing::Lapsed);
    driver.leave(&stolen).await.unwrap();
    let lines = driver.view(&Query::Name(holder.name.clone())).await.unwrap();
    assert!(
        lines.first().is_none_or(|line| line.holders[0].remaining <= SHORT),
        "not extended by a stranger"
    );
    within(SHORT * 4, "it lapses in its own time", async || {
        driver.view(&Query::Name(holder.name.clone())).await.unwrap().is_empty()
    })
    .await;
}

/// §2 *A place is a claim id and its ticket*: a renewal for another ticket extends nothing, and names the real one.
pub async fn renew_for_another_ticket_extends_nothing(setup: &Setup) {
    let driver = driver(setup).await;
    let holder = claim("m", SHORT);
    let stands = joined(&*driver, &holder).await;
    let old = Place {
        ticket: stands.ticket().map(|ticket| lockline::Ticket::new(ticket.get() - 1)),
        lease: LONG,
        ..place(&holder, stands)
    };
    let answer = renewed(&*driver, &old).await;
    assert!(answer == stands || answer == Standing::Lapsed, "it names the real ticket: {answer:?}");
    let lines = driver.view(&Query::Name(holder.name.clone())).await.unwrap();
    assert!(lines.first().is_none_or(|line| line.holders[0].remaining <= SHORT), "not extended");
}

/// §2 *One lease rule*: "Getting in changes no deadline".
pub async fn getting_in_changes_no_deadline(setup: &Setup) {
    let driver = driver(setup).await;
    let (holder, waiter) = (claim("m", LONG), claim("m", LONG));
    let first = driver.join(&holder, true).await.unwrap();
    driver.join(&waiter, true).await.unwrap();
    let waited = Duration::from_millis(300);
    tokio::time::sleep(waited).await;
    driver.leave(&place(&holder, first)).await.unwrap();
    let lines = driver.view(&Query::Name(holder.name.clone())).await.unwrap();
    assert!(lines[0].holders[0].remaining <= LONG - waited, "{:?}", lines[0].holders[0].remaining);
}

/// §4: "Each verb first drops **all** lapsed claims of the line, wherever they stand".
pub async fn lapsed_claims_go_from_anywhere(setup: &Setup) {
    let driver = driver(setup).await;
    let shared = |lease| Claim { mode: Mode::Shared, ..claim("m", lease) };
    let (alive, dying, writer) = (shared(LONG), shared(SHORT), claim("m", LONG));
    let first = driver.join(&alive, true).await.unwrap();
    assert!(matches!(joined(&*driver, &dying).await, Standing::In { .. }));
    let last = driver.join(&writer, true).await.unwrap();
    within(SHORT * 4, "the second reader lapses behind the first", async || {
        driver.view(&Query::Name(alive.name.clone())).await.unwrap()[0].holders.len() == 1
    })
    .await;
    driver.leave(&place(&alive, first)).await.unwrap();
    let stands = renewed(&*driver, &place(&writer, last)).await;
    assert_eq!(Some(stands), last.ticket().map(|ticket| Standing::In { ticket }));
}

/// §4: a place that gets in by this very verb is in, also for a `try` of the identity that waits on it.
pub async fn try_enters_the_place_that_gets_in_by_it(setup: &Setup) {
    let driver = driver(setup).await;
    let identity = |claim: Claim| Claim { identity: Some("shared".into()), ..claim };
    let (holder, waiter, hasty) = (claim("m", SHORT), identity(claim("m", LONG)), identity(claim("m", LONG)));
    joined(&*driver, &holder).await;
    let waits = driver.join(&waiter, true).await.unwrap();
    assert!(matches!(waits, Standing::Waiting { .. }));
    // Nobody asks while the holder lapses.
    tokio::time::sleep(SHORT + SHORT / 4).await;
    let ticket = waits.ticket().unwrap();
    assert_eq!(driver.join(&hasty, false).await.unwrap(), Standing::In { ticket });
}

/// §4 `look_again`: at most a second, a third of the lease, and the time until a claim before it lapses.
pub async fn look_again_is_soon_enough(setup: &Setup) {
    let driver = driver(setup).await;
    let look_again = async |claim: &Claim| match driver.join(claim, true).await.unwrap() {
        Standing::Waiting { look_again, .. } => look_again,
        other => panic!("it should wait: {other:?}"),
    };
    driver.join(&claim("long", LONG), true).await.unwrap();
    let asked = look_again(&claim("long", LONG)).await;
    assert!(asked <= Duration::from_secs(1) && asked >= Duration::from_millis(5), "{asked:?}");
    let asked = look_again(&claim("long", SHORT)).await;
    assert!(asked <= SHORT / 3, "{asked:?}");
    driver.join(&claim("short", SHORT), true).await.unwrap();
    driver.join(&claim("short", LONG), true).await.unwrap();
    let asked = look_again(&claim("short", LONG)).await;
    assert!(asked <= SHORT, "any claim before it: {asked:?}");
}

/// §4 order: "a `leave` that is called after a `join` of the same claim … takes effect after it", though nobody awaited.
pub async fn leave_never_overtakes_its_join(setup: &Setup) {
    let driver = driver(setup).await;
    for _ in 0..30 {
        let hasty = claim("m", LONG);
        let mut join = driver.join(&hasty, true);
        // Polled once, then dropped half-way.
        let polled =
            std::future::poll_fn(|context| std::task::Poll::Ready(join.as_mut().poll(context).is_ready()))
                .await;
        drop(join);
        let left = Place { name: hasty.name.clone(), id: hasty.id, ticket: None, lease: LONG, last: false };
        driver.leave(&left).await.unwrap();
        let seen = driver.view(&Query::Name(hasty.name.clone())).await.unwrap();
        assert!(seen.is_empty(), "the join (answered: {polled}) came after its leave");
    }
}
