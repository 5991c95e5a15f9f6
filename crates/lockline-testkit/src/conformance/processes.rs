//! Real processes: killed, stopped, many.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use lockline::fence::Gate;

use crate::peer::{Answer, Command, fence};
use crate::setup::{
    LONG, SHORT, SOON, Setup, eventually, granted, line, queue_up, soon, until_empty, until_waiting, within,
};

/// §2: processes exclude each other, are served in order, and their tokens rise.
pub async fn processes_take_turns(setup: &Setup) {
    let locks = setup.client().await;
    let (mut one, mut two) = (setup.peer("one").await, setup.peer("two").await);
    let first = one.lock("slot", "m").await;
    let second = two.ask_lock("slot", "m").await;
    until_waiting(&locks, "m", 1).await;
    let third = queue_up(&locks, "m", 2).await;
    let stands = line(&locks, "m").await;
    assert_eq!((stands.holders[0].who.owner.as_str(), stands.holders[0].who.pid), ("one", one.pid()));
    assert_eq!((stands.waiters[0].who.owner.as_str(), stands.waiters[0].who.pid), ("two", two.pid()));
    assert_eq!(one.release("slot").await, Answer::Done);
    let second = second.token().await;
    assert!(second > first);
    assert!(!third.is_finished());
    assert_eq!(two.release("slot").await, Answer::Done);
    assert!(granted(third).await.fence().token() > second);
}

/// Algorithms §3: kill -9 of the holder: the next one is in within 1.1 leases, or at once where the engine sees it.
pub async fn killed_holder_lets_the_next_one_in(setup: &Setup) {
    let lease = Duration::from_millis(2000);
    let locks = setup.client().await;
    let at_once = setup.engine().notices_dead_processes();
    let mut peer = setup.peer_with("doomed", if at_once { LONG } else { lease }).await;
    let token = peer.lock("slot", "m").await;
    let next = queue_up(&locks, "m", 1).await;
    let killed = Instant::now();
    peer.kill().await;
    let next = granted(next).await;
    let took = killed.elapsed();
    assert!(next.fence().token() > token);
    // The machine may be busy; but a long lease is far beyond any of that.
    let limit = if at_once { SOON } else { lease * 11 / 10 + Duration::from_millis(1500) };
    assert!(took <= limit, "it took {took:?}");
}

/// Algorithms §3: kill -9 of waiters, any number, "also at the head": one lease in total, they lapse side by side.
pub async fn killed_waiters_hold_nobody_up(setup: &Setup) {
    let lease = Duration::from_millis(1500);
    let locks = setup.client().await;
    let held = locks.mutex("m").lock().await.unwrap();
    let mut doomed = Vec::new();
    for nth in 1..=3 {
        let mut peer = setup.peer_with("doomed", lease).await;
        peer.ask_lock("slot", "m").await;
        until_waiting(&locks, "m", nth).await;
        doomed.push(peer);
    }
    let patient = queue_up(&locks, "m", 4).await;
    let killed = Instant::now();
    for peer in doomed {
        peer.kill().await;
    }
    held.release().await.unwrap();
    assert!(granted(patient).await.is_valid());
    assert!(killed.elapsed() < lease * 2, "one lease for all, not one each: {:?}", killed.elapsed());
}

/// Algorithms §3: SIGSTOP beyond the lease: others go on, *Lost* on the first look, its token refused, nobody held up.
pub async fn stopped_holder_is_lost_on_its_first_look(setup: &Setup) {
    let gate = Gate::default();
    let locks = setup.client().await;
    let mut peer = setup.peer_with("sleeper", SHORT).await;
    let old = peer.lock("slot", "m").await;
    assert!(gate.pass(fence(old)).is_ok());
    // The answer to a look: nothing of the peer's is under way when it is stopped.
    peer.look("slot").await;
    peer.stop();
    let next = soon("others go on", locks.mutex("m").lock()).await.unwrap();
    assert!(gate.pass(next.fence()).is_ok());
    for nth in 0..10 {
        let other = soon("nobody is held up", locks.mutex(format!("other/{nth}")).lock()).await.unwrap();
        other.release().await.unwrap();
    }
    peer.go_on();
    match peer.look("slot").await {
        Answer::Lost { reason } => assert!(["expired", "unreachable"].contains(&reason.as_str()), "{reason}"),
        other => panic!("a guard that slept through its lease is lost: {other:?}"),
    }
    assert!(gate.pass(fence(old)).is_err(), "its token is refused");
    assert!(matches!(peer.release("slot").await, Answer::Failed { .. }));
    assert!(next.is_valid(), "its late release takes nothing away");
    next.release().await.unwrap();
    assert!(peer.lock("slot", "m").await > old, "and it may come again");
}

/// Algorithms §3: a stopped *waiter* at the head holds nobody up for longer than its lease.
pub async fn stopped_waiter_is_passed(setup: &Setup) {
    let locks = setup.client().await;
    let held = locks.mutex("m").lock().await.unwrap();
    // A lock that gets no answer for a whole lease fails, and each answer may take a sixth of it: a short lease would end the sleeper
    // on a machine that is busy.
    let mut peer = setup.peer_with("sleeper", Duration::from_secs(2)).await;
    let asked = peer.ask_lock("slot", "m").await;
    until_waiting(&locks, "m", 1).await;
    let patient = queue_up(&locks, "m", 2).await;
    peer.stop();
    held.release().await.unwrap();
    let next = granted(patient).await;
    peer.go_on();
    let mut asked = std::pin::pin!(asked.token());
    tokio::select! {
        token = &mut asked => panic!("it is in with {token} although the lock is held"),
        () = eventually("it stands in line anew", async || line(&locks, "m").await.waiters.len() == 1) => {}
    }
    let token = next.fence().token();
    next.release().await.unwrap();
    assert!(asked.await > token, "behind the one that passed it");
}

