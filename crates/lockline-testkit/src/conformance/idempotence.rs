//! Lost replies and late copies: the same id, the same place, never a second count.

use std::time::Duration;

use lockline::line::{News, Standing};

use crate::faults::{Fault, Kind};
use crate::setup::{SHORT, Setup, eventually, granted, line, queue_up, soon, until_empty};

/// §2: "a reply lost after the write took effect is answered by asking again with the same id: the same place".
pub async fn lost_reply_of_join_finds_the_same_place(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    for _ in 0..3 {
        faults.once(Kind::Join, Fault::LoseReply);
    }
    let guard = locks.mutex("m").lock().await.unwrap();
    let joined = faults.joined();
    assert_eq!(joined.len(), 4);
    assert!(joined.iter().all(|claim| claim.id == joined[0].id), "the same id each time");
    let stands = line(&locks, "m").await;
    assert_eq!((stands.holders.len(), stands.waiters.len()), (1, 0), "no second place");
    assert_eq!(stands.holders[0].ticket.get(), guard.fence().token());
    guard.release().await.unwrap();
    assert!(locks.view("").await.unwrap().is_empty());
}

/// The same for a claim that has to wait: it keeps its turn.
pub async fn lost_reply_keeps_the_turn(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    let other = setup.client().await;
    let held = other.mutex("m").lock().await.unwrap();
    faults.once(Kind::Join, Fault::LoseReply);
    let first = queue_up(&locks, "m", 1).await;
    let second = queue_up(&other, "m", 2).await;
    eventually("it asked again", async || faults.count(Kind::Join) == 2).await;
    let stands = line(&other, "m").await;
    assert_eq!(stands.waiters.len(), 2, "one place each");
    held.release().await.unwrap();
    let first = granted(first).await;
    assert_eq!(first.fence().token(), stands.waiters[0].ticket.get());
    assert!(!second.is_finished());
    first.release().await.unwrap();
    granted(second).await.release().await.unwrap();
}

/// §2, §6.3: "never a second count": permits are counted once however often the join was sent.
pub async fn lost_reply_counts_permits_once(setup: &Setup) {
    if setup.refuses_permits().await {
        return;
    }
    let (locks, faults) = setup.faulty().await;
    for _ in 0..3 {
        faults.once(Kind::Join, Fault::LoseReply);
    }
    let two = locks.semaphore("s", 4).acquire_many(2).await.unwrap();
    let rest = setup.client().await.semaphore("s", 4).try_acquire_many(2).await.unwrap();
    assert!(rest.is_some(), "two of four are free");
    drop(two);
}

/// §6.3: a `try_lock` whose reply is lost finds its own place, and is not busy because of itself.
pub async fn lost_reply_of_try_lock_is_not_busy(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    faults.once(Kind::Join, Fault::LoseReply);
    let guard = locks.mutex("m").try_lock().await.unwrap().expect("it is its own place that stands there");
    assert_eq!(line(&locks, "m").await.holders.len(), 1);
    drop(guard);
    until_empty(&locks, "afterwards").await;
}

/// §2: holds of a shared identity are a set, "so a resent request counts once".
pub async fn lost_reply_counts_a_shared_hold_once(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    let other = setup.client().await;
    let one = other.shared_owner("job", "job-7").mutex("m").lock().await.unwrap();
    faults.once(Kind::Join, Fault::LoseReply);
    let two = locks.shared_owner("job", "job-7").mutex("m").lock().await.unwrap();
    assert_eq!(line(&other, "m").await.holders.len(), 2, "two holds, not three");
    one.release().await.unwrap();
    two.release().await.unwrap();
    assert!(other.view("").await.unwrap().is_empty(), "two releases end it");
}

/// §2: "**and the deadline extended as by a renewal**": validity may count from the second sending.
pub async fn repeated_join_extends(setup: &Setup) {
    let lease = Duration::from_secs(12);
    let (locks, faults) = setup.faulty_with(|builder| builder.lease(lease)).await;
    faults.once(Kind::Join, Fault::LoseReply);
    faults.once(Kind::Join, Fault::Delay(Duration::from_millis(1500)));
    let guard = locks.mutex("m").lock().await.unwrap();
    let valid = guard.remaining();
    let place = line(&locks, "m").await.holders[0].remaining;
    assert!(place > lease - Duration::from_millis(1500), "the second one extended it: {place:?}");
    assert!(valid <= lease);
}

/// §6.3: a renewal whose replies are lost now and then keeps the lock, on the same ticket.
pub async fn lost_reply_of_renew_keeps_the_lock(setup: &Setup) {
    let lease = Duration::from_millis(2400);
    let (locks, faults) = setup.faulty_with(|builder| builder.lease(lease)).await;
    let guard = locks.mutex("m").lock().await.unwrap();
    let token = guard.fence();
    for fault in [Fault::LoseReply, Fault::LoseRequest, Fault::LoseReply] {
        faults.once(Kind::Renew, fault);
    }
    tokio::time::sleep(lease * 3 / 2).await;
    assert!(guard.is_valid());
    assert_eq!(line(&locks, "m").await.holders[0].ticket.get(), token.token());
    assert!(faults.count(Kind::Renew) >= 4);
    guard.release().await.unwrap();
}

