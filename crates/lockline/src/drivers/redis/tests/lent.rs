//! Lines that are lent: taken and given back by plain commands, until somebody else comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{Server, claim, included, is_in, open, place};
use crate::Locks;
use crate::driver::{Driver, Query};
use crate::drivers::redis::Redis;
use crate::error::ErrorKind;
use crate::line::{Claim, Mode, News, Standing};

const LEASE: Duration = Duration::from_secs(10);

fn exclusive(lease: Duration) -> Claim {
    claim("a", Mode::Exclusive, lease)
}

/// How often the server ran a command.
async fn calls(server: &Server, command: &str) -> usize {
    let stats: String =
        redis::cmd("INFO").arg("commandstats").query_async(&mut server.operator().await).await.unwrap();
    let start = format!("cmdstat_{command}:calls=");
    let found = stats.lines().find_map(|line| line.strip_prefix(start.as_str()));
    found.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// Comes and goes until the line is lent, and takes the lock once more.
async fn borrow(redis: &Redis, lease: Duration) -> Claim {
    for _ in 0..50 {
        let claim = exclusive(lease);
        let is_lent = redis.line().next_lent_ticket(&claim).is_some();
        assert!(is_in(&redis.join(&claim, true).await.unwrap()));
        if is_lent {
            return claim;
        }
        redis.leave(&place(&claim, None)).await.unwrap();
    }
    panic!("the line was not lent");
}

#[tokio::test]
async fn who_comes_again_and_again_needs_no_script() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, _) = open(server.config()).await;
    let held = borrow(&redis, LEASE).await;
    redis.leave(&place(&held, None)).await.unwrap();
    let before = calls(&server, "evalsha").await;
    let mut last = None;
    for _ in 0..900 {
        let claim = exclusive(LEASE);
        let ticket = redis.join(&claim, true).await.unwrap().ticket();
        assert!(ticket > last);
        last = ticket;
        redis.leave(&place(&claim, ticket)).await.unwrap();
    }
    assert_eq!(calls(&server, "evalsha").await, before);
    // Its tickets run out, it asks again, and they go on rising.
    for _ in 0..300 {
        let claim = exclusive(LEASE);
        let ticket = redis.join(&claim, true).await.unwrap().ticket();
        assert!(ticket > last);
        last = ticket;
        redis.leave(&place(&claim, ticket)).await.unwrap();
    }
    assert_eq!(calls(&server, "evalsha").await, before + 2);
}

#[tokio::test]
async fn another_one_waits_for_the_borrower_and_is_let_in_by_it() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (a, _) = open(server.config()).await;
    let (b, heard) = open(server.config()).await;
    let held = borrow(&a, LEASE).await;
    let next = exclusive(LEASE);
    let Standing::Waiting { ticket, ahead: 1, .. } = b.join(&next, true).await.unwrap() else { panic!() };
    a.leave(&place(&held, None)).await.unwrap();
    let (_, bell) = heard.next().await;
    assert_eq!((bell.id, bell.ticket, bell.news), (next.id, ticket, News::In));
    let again = exclusive(LEASE);
    assert!(matches!(a.join(&again, true).await.unwrap(), Standing::Waiting { .. }), "it is lent no longer");
}

#[tokio::test]
async fn a_line_that_was_taken_back_is_not_taken_by_its_borrower() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (a, _) = open(server.config()).await;
    let (b, _) = open(server.config()).await;
    let mut last = None;
    for _ in 0..20 {
        let held = borrow(&a, LEASE).await;
        a.leave(&place(&held, None)).await.unwrap();
        let (mine, others) = (exclusive(LEASE), exclusive(LEASE));
        let ticket = b.join(&others, true).await.unwrap().ticket();
        assert!(ticket > last);
        last = ticket;
        assert_eq!(a.join(&mine, false).await.unwrap(), Standing::Out);
        b.leave(&place(&others, ticket)).await.unwrap();
        let ticket = a.join(&mine, false).await.unwrap().ticket();
        assert!(ticket > last);
        last = ticket;
        a.leave(&place(&mine, ticket)).await.unwrap();
    }
}

#[tokio::test]
async fn a_borrower_is_renewed_evicted_and_seen_like_others() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, heard) = open(server.config()).await;
    let (other, _) = open(server.config()).await;
    let held = borrow(&redis, LEASE).await;
    let lines = other.view(&Query::Name(held.name.clone())).await.unwrap();
    let ticket = lines[0].holders[0].ticket;
    assert_eq!(lines[0].holders[0].who.owner, held.who.owner);
    assert_eq!(redis.renew(&[place(&held, Some(ticket))]).await.unwrap(), [Standing::In { ticket }]);
    assert_eq!(redis.join(&held, true).await.unwrap(), Standing::In { ticket }, "the same place again");
    redis.leave(&place(&held, Some(ticket))).await.unwrap();
    assert!(redis.view(&Query::Name(held.name.clone())).await.unwrap().is_empty());
    let held = borrow(&redis, LEASE).await;
    let ticket = other.view(&Query::Name(held.name.clone())).await.unwrap()[0].holders[0].ticket;
    assert!(other.evict(&held.name, ticket, true).await.unwrap());
    assert_eq!(heard.next().await.1.news, News::Out);
    assert_eq!(redis.renew(&[place(&held, Some(ticket))]).await.unwrap(), [Standing::Lapsed]);
}

