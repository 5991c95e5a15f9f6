//! What is written into tables that others lock in, and what is obeyed there, beside the conformance suite.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::server::Server;
use super::{Database, Mysql, MysqlConfig, claim, included, is_in, open, place};
use crate::driver::{Driver, Exclusion, Fencing, Query};
use crate::drivers::mysql::Layout;
use crate::drivers::mysql::durability::Durability;
use crate::drivers::mysql::lane::{Lane, texts_of};
use crate::drivers::testing::Heard;
use crate::error::ErrorKind;
use crate::line::{Claim, Mode, Standing, Ticket};
use crate::{Locks, LossReason};

const LEASE: Duration = Duration::from_secs(10);

/// The table that this began with, word for word.
const FOUNDING: &str = "CREATE TABLE tbl_distribute_lock (
    id int not null auto_increment primary key,
    rkey varchar(20) not null,
    expiredAt datetime not null,
    owner varchar(20) not null,
    reentrant varchar(1024) not null default 0,
    unique key x (rkey)
) engine=innodb default charset=utf8mb4";

/// Its third version, word for word: whoever has expired, or is the same, gets the row.
fn founding_lock(key: &str, owner: &str, seconds: u32) -> String {
    format!(
        "insert into tbl_distribute_lock (rkey, owner, expiredAt) values ('{key}', '{owner}', NOW() + INTERVAL {seconds} SECOND)
         on duplicate key update
         `expiredAt` = IF(`expiredAt` < NOW() OR VALUES(`owner`) = `owner`, NOW() + INTERVAL {seconds} SECOND, expiredAt),
         `owner` = IF(`expiredAt` < NOW() OR VALUES(`owner`) = `owner`, VALUES(`owner`), `owner`)"
    )
}

fn founding_unlock(key: &str, owner: &str) -> String {
    format!("delete from tbl_distribute_lock where rkey='{key}' and owner = '{owner}'")
}

/// A session of somebody else.
struct Theirs(Lane);

impl Theirs {
    fn on(config: &MysqlConfig) -> Theirs {
        // With a layout it makes nothing, and has the server's time zone, as theirs have.
        let config = config.clone().layout(Layout::table());
        let (address, heard) = (config.address().into(), Arc::new(Heard::default()));
        Theirs(Lane::new(config, address, Arc::new(Durability::default()), heard, None))
    }

    async fn run(&self, statement: &str) {
        self.0.change("theirs", statement.to_owned(), Vec::new()).await.unwrap();
    }

    /// The first column of the first row, if there is one.
    async fn one(&self, statement: &str) -> Option<String> {
        let rows = self.0.ask("theirs", statement.to_owned(), Vec::new()).await.unwrap();
        texts_of(&rows).unwrap().into_iter().next()
    }

    /// A lock as the founding document's fifth version holds it: a row, and a transaction that sits on it.
    async fn hold_as_v5(&self, key: &str, seconds: u32) -> String {
        self.run(&founding_lock(key, "v5", seconds)).await;
        self.run("SET autocommit = 0").await;
        let mine =
            format!("select rkey from tbl_distribute_lock where rkey = '{key}' and owner = 'v5' for update");
        assert_eq!(self.one(&mine).await.as_deref(), Some(key));
        self.one("SELECT CONCAT(CONNECTION_ID())").await.unwrap()
    }
}

fn mutex(name: &str) -> Claim {
    claim(name, Mode::Exclusive, LEASE)
}

async fn founding() -> Option<(Database, Mysql, Theirs)> {
    let mut database = included().await?;
    database.run(FOUNDING).await;
    let theirs = Theirs::on(&database.config);
    database.config = database.config.layout(Layout::table());
    let (ours, _) = open(database.config.clone()).await;
    Some((database, ours, theirs))
}

async fn shedlock() -> Option<(Database, Mysql, Theirs)> {
    let mut database = included().await?;
    database.run(super::super::shared_table_sql(&Layout::shedlock())).await;
    let theirs = Theirs::on(&database.config);
    database.config = database.config.layout(Layout::shedlock());
    let (ours, _) = open(database.config.clone()).await;
    Some((database, ours, theirs))
}