/// §6.5: all clients killed, holders and waiters: nothing is left after one lease.
pub async fn no_residue_after_everybody_was_killed(setup: &Setup) {
    let lease = Duration::from_millis(1500);
    let mut peers = Vec::new();
    for nth in 0..3 {
        let mut peer = setup.peer_with("doomed", lease).await;
        peer.lock("own", &format!("own/{nth}")).await;
        peer.ask_lock("common", "common").await;
        peers.push(peer);
    }
    let locks = setup.client().await;
    until_waiting(&locks, "common", 2).await;
    for peer in peers {
        peer.kill().await;
    }
    within(lease * 4, "nothing is left", async || locks.view("").await.unwrap().is_empty()).await;
}

/// §2: fencing over processes and restarts: each new process gets a larger token than all before.
pub async fn tokens_rise_over_processes_and_restarts(setup: &Setup) {
    let mut newest = 0;
    for turn in 0..4 {
        let mut peer = setup.peer("one").await;
        let token = peer.lock("slot", "m").await;
        assert!(token > newest, "turn {turn}");
        newest = token;
        assert_eq!(peer.release("slot").await, Answer::Done);
        peer.kill().await;
    }
}

/// §2: an owner with a shared identity "may also re-enter from another process"; both must release.
pub async fn shared_identity_over_processes(setup: &Setup) {
    let locks = setup.client().await;
    let (mut one, mut two) = (setup.peer("one").await, setup.peer("two").await);
    let first = one.lock_as("slot", "m", "job-7").await;
    let second = two.lock_as("slot", "m", "job-7").await;
    assert_eq!(first, second, "the place's ticket");
    let waiting = queue_up(&locks, "m", 1).await;
    assert_eq!(one.release("slot").await, Answer::Done);
    assert_eq!(two.look("slot").await, Answer::Valid);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished(), "the other one still holds");
    assert_eq!(two.release("slot").await, Answer::Done);
    assert!(granted(waiting).await.fence().token() > first);
}

/// §2 *Evict*, over processes: the evicted holder is told, and so is an evicted waiter.
pub async fn eviction_reaches_another_process(setup: &Setup) {
    let locks = setup.client().await;
    let (mut one, mut two) = (setup.peer("one").await, setup.peer("two").await);
    let token = one.lock("slot", "m").await;
    let waiting = two.ask_lock("slot", "m").await;
    until_waiting(&locks, "m", 1).await;
    let waiter = line(&locks, "m").await.waiters[0].ticket;
    assert!(locks.evict("m", waiter, false).await.unwrap());
    match waiting.answer().await {
        Answer::Failed { error } => assert!(error.starts_with("Evicted"), "{error}"),
        other => panic!("{other:?}"),
    }
    assert!(locks.evict("m", lockline::Ticket::new(token), false).await.unwrap());
    let told = async || one.look("slot").await == Answer::Lost { reason: "evicted".to_owned() };
    eventually("the holder is told", told).await;
    until_empty(&locks, "of the evicted").await;
}

/// Issue 2: 8 processes on one name: nobody meets another inside, tokens strictly rise, everybody has its turns.
pub async fn eight_processes_take_fair_turns(setup: &Setup) {
    const PROCESSES: usize = 8;
    let dir = tempfile::tempdir().unwrap();
    let locks = setup.client().await;
    let start = locks.mutex("m").lock().await.unwrap();
    let (mut peers, mut spins) = (Vec::new(), Vec::new());
    for _ in 0..PROCESSES {
        let mut peer = setup.peer("spinner").await;
        let dir = dir.path().display().to_string();
        let spin = Command::Spin { name: "m".to_owned(), spin_for: Duration::from_millis(2500), dir };
        spins.push(peer.send(spin).await);
        peers.push(peer);
    }
    until_waiting(&locks, "m", PROCESSES).await;
    start.release().await.unwrap();
    for spin in spins {
        match spin.answer().await {
            Answer::Spun { turns, violations } => {
                assert!(violations == 0 && turns > 0, "{violations} violations")
            }
            other => panic!("{other:?}"),
        }
    }
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    let turns: Vec<(u32, u64)> = log
        .lines()
        .map(|turn| turn.split_once(' ').unwrap())
        .map(|(pid, token)| (pid.parse().unwrap(), token.parse().unwrap()))
        .collect();
    assert!(turns.is_sorted_by(|(_, one), (_, two)| one < two), "tokens strictly rise");
    assert!(turns.len() >= PROCESSES * 5, "only {} turns", turns.len());
    // A ticket is drawn when a claim stands in line: rising tokens are the exact order, and whoever stands there is passed by
    // nobody. How often a process comes back to stand there is the business of the machine's scheduler, which a test must
    // not measure: the bench does, on a machine that has nothing else to do.
    let served: HashSet<u32> = turns.iter().map(|(pid, _)| *pid).collect();
    assert_eq!(served.len(), PROCESSES, "everybody had turns");
}
