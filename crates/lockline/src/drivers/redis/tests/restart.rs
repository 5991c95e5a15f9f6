//! A server that was restarted, and may have forgotten who holds what.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Server, claim, included, is_in, open, place};
use crate::driver::{Driver, Fencing};
use crate::drivers::redis::{Redis, RedisConfig, RestartGuard};
use crate::drivers::testing::Heard;
use crate::error::ErrorKind;
use crate::line::{Mode, ShutReason, Standing};

const LEASE: Duration = Duration::from_secs(3);
/// A server that has on disk what it answers.
const WRITES_FIRST: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

async fn guarded(config: RedisConfig) -> (Redis, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let config = config.max_lease(LEASE).restart_guard(RestartGuard::For(LEASE));
    (Redis::connect(config, heard.clone()).await.unwrap(), heard)
}

/// Waits until a claim that waits for the guard's end is in.
async fn gets_in(redis: &Redis, waiting: &crate::line::Place) -> Standing {
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < LEASE + Duration::from_secs(3), "the guard does not end");
        match redis.renew(std::slice::from_ref(waiting)).await {
            Ok(standings) if is_in(&standings[0]) => return standings[0],
            Ok(standings) => assert!(matches!(standings[0], Standing::Waiting { .. }), "{standings:?}"),
            Err(e) => assert!(e.kind().is_transient(), "{e:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_server_that_just_started_lets_nobody_in_yet() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let start = Instant::now();
    let (redis, _) = guarded(server.config()).await;
    let (first, trying) = (claim("a", Mode::Exclusive, LEASE), claim("b", Mode::Exclusive, LEASE));
    let Standing::Waiting { ticket, ahead: 0, .. } = redis.join(&first, true).await.unwrap() else {
        panic!()
    };
    assert_eq!(redis.join(&trying, false).await.unwrap(), Standing::Out);
    assert_eq!(gets_in(&redis, &place(&first, Some(ticket))).await, Standing::In { ticket });
    assert!(start.elapsed() > LEASE - Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(is_in(&redis.join(&trying, false).await.unwrap()));
    let too_long = redis.join(&claim("c", Mode::Exclusive, LEASE * 2), true).await.unwrap_err();
    assert_eq!(too_long.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_restart_is_noticed_and_guarded_and_tokens_rise() {
    if !included() {
        return;
    }
    let mut server = Server::start(&[]);
    tokio::time::sleep(LEASE + Duration::from_millis(1100)).await;
    let (redis, heard) = guarded(server.config()).await;
    let (before, after) = (claim("a", Mode::Exclusive, LEASE), claim("a", Mode::Exclusive, LEASE));
    let Standing::In { ticket: old } = redis.join(&before, true).await.unwrap() else { panic!() };
    let looks = heard.looks();
    server.kill();
    server.up();
    let restarted = Instant::now();
    assert_eq!(
        redis
            .renew(&[place(&before, Some(old))])
            .await
            .unwrap_or_default()
            .first()
            .copied()
            .unwrap_or(Standing::Lapsed),
        Standing::Lapsed
    );
    let joined = loop {
        match redis.join(&after, true).await {
            Ok(standing) => break standing,
            Err(e) => assert!(e.kind().is_transient(), "{e:?}"),
        }
    };
    let Standing::Waiting { ticket, .. } = joined else { panic!("{joined:?}") };
    assert!(ticket > old);
    gets_in(&redis, &place(&after, Some(ticket))).await;
    assert!(restarted.elapsed() > LEASE - Duration::from_secs(1));
    assert!(heard.looks() > looks);
}

#[tokio::test]
async fn what_is_written_before_it_is_answered_needs_no_guard() {
    if !included() {
        return;
    }
    let mut server = Server::start(&WRITES_FIRST);
    let (redis, _) = guarded(server.config()).await;
    assert_eq!(redis.guarantees().fencing, Fencing::Always);
    let held = claim("a", Mode::Exclusive, LEASE);
    // What was there before it nobody knows.
    let Standing::Waiting { ticket, .. } = redis.join(&held, true).await.unwrap() else { panic!() };
    gets_in(&redis, &place(&held, Some(ticket))).await;
    server.kill();
    server.up();
    let start = Instant::now();
    let standing = loop {
        match redis.renew(&[place(&held, Some(ticket))]).await {
            Ok(standings) => break standings[0],
            Err(e) => assert!(e.kind().is_transient() && start.elapsed() < LEASE, "{e:?}"),
        }
    };
    assert_eq!(standing, Standing::In { ticket });
    assert!(is_in(&redis.join(&claim("b", Mode::Exclusive, LEASE), false).await.unwrap()));
}

/// Redis' usual setting: it may answer before it writes.
#[tokio::test]
async fn an_append_only_file_that_is_written_later_is_guarded() {
    if !included() {
        return;
    }
    let mut server = Server::start(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    server.kill();
    server.up();
    let (redis, _) = guarded(server.config()).await;
    assert_eq!(redis.guarantees().fencing, Fencing::ClockBounded);
    assert!(!is_in(&redis.join(&claim("a", Mode::Exclusive, LEASE), false).await.unwrap()));
}

/// Its operator has followed our advice: the file is new, and what was held is forgotten.
#[tokio::test]
async fn the_first_life_with_an_append_only_file_is_guarded() {
    if !included() {
        return;
    }
    let mut server = Server::start(&[]);
    let (redis, _) = open(server.config()).await;
    assert!(is_in(&redis.join(&claim("a", Mode::Exclusive, LEASE), false).await.unwrap()));
    drop(redis);
    server.kill();
    server.up_with(&WRITES_FIRST);
    let (redis, _) = guarded(server.config()).await;
    assert!(!is_in(&redis.join(&claim("a", Mode::Exclusive, LEASE), false).await.unwrap()));
}

/// It answers now and then while it reads, and says that it has no such file.
#[tokio::test]
async fn a_server_that_still_reads_its_data_is_waited_for() {
    if !included() {
        return;
    }
    let mut server = Server::start(&WRITES_FIRST);
    let mut much = redis::pipe();
    for n in 0..4096 {
        much.set(n, "").ignore();
    }
    much.exec_async(&mut server.operator().await).await.unwrap();
    server.kill();
    // For each key it reads it waits for so many microseconds.
    server.up_with(&[&WRITES_FIRST[..], &["--key-load-delay", "200"]].concat());
    assert!(server.says("PING").starts_with("-LOADING"), "it has read all already");
    let (redis, _) = open(server.config()).await;
    assert_eq!(redis.guarantees().fencing, Fencing::Always);
}

/// What its clients have written down about a server's life.
async fn record(server: &Server) -> String {
    redis::cmd("GET").arg("lockline:life").query_async(&mut server.operator().await).await.unwrap()
}

/// As if the server had been up for so long that no guard is left.
async fn end_guard(server: &Server, guards: Duration) {
    let mut operator = server.operator().await;
    let info: String = redis::cmd("INFO").query_async(&mut operator).await.unwrap();
    let says = |key: &str| info.lines().find_map(|line| line.strip_prefix(key)).unwrap().to_owned();
    let record = format!("{}/{} 0 - {}", says("run_id:"), says("second_repl_offset:"), guards.as_micros());
    redis::cmd("SET").arg("lockline:life").arg(record).exec_async(&mut operator).await.unwrap();
}

/// One client has leases as long as they are by default, another of two seconds, and the server is started again and has forgotten both.
#[tokio::test]
async fn whoever_has_short_leases_waits_for_the_long_ones_of_others() {
    if !included() {
        return;
    }
    const USUAL: Duration = Duration::from_secs(10);
    let mut server = Server::start(&[]);
    end_guard(&server, USUAL).await;
    let connect = async |longest| {
        Redis::connect(server.config().max_lease(longest), Arc::new(Heard::default())).await.unwrap()
    };
    let long = connect(USUAL).await;
    let held = claim("a", Mode::Exclusive, USUAL);
    assert!(is_in(&long.join(&held, true).await.unwrap()));
    // It cannot be told.
    drop(long);
    server.kill();
    server.up();
    let short = Duration::from_secs(2);
    let config = server.config().max_lease(short);
    let redis = Redis::connect(config, Arc::new(Heard::default())).await.unwrap();
    let waits = claim("a", Mode::Exclusive, short);
    assert!(matches!(redis.join(&waits, true).await.unwrap(), Standing::Waiting { ahead: 0, .. }));
    let start = Instant::now();
    while start.elapsed() < short + Duration::from_secs(2) {
        let standing = redis.renew(&[place(&waits, None)]).await.unwrap()[0];
        assert!(!is_in(&standing), "two holders after {:?}", start.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let ends: u128 = record(&server).await.split(' ').nth(1).unwrap().parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let rest = Duration::from_micros(u64::try_from(ends - now.as_micros()).unwrap());
    assert!(rest > USUAL - Duration::from_secs(3) - start.elapsed(), "the guard ends in {rest:?}");
}

/// While the server has a record of the others, who guards for another time is told so.
#[tokio::test]
async fn clients_that_guard_for_different_times_are_refused() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let connect = async |config: RedisConfig| Redis::connect(config, Arc::new(Heard::default())).await;
    let (first, _) = guarded(server.config()).await;
    let others = [
        server.config(),
        server.config().max_lease(LEASE),
        server.config().max_lease(LEASE).restart_guard(RestartGuard::For(LEASE * 2)),
        server.config().max_lease(Duration::from_secs(300)),
    ];
    for config in &others {
        let refused = connect(config.clone()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused:?}");
        assert!(refused.to_string().contains("3s"), "{refused}");
        assert!(refused.hint_text().unwrap().contains("DEL lockline:life"), "{refused:?}");
    }
    guarded(server.config()).await;
    drop(first);
    // Nobody says the old ones any more.
    let mut operator = server.operator().await;
    redis::cmd("DEL").arg("lockline:life").exec_async(&mut operator).await.unwrap();
    connect(others[0].clone()).await.unwrap();
    connect(others[1].clone()).await.unwrap();
    assert!(connect(others[3].clone()).await.is_err(), "longer leases than others guard for");
    let with_guard = server.config().max_lease(LEASE).restart_guard(RestartGuard::For(LEASE));
    assert!(connect(with_guard).await.is_err(), "it guards for less than others have leases for");
}

/// A server knows clients of an older version, whose default was longer, or which wrote no length down.
#[tokio::test]
async fn whoever_was_upgraded_is_told_what_to_do_with_the_old_default() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let connect = async |config: RedisConfig| Redis::connect(config, Arc::new(Heard::default())).await;
    let minute = Duration::from_secs(60);
    end_guard(&server, minute).await;
    let with_length = record(&server).await;
    let without = with_length.rsplit_once(' ').unwrap().0.to_owned();
    for old in [with_length, without] {
        let mut operator = server.operator().await;
        redis::cmd("SET").arg("lockline:life").arg(&old).exec_async(&mut operator).await.unwrap();
        let refused = connect(server.config()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{old}: {refused:?}");
        let hint = refused.hint_text().unwrap();
        assert!(hint.contains("max_lease=60s") && hint.contains("DEL lockline:life"), "{old}: {refused:?}");
        connect(server.config().max_lease(minute)).await.unwrap();
        redis::cmd("DEL").arg("lockline:life").exec_async(&mut operator).await.unwrap();
        connect(server.config()).await.unwrap();
    }
}

/// Whoever only tries is told that nobody gets in, and for how long; not that somebody holds it.
#[tokio::test]
async fn a_try_on_a_server_that_just_started_is_not_told_busy() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let config = server.config().max_lease(LEASE).restart_guard(RestartGuard::For(LEASE));
    let locks = crate::Locks::builder().lease(LEASE).redis(config).await.unwrap();
    for wait in [Duration::ZERO, Duration::from_millis(200)] {
        let told = locks.mutex("m").try_lock_for(wait).await.unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Unavailable, "{told:?}");
        assert!(told.to_string().contains("redis restarted "), "{told:?}");
        assert!(told.hint_text().is_some() && told.retry_after().unwrap() <= LEASE * 2, "{told:?}");
    }
    let shut = locks.show("m").await.unwrap().shut.expect("nobody gets in");
    assert_eq!((shut.reason, locks.shut_for("m").unwrap().is_some()), (ShutReason::Restarted, true));
    // What it says is when it is over.
    let rest = locks.mutex("m").try_lock().await.unwrap_err().retry_after().unwrap();
    tokio::time::sleep(rest).await;
    let held = locks.mutex("m").try_lock().await.unwrap().expect("it is free");
    assert!(locks.shut().is_none() && locks.mutex("m").try_lock().await.unwrap().is_none(), "it is busy");
    held.release().await.unwrap();
}

/// What the life before it may have forgotten, it does not know either.
#[tokio::test]
async fn a_guard_goes_on_when_its_server_is_started_again() {
    if !included() {
        return;
    }
    let mut server = Server::start(&WRITES_FIRST);
    let ends = async |redis: &Redis| {
        let answer = redis.line().plain("get", &redis::Cmd::get("lockline:life")).await.unwrap();
        let redis::Value::BulkString(life) = answer else { panic!("no life: {answer:?}") };
        String::from_utf8(life).unwrap().split(' ').nth(1).expect("when its guard ends").to_owned()
    };
    let (redis, _) = guarded(server.config()).await;
    let before = ends(&redis).await;
    drop(redis);
    server.kill();
    server.up();
    let (redis, _) = guarded(server.config()).await;
    assert_eq!(ends(&redis).await, before);
    let first = claim("a", Mode::Exclusive, LEASE);
    let Standing::Waiting { ticket, ahead: 0, .. } = redis.join(&first, true).await.unwrap() else {
        panic!("the guard was forgotten")
    };
    gets_in(&redis, &place(&first, Some(ticket))).await;
}

/// A client that connects when a guard has ended is not told of it. The torture found everybody waiting, and nobody in.
#[tokio::test]
async fn whoever_waited_for_a_guard_gets_in_by_a_client_that_knows_none() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (guarded, heard) = guarded(guarded_for_an_hour(&server, Duration::from_secs(3600))).await;
    let (redis, _) = open(server.config()).await;
    let on = |name| claim(name, Mode::Exclusive, LEASE);

    let waits = on("a renewal");
    assert!(matches!(guarded.join(&waits, true).await.unwrap(), Standing::Waiting { ahead: 0, .. }));
    assert!(is_in(&redis.renew(&[place(&waits, None)]).await.unwrap()[0]));
    assert_eq!(heard.next().await.1.id, waits.id);

    for may_wait in [true, false] {
        let (waits, next) = (on("a join"), on("a join"));
        assert!(matches!(guarded.join(&waits, true).await.unwrap(), Standing::Waiting { ahead: 0, .. }));
        assert!(!is_in(&redis.join(&next, may_wait).await.unwrap()));
        assert_eq!(heard.next().await.1.id, waits.id, "a join lets it in");
        for gone in [&next, &waits] {
            redis.leave(&place(gone, None)).await.unwrap();
        }
    }

    // Beside one who is in.
    let (reads, waits) = (claim("a reader", Mode::Shared, LEASE), claim("a reader", Mode::Shared, LEASE));
    assert!(is_in(&redis.join(&reads, true).await.unwrap()));
    assert!(matches!(guarded.join(&waits, true).await.unwrap(), Standing::Waiting { ahead: 1, .. }));
    assert!(is_in(&redis.renew(&[place(&reads, None)]).await.unwrap()[0]));
    assert_eq!(heard.next().await.1.id, waits.id);
}

/// A guard that ends in an hour, on a clock that was set back, if it is shorter than that.
fn guarded_for_an_hour(server: &Server, length: Duration) -> RedisConfig {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let mut config = server.config();
    config.guard = Some((micros(now + Duration::from_secs(3600)), micros(length)));
    config
}

/// The clock of a server was set back by an hour after its guard had ended: one more guard, and then no other, although the
/// clock does not get past the first one's end for an hour.
#[tokio::test]
async fn a_clock_that_was_set_back_brings_the_guard_back_once() {
    const LENGTH: Duration = Duration::from_millis(300);
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, _) = guarded(guarded_for_an_hour(&server, LENGTH)).await;
    let first = claim("a", Mode::Exclusive, LEASE);
    let Standing::Waiting { ticket, .. } = redis.join(&first, true).await.unwrap() else { panic!() };
    gets_in(&redis, &place(&first, Some(ticket))).await;
    redis.leave(&place(&first, Some(ticket))).await.unwrap();
    let start = Instant::now();
    while start.elapsed() < LENGTH * 5 {
        let next = claim("a", Mode::Exclusive, LEASE);
        assert!(is_in(&redis.join(&next, false).await.unwrap()), "guarded again after {:?}", start.elapsed());
        redis.leave(&place(&next, None)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_guard_can_be_switched_off() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let (redis, _) = open(server.config()).await;
    assert!(is_in(&redis.join(&claim("a", Mode::Exclusive, LEASE), false).await.unwrap()));
    assert_eq!(redis.guarantees().fencing, Fencing::ClockBounded);
}