#[tokio::test]
async fn a_lock_is_a_row_of_the_founding_table() {
    let Some((database, ours, theirs)) = founding().await else { return };
    let (mine, next) = (mutex("jobs/7"), mutex("jobs/7"));
    let Standing::In { ticket } = ours.join(&mine, true).await.unwrap() else { panic!() };
    let row = "SELECT CONCAT_WS('|', owner, reentrant) FROM tbl_distribute_lock WHERE rkey = 'jobs/7'";
    let written = theirs.one(row).await.unwrap();
    assert!(written.starts_with("ll") && written.find('|') == Some(20), "{written}");
    assert!(
        written.ends_with("te ster") && written.contains(&format!("{:032x}", mine.id.as_u128())),
        "{written}"
    );
    // The column has whole seconds: a lease must not end early because the server rounds.
    let rest = "SELECT CONCAT(TIMESTAMPDIFF(MICROSECOND, NOW(6), expiredAt)) FROM tbl_distribute_lock";
    let rest: i64 = theirs.one(rest).await.unwrap().parse().unwrap();
    assert!((10_000_000..=11_500_000).contains(&rest), "{rest}");
    // An answer that got lost is settled by asking: the same place, and no other.
    assert_eq!(ours.join(&mine, true).await.unwrap(), Standing::In { ticket });
    assert!(matches!(ours.join(&next, true).await.unwrap(), Standing::Waiting { ticket: Ticket::ZERO, .. }));
    ours.leave(&place(&next, None)).await.unwrap();
    assert!(theirs.one(row).await.is_some(), "only the owner lets go");
    ours.leave(&place(&mine, Some(ticket))).await.unwrap();
    assert_eq!(theirs.one(row).await, None, "a released lock has no row");
    let error = ours.join(&mutex("a name of 21 letters."), true).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    assert_eq!(ours.guarantees().fencing, Fencing::None);
    database.done().await;
}

