//! What a layout writes and obeys, on a real server, beside the conformance suite.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use super::Layout;
use crate::driver::{Driver, Exclusion, Fencing, Query};
use crate::drivers::redis::tests::{Server, claim, included, is_in, open, place};
use crate::error::ErrorKind;
use crate::fence::{Fence, Gate};
use crate::line::{Claim, Mode, Standing, Ticket};
use crate::{Locks, LossReason};

const LEASE: Duration = Duration::from_secs(10);
const ALL: [Layout; 3] = [Layout::Plain, Layout::Redisson, Layout::RedissonFenced];

async fn ask<T: redis::FromRedisValue>(operator: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut cmd = redis::cmd(words[0]);
    for word in &words[1..] {
        cmd.arg(*word);
    }
    cmd.query_async(operator).await.unwrap()
}

#[tokio::test]
async fn a_plain_lock_is_a_string_under_its_name() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, _) = open(server.config().layout(Layout::Plain)).await;
    let mut operator = server.operator().await;
    let (mine, next) = (claim("jobs/7", Mode::Exclusive, LEASE), claim("jobs/7", Mode::Exclusive, LEASE));
    let Standing::In { ticket } = redis.join(&mine, true).await.unwrap() else { panic!() };
    let value: String = ask(&mut operator, &["GET", "jobs/7"]).await;
    assert!(
        value.starts_with(&format!("{:032x} ", mine.id.as_u128())) && value.ends_with("te ster"),
        "{value}"
    );
    let rest: i64 = ask(&mut operator, &["PTTL", "jobs/7"]).await;
    assert!((9_000..=10_000).contains(&rest), "{rest}");
    // An answer that got lost is settled by asking: the same place, and no other.
    assert_eq!(redis.join(&mine, true).await.unwrap(), Standing::In { ticket });
    assert!(matches!(
        redis.join(&next, true).await.unwrap(),
        Standing::Waiting { ticket: Ticket::ZERO, ahead: 1, .. }
    ));
    redis.leave(&place(&next, None)).await.unwrap();
    let kept: String = ask(&mut operator, &["GET", "jobs/7"]).await;
    assert_eq!(kept, value, "only the owner lets go");
    redis.leave(&place(&mine, Some(ticket))).await.unwrap();
    assert_eq!(ask::<Vec<String>>(&mut operator, &["KEYS", "*"]).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_redisson_lock_is_a_hash_with_one_field() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, _) = open(server.config().layout(Layout::Redisson).space("shop:")).await;
    let mut operator = server.operator().await;
    let mine = claim("a", Mode::Exclusive, LEASE);
    for _ in 0..3 {
        assert!(is_in(&redis.join(&mine, true).await.unwrap()));
        let hash: Vec<String> = ask(&mut operator, &["HGETALL", "shop:a"]).await;
        assert_eq!((hash.len(), hash[1].as_str()), (2, "1"), "a request that is sent twice counts once");
        assert!(hash[0].ends_with(&format!(":{}", std::process::id())), "{}", hash[0]);
    }
    assert_eq!(
        ask::<Vec<String>>(&mut operator, &["KEYS", "*"]).await,
        ["shop:a"],
        "no counter without a fence"
    );
}

#[tokio::test]
async fn a_release_wakes_the_first_who_waits_here() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, heard) = open(server.config().layout(Layout::Redisson)).await;
    let mut operator = server.operator().await;
    ask::<i64>(&mut operator, &["HSET", "a", "5dc5a3a8-5b1c-4f7e-9d57-0e5d0b9c9a11:83", "2"]).await;
    ask::<i64>(&mut operator, &["PEXPIRE", "a", "30000"]).await;
    let waits = claim("a", Mode::Exclusive, LEASE);
    assert!(matches!(redis.join(&waits, true).await.unwrap(), Standing::Waiting { .. }));
    assert_eq!(ask::<i64>(&mut operator, &["PUBLISH", "redisson_lock__channel:{a}", "0"]).await, 1);
    let start = Instant::now();
    while heard.looks() == 0 {
        assert!(start.elapsed() < Duration::from_secs(5), "nobody was told to look");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(matches!(redis.renew(&[place(&waits, None)]).await.unwrap()[..], [Standing::Waiting { .. }]));
    ask::<i64>(&mut operator, &["DEL", "a"]).await;
    let stands = redis.renew(&[place(&waits, None)]).await.unwrap();
    assert!(is_in(&stands[0]));
    redis.leave(&place(&waits, stands[0].ticket())).await.unwrap();
    assert_eq!(
        ask::<i64>(&mut operator, &["PUBLISH", "redisson_lock__channel:{a}", "0"]).await,
        0,
        "nobody waits, nobody listens"
    );
}

