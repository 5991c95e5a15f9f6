//! A leave that takes a join of the same client along.

use std::time::Duration;

use super::{Heard, Server, claim, included, is_in, open, place};
use crate::driver::{Driver, Query};
use crate::drivers::redis::Redis;
use crate::line::{Claim, Mode, News, Standing};
use crate::name::Name;

const LEASE: Duration = Duration::from_secs(10);

fn exclusive() -> Claim {
    claim("a", Mode::Exclusive, LEASE)
}

/// Lets so many stand in line, the first of them in, and has seen one of ours let in another.
async fn line_of(redis: &Redis, heard: &Heard, count: usize) -> Vec<Claim> {
    let mut line = Vec::new();
    for _ in 0..=count {
        line.push(exclusive());
        redis.join(&line[line.len() - 1], true).await.unwrap();
    }
    redis.leave(&place(&line.remove(0), None)).await.unwrap();
    assert_eq!(heard.next().await.1.id, line[0].id);
    assert!(redis.line().would_go_along(&line[0].name));
    line
}

/// One comes while another leaves.
async fn swap(redis: &Redis, comes: &Claim, leaves: &Claim) -> Standing {
    let leaves = place(leaves, None);
    let (joined, left) = tokio::join!(redis.join(comes, true), redis.leave(&leaves));
    left.unwrap();
    joined.unwrap()
}

async fn waiters(redis: &Redis, name: &Name) -> (usize, usize) {
    let view = redis.view(&Query::Name(name.clone())).await.unwrap();
    view.first().map_or((0, 0), |line| (line.holders.len(), line.waiters.len()))
}

#[tokio::test]
async fn the_answer_is_the_bell_of_one_of_ours() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, heard) = open(server.config()).await;
    let line = line_of(&redis, &heard, 2).await;
    let comes = exclusive();
    assert!(matches!(swap(&redis, &comes, &line[0]).await, Standing::Waiting { ahead: 1, .. }));
    let rung = heard.take();
    let [(_, bell)] = rung.as_slice() else { panic!("one bell at once, not {rung:?}") };
    assert_eq!((bell.id, bell.news), (line[1].id, News::In));

    // The next two come when nobody else waits.
    let last = exclusive();
    swap(&redis, &last, &line[1]).await;
    redis.leave(&place(&comes, None)).await.unwrap();
    let alone = exclusive();
    assert!(redis.line().would_go_along(&alone.name));
    assert!(is_in(&swap(&redis, &alone, &last).await), "it is in as soon as the other has left");
    assert_eq!(waiters(&redis, &alone.name).await, (1, 0));
}

#[tokio::test]
async fn the_line_lives_as_long_as_whoever_came_last() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, heard) = open(server.config()).await;
    let line = line_of(&redis, &heard, 2).await;
    let comes = claim("a", Mode::Exclusive, 5 * LEASE);
    swap(&redis, &comes, &line[0]).await;
    let key = redis.line().key("a");
    for key in [key.clone(), key.clone() + ":d", key + ":w"] {
        let redis::Value::Int(ms) = redis.line().plain("look", &redis::Cmd::pttl(&key)).await.unwrap() else {
            panic!("no number")
        };
        assert!(ms > 40_000, "{key} lives for {ms} ms");
    }
}

#[tokio::test]
async fn whoever_is_next_elsewhere_is_rung_there() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, heard) = open(server.config()).await;
    let (other, elsewhere) = open(server.config()).await;
    let line = line_of(&redis, &heard, 1).await;
    let theirs = exclusive();
    other.join(&theirs, true).await.unwrap();
    let comes = exclusive();
    assert!(matches!(swap(&redis, &comes, &line[0]).await, Standing::Waiting { ahead: 1, .. }));
    assert_eq!(elsewhere.next().await.1.id, theirs.id);
    assert!(heard.take().is_empty());
    assert!(!redis.line().would_go_along(&comes.name), "none of ours is in");
    other.leave(&place(&theirs, None)).await.unwrap();
    assert_eq!(heard.next().await.1.id, comes.id);
}

#[tokio::test]
async fn a_leave_that_nobody_waits_for_has_everybody_look() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, heard) = open(server.config()).await;
    let line = line_of(&redis, &heard, 2).await;
    let comes = exclusive();
    let gone = place(&line[0], None);
    let looks = heard.looks();
    let give_up = async {
        let mut leave = redis.leave(&gone);
        // Called, perhaps sent, and not answered.
        std::future::poll_fn(|context| {
            assert!(leave.as_mut().poll(context).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
    };
    let (joined, ()) = tokio::join!(redis.join(&comes, true), give_up);
    assert!(matches!(joined.unwrap(), Standing::Waiting { .. }), "it went alone");
    assert!(heard.looks() > looks);
    redis.leave(&gone).await.unwrap();
    let standings = redis.renew(&[place(&line[1], None)]).await.unwrap();
    assert!(is_in(&standings[0]));
    assert_eq!(waiters(&redis, &comes.name).await, (1, 1));
}

#[tokio::test]
async fn a_join_that_was_taken_along_and_given_up_leaves_nothing() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, heard) = open(server.config()).await;
    for _ in 0..50 {
        let line = line_of(&redis, &heard, 2).await;
        let comes = exclusive();
        let (first, second) = (place(&line[0], None), place(&line[1], None));
        let gives_up = async {
            tokio::select! {
                biased;
                _ = redis.join(&comes, true) => panic!("nobody answered"),
                () = tokio::task::yield_now() => {}
            }
            redis.leave(&place(&comes, None)).await
        };
        let (left, gave_up) = tokio::join!(
            async {
                // The join waits by now, and is taken before it is given up.
                tokio::task::yield_now().await;
                redis.leave(&first).await
            },
            gives_up
        );
        left.unwrap();
        gave_up.unwrap();
        assert_eq!(waiters(&redis, &comes.name).await, (1, 0), "only the next one is left");
        redis.leave(&second).await.unwrap();
        heard.take();
    }
}