/// §6.3: a release whose reply is lost is sent again, and done once.
pub async fn lost_reply_of_leave_is_sent_again(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    let guard = locks.mutex("m").lock().await.unwrap();
    faults.once(Kind::Leave, Fault::LoseReply);
    faults.once(Kind::Leave, Fault::LoseRequest);
    guard.release().await.unwrap();
    assert_eq!(faults.count(Kind::Leave), 3);
    assert!(locks.view("").await.unwrap().is_empty());
    let guard = locks.mutex("m").lock().await.unwrap();
    faults.once(Kind::Leave, Fault::LoseRequest);
    drop(guard);
    until_empty(&locks, "after a drop whose leave was lost").await;
}

/// §2 *Fixed lease*: "later copies do not move it; validity counts from its first sending".
pub async fn copies_of_the_final_renewal_do_not_move_it(setup: &Setup) {
    let fixed = Duration::from_secs(6);
    let (locks, faults) = setup.faulty().await;
    faults.once(Kind::Renew, Fault::LoseReply);
    faults.once(Kind::Renew, Fault::Delay(Duration::from_millis(700)));
    let guard = locks.mutex("m").lease(fixed).fixed().lock().await.unwrap();
    assert!(faults.count(Kind::Renew) >= 2);
    let late = Duration::from_millis(700);
    assert!(guard.remaining() <= fixed - late, "counted from the first sending: {:?}", guard.remaining());
    let place = line(&locks, "m").await.holders[0].remaining;
    assert!(place <= fixed - late, "the second copy did not move the deadline: {place:?}");
}

/// §2: a late copy of a join makes a place that nobody wants: left at once when its bell rings.
pub async fn late_copy_behind_a_holder_is_left_on_its_bell(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    let other = setup.client().await;
    locks.mutex("m").lock().await.unwrap().release().await.unwrap();
    let held = other.mutex("m").lock().await.unwrap();
    assert!(matches!(faults.join_again().await, Standing::Waiting { .. }), "the copy stands in line");
    let next = queue_up(&other, "m", 2).await;
    held.release().await.unwrap();
    // On a long lease: only the answer to the bell can let the next one in this soon.
    let next = granted(next).await;
    assert_eq!(faults.bells(News::In), 1);
    next.release().await.unwrap();
    until_empty(&other, "of the late copy").await;
}

/// §2, §6.4: a late copy that gets in at once "stands at most one lease from its arrival".
pub async fn late_copy_that_is_in_lapses_with_its_lease(setup: &Setup) {
    let (locks, faults) = setup.faulty_with(|builder| builder.lease(SHORT)).await;
    let guard = locks.mutex("m").lock().await.unwrap();
    let token = guard.fence();
    guard.release().await.unwrap();
    let copy = faults.join_again().await;
    assert!(copy.ticket().is_some_and(|ticket| ticket.get() > token.token()), "another ticket");
    let next = soon("the copy lapses", setup.client().await.mutex("m").lock()).await.unwrap();
    assert!(next.fence().token() > copy.ticket().unwrap().get());
}

/// §2: a copy that finds the place still there changes nothing but its deadline.
pub async fn late_copy_while_holding_changes_nothing(setup: &Setup) {
    let (locks, faults) = setup.faulty().await;
    let guard = locks.mutex("m").lock().await.unwrap();
    for _ in 0..3 {
        let copy = faults.join_again().await;
        assert_eq!(copy.ticket().map(|ticket| ticket.get()), Some(guard.fence().token()));
    }
    assert_eq!(line(&locks, "m").await.holders.len(), 1);
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    assert!(locks.view("").await.unwrap().is_empty(), "one leave ends it");
}

/// §2: a copy that made a *second* place (the first is gone) tells the holder that its own is gone: it never believes by id.
pub async fn second_place_of_an_id_is_not_believed(setup: &Setup) {
    let (locks, faults) = setup.faulty_with(|builder| builder.lease(Duration::from_secs(3))).await;
    let guard = locks.mutex("m").lock().await.unwrap();
    faults.take_away_all().await;
    let copy = faults.join_again().await.ticket().expect("a second place");
    assert!(copy.get() > guard.fence().token());
    let lost = soon("the next renewal names the larger ticket", guard.lost()).await;
    assert_eq!(lost.reason, lockline::LossReason::Forgotten);
    eventually("and the second place is left", async || line(&locks, "m").await.holders.is_empty()).await;
}