#[tokio::test]
async fn a_waiter_that_nobody_renews_gets_nothing() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    for layout in ALL {
        let (redis, _) = open(server.config().layout(layout)).await;
        let (holder, short) =
            (claim("m", Mode::Exclusive, LEASE), claim("m", Mode::Exclusive, Duration::from_millis(100)));
        let stands = redis.join(&holder, true).await.unwrap();
        redis.join(&short, true).await.unwrap();
        tokio::time::sleep(Duration::from_millis(120)).await;
        redis.leave(&place(&holder, stands.ticket())).await.unwrap();
        assert_eq!(redis.renew(&[place(&short, None)]).await.unwrap(), [Standing::Lapsed], "{layout:?}");
        assert!(redis.view(&Query::Prefix(String::new())).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn what_a_format_cannot_hold_is_refused_before_sending() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let mut operator = server.operator().await;
    for layout in ALL {
        let (redis, _) = open(server.config().layout(layout)).await;
        let shared = Claim { identity: Some("job".into()), ..claim("m", Mode::Exclusive, LEASE) };
        let permits = claim("m", Mode::Permits { count: 1, limit: 2 }, LEASE);
        for refused in [shared, permits, claim("m", Mode::Shared, LEASE)] {
            let error = redis.join(&refused, true).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
        }
    }
    assert_eq!(ask::<Vec<String>>(&mut operator, &["KEYS", "*"]).await, Vec::<String>::new());
}

#[tokio::test]
async fn other_things_in_the_way_are_named() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let mut operator = server.operator().await;
    ask::<i64>(&mut operator, &["RPUSH", "list", "x"]).await;
    ask::<i64>(&mut operator, &["RPUSH", "redisson_lock_queue:{fair}", "somebody"]).await;
    for (layout, name) in [(Layout::Plain, "list"), (Layout::Redisson, "list"), (Layout::Redisson, "fair")] {
        let (redis, _) = open(server.config().layout(layout)).await;
        for wait in [false, true] {
            let error = redis.join(&claim(name, Mode::Exclusive, LEASE), wait).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsafe, "{error:?}");
        }
        assert!(redis.view(&Query::Prefix(String::new())).await.unwrap().is_empty(), "nothing waits");
    }
}

#[tokio::test]
async fn evicting_closes_and_evicting_at_once_frees() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    for layout in ALL {
        let (redis, _) = open(server.config().layout(layout)).await;
        let (holder, next) = (claim("m", Mode::Exclusive, LEASE), claim("m", Mode::Exclusive, LEASE));
        let Standing::In { ticket } = redis.join(&holder, true).await.unwrap() else { panic!() };
        let seen = redis.view(&Query::Name(holder.name.clone())).await.unwrap().remove(0).holders.remove(0);
        assert_eq!((seen.ticket, seen.evicted, seen.who.pid), (ticket, false, std::process::id()));
        assert!(!redis.evict(&holder.name, Ticket::new(ticket.get() + 1), true).await.unwrap());
        assert!(redis.evict(&holder.name, ticket, false).await.unwrap());
        assert_eq!(
            redis.renew(&[place(&holder, Some(ticket))]).await.unwrap(),
            [Standing::Out],
            "{layout:?}"
        );
        redis.leave(&place(&holder, Some(ticket))).await.unwrap();
        assert_eq!(redis.join(&next, false).await.unwrap(), Standing::Out, "nobody overlaps with it");
        let seen = redis.view(&Query::Name(holder.name.clone())).await.unwrap().remove(0).holders.remove(0);
        assert_eq!((seen.ticket, seen.evicted), (ticket, true));
        assert!(redis.evict(&holder.name, ticket, true).await.unwrap());
        let stands = redis.join(&next, false).await.unwrap();
        assert!(is_in(&stands));
        redis.leave(&place(&next, stands.ticket())).await.unwrap();
    }
}

