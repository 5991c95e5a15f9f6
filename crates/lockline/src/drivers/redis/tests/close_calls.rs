//! Single conditions of the scripts, each by itself: planted bugs in these survived the generated histories, which tell the time
//! themselves and so never take the branch by which a server tells how old a loan is.

use std::time::Duration;

use redis::Value;

use super::{Server, claim, included, is_in, open, place};
use crate::driver::{Driver, Query};
use crate::drivers::redis::verbs::hash_of;
use crate::drivers::redis::{Redis, RedisConfig};
use crate::line::{Claim, Mode, Standing, Ticket};

const LEASE: Duration = Duration::from_secs(10);
/// How far what the server says at two moments may be apart.
const NEAR_US: i64 = 300_000;

fn exclusive(name: &str) -> Claim {
    claim(name, Mode::Exclusive, LEASE)
}

async fn ask(redis: &Redis, words: &[&str]) -> Value {
    let mut cmd = redis::cmd(words[0]);
    cmd.arg(&words[1..]);
    redis.line().plain("look", &cmd).await.unwrap()
}

async fn text(redis: &Redis, words: &[&str]) -> String {
    redis::from_redis_value(ask(redis, words).await).unwrap()
}

/// The server's clock, in microseconds.
async fn now_us(redis: &Redis) -> i64 {
    let (seconds, rest): (i64, i64) = redis::from_redis_value(ask(redis, &["TIME"]).await).unwrap();
    seconds * 1_000_000 + rest
}

/// Takes the lock with a loan; the key of the loan, too.
async fn borrow(redis: &Redis, name: &str) -> (Claim, String) {
    redis.line().always_borrow();
    for _ in 0..50 {
        let claim = exclusive(name);
        let is_lent = redis.line().next_lent_ticket(&claim).is_some();
        assert!(is_in(&redis.join(&claim, true).await.unwrap()));
        if is_lent {
            let root = text(redis, &["GET", &(redis.line().key(name) + ":c")]).await;
            let last = root.strip_prefix('~').expect("a line that is lent");
            return (claim, format!("{}:l:{last}", redis.line().key(name)));
        }
        redis.leave(&place(&claim, None)).await.unwrap();
    }
    panic!("the line was not lent");
}

/// When the claim lapses.
async fn deadline_us(redis: &Redis, claim: &Claim) -> i64 {
    let key = redis.line().key(claim.name.as_str()) + ":d";
    let id = format!("{:032x}", claim.id.as_u128());
    text(redis, &["ZSCORE", &key, &id]).await.parse::<f64>().unwrap() as i64
}

/// Another one comes, and the line is taken back: its borrower's lease goes on from when it took the lock.
#[tokio::test]
async fn a_borrower_keeps_the_rest_of_its_lease_and_no_more() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let ((a, _), (b, _)) = (open(server.config()).await, open(server.config()).await);
    let (held, loan) = borrow(&a, "a").await;
    // As if it had been taken a while ago.
    let rest_ms = 6000;
    ask(&b, &["PEXPIRE", &loan, &rest_ms.to_string()]).await;
    let before = now_us(&b).await;
    assert!(!is_in(&b.join(&exclusive("a"), true).await.unwrap()));
    let off = deadline_us(&b, &held).await - (before + rest_ms * 1000);
    assert!(off.abs() < NEAR_US, "its lease ends {off} us from when it should");

    // The clock was set back, so that the key outlives the lease.
    let (held, loan) = borrow(&a, "b").await;
    ask(&b, &["PEXPIRE", &loan, "40000"]).await;
    let before = now_us(&b).await;
    assert!(!is_in(&b.join(&exclusive("b"), true).await.unwrap()));
    let off = deadline_us(&b, &held).await - (before + LEASE.as_micros() as i64);
    assert!(off.abs() < NEAR_US, "it is given more than a lease: {off} us");
}

