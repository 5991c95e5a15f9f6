//! Bells between clients, lost connections, forgotten scripts, a server out of memory.

use std::time::{Duration, Instant};

use super::{Server, claim, included, is_in, open, place};
use crate::Locks;
use crate::driver::{Driver, Query};
use crate::error::ErrorKind;
use crate::line::{Mode, News, Standing};

const LEASE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_bell_rings_in_the_one_process_whose_claim_got_in() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (a, heard_a) = open(server.config()).await;
    let (b, heard_b) = open(server.config()).await;
    let (first, second) =
        (claim("ä {b}\n", Mode::Exclusive, LEASE), claim("ä {b}\n", Mode::Exclusive, LEASE));
    assert!(is_in(&a.join(&first, true).await.unwrap()));
    let Standing::Waiting { ticket, ahead: 1, .. } = b.join(&second, true).await.unwrap() else { panic!() };
    a.leave(&place(&first, None)).await.unwrap();
    let (name, bell) = heard_b.next().await;
    assert_eq!((name, bell.id, bell.ticket, bell.news), (second.name.clone(), second.id, ticket, News::In));
    let lines = a.view(&Query::Prefix(String::new())).await.unwrap();
    assert_eq!((lines.len(), lines[0].holders[0].who.owner.as_str()), (1, "te ster"));
    assert!(a.evict(&second.name, ticket, false).await.unwrap());
    assert_eq!(heard_b.next().await.1.news, News::Out);
    assert!(heard_a.take().is_empty());
}

#[tokio::test]
async fn a_lost_connection_is_made_again_and_everybody_looks() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, heard) = open(server.config()).await;
    let (first, second) = (claim("a", Mode::Exclusive, LEASE), claim("a", Mode::Exclusive, LEASE));
    let Standing::In { ticket } = redis.join(&first, true).await.unwrap() else { panic!() };
    redis.join(&second, true).await.unwrap();
    let looks = heard.looks();
    let mut operator = server.operator().await;
    let killed: usize =
        redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub").query_async(&mut operator).await.unwrap();
    assert!(killed >= 1);
    let start = Instant::now();
    while heard.looks() == looks {
        assert!(start.elapsed() < Duration::from_secs(5), "nobody was told to look");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(redis.renew(&[place(&first, Some(ticket))]).await.unwrap(), [Standing::In { ticket }]);
    redis.leave(&place(&first, None)).await.unwrap();
    assert_eq!(heard.next().await.1.id, second.id);
}

#[tokio::test]
async fn forgotten_scripts_are_loaded_again() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, _) = open(server.config()).await;
    let mut operator = server.operator().await;
    redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut operator).await.unwrap();
    let claims: Vec<_> = (0..20).map(|n| claim(&format!("{n}"), Mode::Exclusive, LEASE)).collect();
    let joins: Vec<_> = claims.iter().map(|claim| redis.join(claim, true)).collect();
    for join in joins {
        assert!(is_in(&join.await.unwrap()));
    }
}

#[tokio::test]
async fn a_dropped_join_is_left_by_the_leave_behind_it() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, _) = open(server.config()).await;
    for n in 0..50 {
        let claim = claim(&format!("{n}"), Mode::Exclusive, LEASE);
        let join = redis.join(&claim, true);
        let _ = tokio::time::timeout(Duration::from_micros(n), join).await;
        redis.leave(&place(&claim, None)).await.unwrap();
        assert!(redis.view(&Query::Name(claim.name.clone())).await.unwrap().is_empty(), "{n}");
    }
}

#[tokio::test]
async fn a_full_server_takes_no_claims_but_lets_go() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, heard) = open(server.config()).await;
    let claims: Vec<_> = ["a", "a", "a", "b"].map(|name| claim(name, Mode::Exclusive, LEASE)).into();
    let mut tickets = Vec::new();
    for claim in &claims {
        tickets.push(redis.join(claim, true).await.unwrap().ticket());
    }
    let mut operator = server.operator().await;
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1").exec_async(&mut operator).await.unwrap();
    for name in ["a", "c"] {
        let refused = redis.join(&claim(name, Mode::Exclusive, LEASE), true).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Full, "{refused:?}");
    }
    let places: Vec<_> = claims.iter().zip(&tickets).map(|(claim, ticket)| place(claim, *ticket)).collect();
    let standings = redis.renew(&places).await.unwrap();
    assert_eq!(standings.iter().filter(|standing| is_in(standing)).count(), 2);
    redis.leave(&places[0]).await.unwrap();
    assert_eq!(heard.next().await.1.id, claims[1].id);
    assert!(redis.evict(&claims[1].name, tickets[1].unwrap(), true).await.unwrap());
    assert!(redis.evict(&claims[3].name, tickets[3].unwrap(), false).await.unwrap());
}

#[tokio::test]
async fn nothing_is_left_when_the_leases_have_ended() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let lease = Duration::from_millis(300);
    {
        let (redis, _) = open(server.config()).await;
        for name in ["a", "a", "a", "b"] {
            redis.join(&claim(name, Mode::Exclusive, lease), true).await.unwrap();
        }
    }
    tokio::time::sleep(lease + lease / 5).await;
    let mut operator = server.operator().await;
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut operator).await.unwrap();
    assert!(keys.iter().all(|key| key.ends_with(":c")), "{keys:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_take_turns() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let url = format!("redis://127.0.0.1:{}?restart_guard=off", server.port);
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let locks = Locks::connect(&url).await.unwrap();
        for _ in 0..8 {
            let (locks, inside) = (locks.clone(), inside.clone());
            tasks.push(tokio::spawn(async move {
                let mut last = 0;
                for _ in 0..50 {
                    let guard = locks.mutex("turns").lock().await.unwrap();
                    assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    assert!(guard.fence().token() > last);
                    last = guard.fence().token();
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
}