#[tokio::test]
async fn a_guard_has_no_token_that_its_format_does_not_give() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let url = |layout: &str| format!("redis://127.0.0.1:{}?layout={layout}", server.port);
    let gate = Gate::default();
    for layout in ["plain", "redisson"] {
        let locks = Locks::connect(&url(layout)).await.unwrap();
        let guard = locks.mutex(layout).lock().await.unwrap();
        assert_eq!((guard.fence(), guard.guarantees().fencing), (Fence::NONE, Fencing::None));
        assert_eq!(guard.guarantees().exclusion, Exclusion::Probable);
        assert!(gate.pass(guard.fence()).is_err(), "what cannot be told from a stale one is refused");
        let demanded =
            crate::driver::Guarantees { fencing: Fencing::Counted, exclusion: Exclusion::Probable };
        let refused = Locks::builder().require(demanded).connect(&url(layout)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
    }
    let locks = Locks::connect(&url("redisson-fenced")).await.unwrap();
    for expected in 1..4 {
        let guard = locks.mutex("f").lock().await.unwrap();
        assert_eq!(guard.fence().token(), expected);
        assert!(gate.pass(guard.fence()).is_ok());
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn scripts_that_were_forgotten_are_sent_again() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let mut operator = server.operator().await;
    for layout in ALL {
        let (redis, _) = open(server.config().layout(layout)).await;
        let mine = claim("m", Mode::Exclusive, LEASE);
        ask::<()>(&mut operator, &["SCRIPT", "FLUSH"]).await;
        let stands = redis.join(&mine, true).await.unwrap();
        assert_eq!(redis.renew(&[place(&mine, stands.ticket())]).await.unwrap(), [stands]);
        redis.leave(&place(&mine, stands.ticket())).await.unwrap();
    }
}

/// The line in the documents, as it stands there.
fn access_list() -> Vec<String> {
    let page = include_str!("../../../../../../docs/engines/redis-layouts.md");
    let line = &page[page.find("ACL SETUSER").unwrap()..];
    line[..line.find("```").unwrap()].replace('\\', " ").split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_shortest_access_list_is_enough() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let mut operator = server.operator().await;
    redis::cmd("ACL").arg(&access_list()[1..]).exec_async(&mut operator).await.unwrap();
    for layout in ALL {
        let config = server.config().layout(layout).space("lock:").login("locks", "secret");
        let (redis, _) = open(config).await;
        let (mine, next) = (claim("m", Mode::Exclusive, LEASE), claim("m", Mode::Exclusive, LEASE));
        ask::<()>(&mut operator, &["SCRIPT", "FLUSH"]).await;
        let stands = redis.join(&mine, true).await.unwrap();
        assert!(matches!(redis.join(&next, true).await.unwrap(), Standing::Waiting { .. }));
        assert_eq!(redis.renew(&[place(&mine, stands.ticket())]).await.unwrap(), [stands]);
        assert!(redis.evict(&mine.name, stands.ticket().unwrap(), false).await.unwrap());
        assert!(redis.evict(&mine.name, stands.ticket().unwrap(), true).await.unwrap());
        let stands = redis.renew(&[place(&next, None)]).await.unwrap();
        assert_eq!(redis.view(&Query::Prefix(String::new())).await.unwrap()[0].holders.len(), 1);
        redis.leave(&place(&next, stands[0].ticket())).await.unwrap();
    }
}

/// A waiter is dropped at any moment: nobody else may have to wait for it, and nothing of it may be left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_is_dropped_leaves_nothing() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    for layout in ["plain", "redisson"] {
        let url = format!("redis://127.0.0.1:{}?layout={layout}&lease=30s", server.port);
        let (ann, bob) = (Locks::connect(&url).await.unwrap(), Locks::connect(&url).await.unwrap());
        for round in 0..60 {
            let held = ann.mutex("m").lock().await.unwrap();
            let (patience, waiter) = (Duration::from_micros(round * 100), bob.mutex("m"));
            let (waiting, released) = tokio::join!(tokio::time::timeout(patience, waiter.lock()), async {
                tokio::time::sleep(Duration::from_millis(2)).await;
                held.release().await
            });
            released.unwrap();
            drop(waiting);
            let start = Instant::now();
            ann.mutex("m").lock().await.unwrap().release().await.unwrap();
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "{layout}: round {round} left something behind"
            );
        }
    }
}

/// Many tasks of two clients, and one lock: never two inside, and everybody gets through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_take_turns() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    for layout in ["plain", "redisson", "redisson-fenced"] {
        let url = format!("redis://127.0.0.1:{}?layout={layout}", server.port);
        let inside = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let mut tasks = Vec::new();
        for _ in 0..2 {
            let locks = Locks::connect(&url).await.unwrap();
            for _ in 0..4 {
                let (locks, inside) = (locks.clone(), inside.clone());
                tasks.push(tokio::spawn(async move {
                    for _ in 0..10 {
                        let guard = locks.mutex("turns").lock().await.unwrap();
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        guard.release().await.unwrap();
                    }
                }));
            }
        }
        for task in tasks {
            tokio::time::timeout(Duration::from_secs(30), task).await.expect(layout).unwrap();
        }
    }
}

#[tokio::test]
async fn somebody_who_breaks_the_lock_is_noticed_by_the_next_renewal() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let mut operator = server.operator().await;
    for layout in ["plain", "redisson"] {
        let url = format!("redis://127.0.0.1:{}?layout={layout}&lease=600ms", server.port);
        let locks = Locks::connect(&url).await.unwrap();
        let guard = locks.mutex("m").lock().await.unwrap();
        ask::<i64>(&mut operator, &["DEL", "m"]).await;
        assert_eq!(guard.lost().await.reason, LossReason::Forgotten);
    }
}