#[tokio::test]
async fn a_borrower_that_is_gone_is_waited_for_until_its_lease_ends() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    // So long that the machine may stand still for a moment.
    let lease = Duration::from_millis(1500);
    let (a, _) = open(server.config()).await;
    let (b, _) = open(server.config()).await;
    let held = borrow(&a, lease).await;
    drop(a);
    let mut next = exclusive(LEASE);
    assert_eq!(b.join(&next, false).await.unwrap(), Standing::Out);
    tokio::time::sleep(lease + lease / 10).await;
    assert!(is_in(&b.join(&next, false).await.unwrap()));
    b.leave(&place(&next, None)).await.unwrap();
    assert_eq!(b.renew(&[place(&held, None)]).await.unwrap(), [Standing::Lapsed]);
    // And one whose key has ended by itself.
    let (a, _) = open(server.config()).await;
    borrow(&a, lease).await;
    tokio::time::sleep(lease + lease / 4).await;
    next = exclusive(LEASE);
    assert!(is_in(&a.join(&next, false).await.unwrap()));
}

#[tokio::test]
async fn a_dropped_verb_ends_the_loan_and_leaves_nothing() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, _) = open(server.config()).await;
    for n in 0..60 {
        let held = borrow(&redis, LEASE).await;
        if n % 2 == 0 {
            let leave = place(&held, None);
            let _ = tokio::time::timeout(Duration::from_micros(n), redis.leave(&leave)).await;
        } else {
            redis.leave(&place(&held, None)).await.unwrap();
        }
        let next = exclusive(LEASE);
        let _ = tokio::time::timeout(Duration::from_micros(n), redis.join(&next, true)).await;
        redis.leave(&place(&next, None)).await.unwrap();
        redis.leave(&place(&held, None)).await.unwrap();
        assert!(redis.view(&Query::Name(held.name.clone())).await.unwrap().is_empty(), "{n}");
    }
}

/// Many at once go in one piece, and whoever goes away before is not among them, or is left by what it sends next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_verbs_among_many_leave_nothing() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, _) = open(server.config()).await;
    let (other, _) = open(server.config()).await;
    let (redis, other) = (Arc::new(redis), Arc::new(other));
    let tasks: Vec<_> = (0..24_u64)
        .map(|me| {
            let (redis, other) = (redis.clone(), other.clone());
            tokio::spawn(async move {
                let new = || claim(&format!("d/{me}"), Mode::Exclusive, LEASE);
                for round in 0..30_u64 {
                    for turn in 0..8 {
                        let claim = new();
                        let within = Duration::from_micros((me * 37 + round * 11 + turn * 101) % 900);
                        let _ = tokio::time::timeout(within, redis.join(&claim, true)).await;
                        if turn % 2 == 0 {
                            let _ = tokio::time::timeout(within, redis.leave(&place(&claim, None))).await;
                        }
                        redis.leave(&place(&claim, None)).await.unwrap();
                    }
                    let next = new();
                    assert!(is_in(&other.join(&next, false).await.unwrap()), "{me} {round}");
                    other.leave(&place(&next, None)).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn nothing_is_lent_to_another_connection() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, heard) = open(server.config()).await;
    let held = borrow(&redis, LEASE).await;
    let looks = heard.looks();
    let mut operator = server.operator().await;
    redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub").exec_async(&mut operator).await.unwrap();
    let start = Instant::now();
    while heard.looks() == looks {
        assert!(start.elapsed() < LEASE, "nobody was told to look");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let before = calls(&server, "evalsha").await;
    redis.leave(&place(&held, None)).await.unwrap();
    assert_eq!(calls(&server, "evalsha").await, before + 1, "it went the usual way");
    assert!(redis.view(&Query::Name(held.name.clone())).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_full_server_lets_a_borrower_go() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, _) = open(server.config()).await;
    let held = borrow(&redis, LEASE).await;
    let mut operator = server.operator().await;
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1").exec_async(&mut operator).await.unwrap();
    redis.leave(&place(&held, None)).await.unwrap();
    assert!(redis.view(&Query::Name(held.name.clone())).await.unwrap().is_empty());
    let refused = redis.join(&exclusive(LEASE), true).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused:?}");
}

/// Each mostly takes its own locks, and now and then another's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_borrow_and_none_is_in_anothers_way() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let url = format!("redis://127.0.0.1:{}?restart_guard=off", server.port);
    let inside: Arc<Vec<AtomicUsize>> = Arc::new((0..24).map(|_| AtomicUsize::new(0)).collect());
    let clients = [Locks::connect(&url).await.unwrap(), Locks::connect(&url).await.unwrap()];
    let tasks: Vec<_> = (0..32_usize)
        .map(|me| {
            let (locks, inside) = (clients[me % 2].clone(), inside.clone());
            tokio::spawn(async move {
                let mut last = vec![0; inside.len()];
                for turn in 0..200 {
                    let nth = if turn % 10 == 9 { (me + turn) % inside.len() } else { me % inside.len() };
                    let guard = locks.mutex(format!("many/{nth}")).lock().await.unwrap();
                    assert_eq!(inside[nth].fetch_add(1, Ordering::SeqCst), 0);
                    assert!(guard.fence().token() > last[nth]);
                    last[nth] = guard.fence().token();
                    inside[nth].fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(clients[0].view("").await.unwrap().is_empty());
    let scripts = calls(&server, "evalsha").await;
    assert!(scripts < 32 * 200 * 2, "{scripts} scripts: none was lent");
}