/// A restart guard that ends in an hour.
fn guarded(server: &Server) -> RedisConfig {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let hour = Duration::from_secs(3600);
    let mut config = server.config();
    config.guard =
        Some((u64::try_from((now + hour).as_micros()).unwrap(), u64::try_from(hour.as_micros()).unwrap()));
    config
}

#[tokio::test]
async fn a_leave_during_a_guard_lets_nobody_in_and_lends_nothing() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let ((free, _), (kept, _)) = (open(server.config()).await, open(guarded(&server)).await);
    let (first, second) = (exclusive("a"), exclusive("a"));
    assert!(is_in(&free.join(&first, true).await.unwrap()));
    assert!(!is_in(&free.join(&second, true).await.unwrap()));
    kept.leave(&place(&first, None)).await.unwrap();
    let line = &kept.view(&Query::Name(first.name.clone())).await.unwrap()[0];
    assert_eq!((line.holders.len(), line.waiters.len()), (0, 1));

    let alone = exclusive("b");
    assert!(is_in(&free.join(&alone, true).await.unwrap()));
    kept.line().lent.wanted(hash_of("b"), alone.id);
    kept.leave(&place(&alone, None)).await.unwrap();
    let root = text(&kept, &["GET", &(kept.line().key("b") + ":c")]).await;
    assert!(root.bytes().all(|byte| byte.is_ascii_digit()), "it is lent: {root}");
}

#[tokio::test]
async fn a_swap_gives_no_ticket_that_the_root_does_not_know() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, _) = open(server.config()).await;
    redis.line().always_borrow();
    let all = [exclusive("a"), exclusive("a"), exclusive("a")];
    for one in &all {
        redis.join(one, true).await.unwrap();
    }
    let (key, comes, leaves) = (redis.line().key("a"), exclusive("a"), place(&all[0], None));
    // What the root knows, and is said to know, lies in the past.
    ask(&redis, &["HSET", &key, "r", "1"]).await;
    ask(&redis, &["SET", &format!("{key}:c"), "+1", "KEEPTTL"]).await;
    redis.line().expect_leave(&comes.name);
    let (joined, left) = tokio::join!(redis.join(&comes, true), redis.leave(&leaves));
    left.unwrap();
    let ticket = joined.unwrap().ticket().unwrap();
    let root = text(&redis, &["GET", &(key + ":c")]).await;
    let known: u64 = root.strip_prefix('+').unwrap().parse().unwrap();
    assert!(known >= ticket.get(), "the root knows {known}, and {ticket} was given");
}

#[tokio::test]
async fn a_renewal_of_another_ticket_extends_nothing() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, _) = open(server.config()).await;
    let held = exclusive("a");
    let Standing::In { ticket } = redis.join(&held, true).await.unwrap() else { panic!() };
    tokio::time::sleep(Duration::from_millis(20)).await;
    redis.renew(&[place(&held, Some(Ticket::new(ticket.get() + 1)))]).await.unwrap();
    let root = text(&redis, &["GET", &(redis.line().key("a") + ":c")]).await;
    let deadline: u64 = match root.strip_prefix('=') {
        Some(renewed) => renewed.split(' ').nth(1).unwrap().parse().unwrap(),
        None => ticket.get() + LEASE.as_micros() as u64,
    };
    assert_eq!(deadline, ticket.get() + LEASE.as_micros() as u64);
}

#[tokio::test]
async fn who_leaves_a_semaphore_takes_its_limit_along_and_no_other() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, _) = open(server.config()).await;
    let permits = |count, limit| claim("a", Mode::Permits { count, limit }, LEASE);
    let (small, large) = (permits(1, 3), permits(1, 4));
    for one in [&small, &large] {
        assert!(is_in(&redis.join(one, false).await.unwrap()));
    }
    redis.leave(&place(&small, None)).await.unwrap();
    assert!(!is_in(&redis.join(&permits(4, 9), false).await.unwrap()), "five of four");
    assert!(is_in(&redis.join(&permits(3, 9), false).await.unwrap()), "four of four");
}