#[tokio::test]
async fn a_fleet_that_locks_by_the_founding_statements_shares_the_lock() {
    let Some((database, ours, theirs)) = founding().await else { return };
    let holds = async |owner: &str| {
        let owned = "SELECT owner FROM tbl_distribute_lock WHERE rkey = 'a'";
        theirs.one(owned).await.as_deref() == Some(owner)
    };
    theirs.run(&founding_lock("a", "host-1", 30)).await;
    assert!(holds("host-1").await);
    assert_eq!(ours.join(&mutex("a"), false).await.unwrap(), Standing::Out);
    let waits = mutex("a");
    assert!(matches!(ours.join(&waits, true).await.unwrap(), Standing::Waiting { .. }));
    let seen = ours.view(&Query::Name(waits.name.clone())).await.unwrap().remove(0);
    assert_eq!((seen.holders[0].who.owner.as_str(), seen.waiters.len()), ("host-1", 1));
    theirs.run(&founding_unlock("a", "host-1")).await;
    let stands = ours.renew(&[place(&waits, None)]).await.unwrap();
    assert!(is_in(&stands[0]));
    theirs.run(&founding_lock("a", "host-1", 30)).await;
    theirs.run(&founding_unlock("a", "host-1")).await;
    assert!(!holds("host-1").await, "ours is not taken, and not deleted");
    assert_eq!(ours.renew(&[place(&waits, stands[0].ticket())]).await.unwrap(), stands);
    ours.leave(&place(&waits, stands[0].ticket())).await.unwrap();
    // Expired: by their rule, when the second has passed that the row says.
    theirs.run(&founding_lock("a", "host-2", 1)).await;
    let (start, next) = (Instant::now(), mutex("a"));
    while !is_in(&ours.join(&next, false).await.unwrap()) {
        assert!(start.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(start.elapsed() >= Duration::from_millis(950), "{:?}", start.elapsed());
    database.done().await;
}

/// What the second and third version get wrong: an assignment sees those before it, so that the owner is compared with the *new* expiry.
/// A lock whose holder died is extended for the dead one by everybody who asks.
#[tokio::test]
async fn the_founding_order_of_assignments_extends_an_expired_lock_for_its_old_owner() {
    let Some((database, ours, theirs)) = founding().await else { return };
    let expired = "UPDATE tbl_distribute_lock SET expiredAt = '2001-01-01'";
    let row = "SELECT CONCAT_WS('|', owner, expiredAt > NOW()) FROM tbl_distribute_lock";
    theirs.run(&founding_lock("a", "dead", 30)).await;
    theirs.run(expired).await;
    theirs.run(&founding_lock("a", "host-1", 30)).await;
    assert_eq!(theirs.one(row).await.unwrap(), "dead|1");
    theirs.run(expired).await;
    assert!(is_in(&ours.join(&mutex("a"), false).await.unwrap()), "ours assigns the owner first");
    database.done().await;
}

/// What the fifth version promises: whoever holds the lock holds a transaction, and nobody gets in while it is open. But a session that
/// dies is not a holder that stopped: with the transaction everything is gone that kept others out, and they do not wait for a lease.
#[tokio::test]
async fn a_session_that_dies_is_not_a_holder_that_stopped() {
    let Some((database, ours, theirs)) = founding().await else { return };
    let session = theirs.hold_as_v5("a", 1).await;
    tokio::time::sleep(Duration::from_millis(2100)).await;
    // Its second has passed, and it works on: only its transaction keeps others out, ours included. They do not wait for it.
    let start = Instant::now();
    let waits = mutex("a");
    assert!(matches!(ours.join(&waits, true).await.unwrap(), Standing::Waiting { .. }));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    // A network that drops idle connections, a proxy that restarts, `wait_timeout`: the holder is told nothing.
    database.run(&format!("KILL CONNECTION {session}")).await;
    let start = Instant::now();
    let mut stands = ours.renew(&[place(&waits, None)]).await.unwrap();
    while !is_in(&stands[0]) {
        assert!(start.elapsed() < Duration::from_secs(5));
        stands = ours.renew(&[place(&waits, None)]).await.unwrap();
    }
    // Two are inside now. So ours is not held by a session: all of its sessions die, and nobody gets in.
    let theirs = Theirs::on(&database.config);
    for id in database.sessions().await {
        // One that has just ended is not there any more.
        let _ = theirs.0.change("theirs", format!("KILL CONNECTION {id}"), Vec::new()).await;
    }
    theirs.run(&founding_lock("a", "host-1", 30)).await;
    let owner = theirs.one("SELECT owner FROM tbl_distribute_lock").await.unwrap();
    assert!(owner.starts_with("ll"), "{owner}");
    let again = async {
        loop {
            match ours.renew(&[place(&waits, stands[0].ticket())]).await {
                Ok(stands) => return stands,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(5), again).await.unwrap(), stands);
    database.done().await;
}

#[tokio::test]
async fn a_shedlock_row_stays_and_says_who_and_since_when() {
    let Some((database, ours, theirs)) = shedlock().await else { return };
    let mine = mutex("job");
    let stands = ours.join(&mine, true).await.unwrap();
    let row = "SELECT CONCAT_WS('|', lock_until > UTC_TIMESTAMP(3), locked_at <= UTC_TIMESTAMP(3), locked_by) FROM shedlock";
    let written = theirs.one(row).await.unwrap();
    assert!(written.starts_with(&format!("1|1|{:032x} ", mine.id.as_u128())), "{written}");
    assert!(written.ends_with("te ster"), "{written}");
    // As ShedLock takes it: it is not free.
    let update = "UPDATE shedlock SET lock_until = TIMESTAMPADD(MICROSECOND, 30000000, UTC_TIMESTAMP(3)), \
        locked_at = UTC_TIMESTAMP(3), locked_by = 'host-1' WHERE name = 'job' AND lock_until <= UTC_TIMESTAMP(3)";
    theirs.run(update).await;
    assert_eq!(ours.renew(&[place(&mine, stands.ticket())]).await.unwrap(), [stands]);
    ours.leave(&place(&mine, stands.ticket())).await.unwrap();
    assert!(theirs.one(row).await.unwrap().starts_with("0|1|"), "the row stays");
    theirs.run(update).await;
    assert_eq!(theirs.one(row).await.unwrap(), "1|1|host-1");
    let seen = ours.view(&Query::Prefix(String::new())).await.unwrap().remove(0).holders.remove(0);
    assert_eq!((seen.who.owner.as_str(), seen.since < LEASE), ("host-1", true));
    assert_eq!(ours.join(&mine, false).await.unwrap(), Standing::Out);
    database.done().await;
}

/// A client without `usingDbTime()` asks for nobody's name when it unlocks: late, it frees whoever holds the lock. We notice.
#[tokio::test]
async fn an_unlock_without_a_name_is_noticed_by_the_next_renewal() {
    let Some((database, _, theirs)) = shedlock().await else { return };
    let locks =
        Locks::builder().lease(Duration::from_millis(900)).mysql(database.config.clone()).await.unwrap();
    let guard = locks.mutex("job").lock().await.unwrap();
    theirs.run("UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = 'job'").await;
    assert_eq!(guard.lost().await.reason, LossReason::Forgotten);
    drop(locks);
    database.done().await;
}

/// Others lock the row for a moment whenever they ask for it. A release that meets that moment, and a renewal, must not be called done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_to_those_who_ask_all_the_time() {
    let Some((database, ours, theirs)) = shedlock().await else { return };
    let asks = "UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3), locked_by = 'host-1' WHERE name = 'm' AND lock_until <= '2001-01-01'";
    let askers: Vec<_> = (0..3)
        .map(|_| {
            let theirs = Theirs::on(&database.config);
            tokio::spawn(async move {
                loop {
                    theirs.run(asks).await;
                }
            })
        })
        .collect();
    let rest = "SELECT CONCAT(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lock_until)) FROM shedlock";
    for turn in 0..150 {
        let mine = Claim { lease: Duration::from_secs(30), ..mutex("m") };
        let stands = ours.join(&mine, false).await.unwrap();
        // Its own requests meet those of others, too.
        if !is_in(&stands) {
            ours.leave(&place(&mine, None)).await.unwrap();
            continue;
        }
        let longer = crate::line::Place { lease: Duration::from_secs(60), ..place(&mine, stands.ticket()) };
        if ours.renew(&[longer]).await.is_ok_and(|renewed| is_in(&renewed[0])) {
            let rest: i64 = theirs.one(rest).await.unwrap().parse().unwrap();
            assert!(rest > 50_000_000, "turn {turn}: a renewal was lost, {rest}");
        }
        ours.leave(&place(&mine, stands.ticket())).await.unwrap();
        let rest: i64 = theirs.one(rest).await.unwrap().parse().unwrap();
        assert!(rest <= 0, "turn {turn}: a release was lost, {rest}");
    }
    for asker in askers {
        asker.abort();
    }
    database.done().await;
}

#[tokio::test]
async fn evicting_closes_and_evicting_at_once_frees() {
    for layout in ["table", "shedlock"] {
        let made = if layout == "table" { founding().await } else { shedlock().await };
        let Some((database, ours, _)) = made else { return };
        let (holder, next) = (mutex("m"), mutex("m"));
        let Standing::In { ticket } = ours.join(&holder, true).await.unwrap() else { panic!() };
        let view =
            async || ours.view(&Query::Name(holder.name.clone())).await.unwrap().remove(0).holders.remove(0);
        let seen = view().await;
        assert_eq!((seen.ticket, seen.evicted, seen.who.pid), (ticket, false, std::process::id()));
        assert!(!ours.evict(&holder.name, Ticket::new(ticket.get() + 1), true).await.unwrap());
        assert!(ours.evict(&holder.name, ticket, false).await.unwrap(), "{layout}");
        assert_eq!(ours.renew(&[place(&holder, Some(ticket))]).await.unwrap(), [Standing::Out], "{layout}");
        ours.leave(&place(&holder, Some(ticket))).await.unwrap();
        assert_eq!(ours.join(&next, false).await.unwrap(), Standing::Out, "nobody overlaps with it");
        let seen = view().await;
        assert_eq!((seen.ticket, seen.evicted, seen.who.owner.as_str()), (ticket, true, "te ster"));
        assert!(ours.evict(&holder.name, ticket, true).await.unwrap());
        assert!(is_in(&ours.join(&next, false).await.unwrap()));
        database.done().await;
    }
}

#[tokio::test]
async fn what_a_row_cannot_hold_is_refused_before_sending() {
    let Some((database, ours, theirs)) = shedlock().await else { return };
    let shared = Claim { identity: Some("job".into()), ..mutex("m") };
    let permits = claim("m", Mode::Permits { count: 1, limit: 2 }, LEASE);
    for refused in [shared, permits, claim("m", Mode::Shared, LEASE)] {
        let error = ours.join(&refused, true).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
    }
    assert_eq!(theirs.one("SELECT name FROM shedlock").await, None);
    assert!(ours.guarantees().exclusion <= Exclusion::NoForwardStep);
    database.done().await;
}

#[tokio::test]
async fn a_table_that_locks_cannot_be_trusted_to_is_refused() {
    let Some(database) = included().await else { return };
    let config = database.config.clone().layout(Layout::shedlock());
    let kind = async || Mysql::connect(config.clone(), Arc::new(Heard::default())).await.unwrap_err().kind();
    assert_eq!(kind().await, ErrorKind::Unsupported, "there is none");
    let cases = [
        ("name varchar(64) not null", "innodb", ErrorKind::Unsafe),
        ("name varchar(64) not null, unique (name(10))", "innodb", ErrorKind::Unsafe),
        ("name varchar(64) not null, unique (name, locked_by)", "innodb", ErrorKind::Unsafe),
        ("name varchar(64) primary key", "myisam", ErrorKind::Unsupported),
        ("jobname varchar(64) primary key", "innodb", ErrorKind::Unsupported),
    ];
    for (key, engine, expected) in cases {
        let create = format!(
            "DROP TABLE IF EXISTS shedlock; CREATE TABLE shedlock (lock_until timestamp(3) null, \
             locked_at timestamp(3) null, locked_by varchar(255), {key}) engine = {engine}"
        );
        database.run(&create).await;
        assert_eq!(kind().await, expected, "{key} {engine}");
    }
    // The last one under other names.
    let named = Layout::shedlock().columns("jobname", "locked_by", "lock_until", "locked_at");
    let (ours, _) = open(database.config.clone().layout(named)).await;
    let mine = mutex("a");
    assert!(is_in(&ours.join(&mine, false).await.unwrap()));
    database.done().await;
}

/// The digits of a time are those of the server's zone: a session with another one would take a held lock for one that has expired.
#[tokio::test]
async fn the_time_zone_of_the_server_is_everybodys() {
    if included().await.is_none() {
        return;
    }
    let server = Server::start_with(&["--default-time-zone=+09:00"]).await;
    server.run(FOUNDING).await;
    server.run(super::super::shared_table_sql(&Layout::shedlock())).await;
    let theirs = Theirs::on(&server.config);
    theirs.run(&founding_lock("a", "host-1", 30)).await;
    theirs
        .run(
            "INSERT IGNORE INTO shedlock (name, lock_until, locked_at, locked_by) VALUES \
             ('a', TIMESTAMPADD(MICROSECOND, 30000000, UTC_TIMESTAMP(3)), UTC_TIMESTAMP(3), 'host-1')",
        )
        .await;
    for layout in [Layout::table(), Layout::shedlock()] {
        let (ours, _) = open(server.config.clone().layout(layout)).await;
        assert_eq!(ours.join(&mutex("a"), false).await.unwrap(), Standing::Out);
        let rest = ours.view(&Query::Prefix(String::new())).await.unwrap()[0].holders[0].remaining;
        assert!(rest > Duration::from_secs(20) && rest < Duration::from_secs(31), "{rest:?}");
    }
}
