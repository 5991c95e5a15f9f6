//! The locks of the founding document, V1 to V5, as they are written there: what each gets wrong on a real server, and what
//! `layout=table` does in the same table (docs/engines/mysql.md, docs/engines/sql-layouts.md).

use std::time::{Duration, Instant};

use super::{Database, Mysql, claim, included, is_in, open, operate, operator, place};
use crate::Locks;
use crate::driver::Driver;
use crate::drivers::mysql::wire::Connection;
use crate::drivers::mysql::{Layout, MysqlConfig};
use crate::line::{Claim, Mode, Standing};

const TABLE: &str = "CREATE TABLE tbl_distribute_lock (id int not null auto_increment primary key, rkey varchar(20) not null, \
     expiredAt datetime not null default '2000-01-01', owner varchar(20) not null, reentrant varchar(1024) not null default 0, \
     unique key x (rkey)) engine = innodb default charset = utf8mb4";

/// One that ends in no test.
const LEASE: Duration = Duration::from_secs(60);

async fn with_table() -> Option<Database> {
    let database = included().await?;
    database.run(TABLE).await;
    Some(database)
}

/// Our locks in that table.
fn shared(database: &Database) -> MysqlConfig {
    database.config.clone().layout(Layout::table())
}

async fn ours(database: &Database) -> Mysql {
    open(shared(database)).await.0
}

fn mutex(lease: Duration) -> Claim {
    claim("k", Mode::Exclusive, lease)
}

async fn count(database: &Database, rows: &str) -> i64 {
    let query = format!("SELECT COUNT(*) FROM tbl_distribute_lock WHERE {rows}");
    operate(&database.config, &query).await.rows[0].try_get(0).unwrap()
}

async fn text(database: &Database, query: &str) -> String {
    operate(&database.config, query).await.rows[0].try_get(0).unwrap()
}

/// As if the time that a row says had passed.
const EXPIRE: &str = "update tbl_distribute_lock set expiredAt = NOW() - INTERVAL 1 SECOND";

/// V3's statement; V2's is the same without the comparison of owners.
async fn lock(session: &mut Connection, owner: &str, seconds: i32) -> Result<(), u16> {
    let text = format!(
        "insert into tbl_distribute_lock (rkey, owner, expiredAt) values ('k', '{owner}', NOW() + INTERVAL {seconds} SECOND) \
         on duplicate key update \
         `expiredAt` = IF(`expiredAt` < NOW() OR VALUES(`owner`) = `owner`, NOW() + INTERVAL {seconds} SECOND, expiredAt), \
         `owner` = IF(`expiredAt` < NOW() OR VALUES(`owner`) = `owner`, VALUES(`owner`), `owner`)"
    );
    session.query(&text).await.map(drop).map_err(|failure| failure.number().unwrap_or_default())
}

#[tokio::test]
async fn v1_a_client_that_dies_keeps_its_lock_for_ever() {
    let Some(database) = with_table().await else { return };
    let insert = |owner| format!("insert into tbl_distribute_lock (rkey, owner) values ('k', '{owner}')");
    let mut dies = operator(&database.config).await;
    dies.query(&insert("a")).await.unwrap();
    drop(dies);
    let refused = operator(&database.config).await.query(&insert("b")).await.unwrap_err();
    assert_eq!(refused.number(), Some(1062), "and nothing will ever end it");
    // Its row says nothing about a time, so it keeps nobody out who goes by times: such a fleet cannot share its table with us.
    assert!(is_in(&ours(&database).await.join(&mutex(LEASE), false).await.unwrap()));
    database.done().await;
}

#[tokio::test]
async fn v1_here_a_holder_that_dies_is_followed_when_its_lease_ends() {
    let Some(database) = with_table().await else { return };
    let (dies, next) = (mutex(Duration::from_secs(2)), mutex(LEASE));
    let start = Instant::now();
    assert!(is_in(&ours(&database).await.join(&dies, false).await.unwrap()));
    // Its driver is gone, with all of its sessions, and nobody has left.
    let after = ours(&database).await;
    while !is_in(&after.join(&next, false).await.unwrap()) {
        assert!(start.elapsed() < LEASE, "a dead client keeps its lock");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(start.elapsed() >= Duration::from_secs(2), "{:?}: its lease had not ended", start.elapsed());
    database.done().await;
}

/// The assignments see those before them: the owner is decided by the time that was set a moment ago.
#[tokio::test]
async fn v2_whoever_takes_an_expired_lock_gives_it_back_to_its_old_owner() {
    let Some(database) = with_table().await else { return };
    let mut session = operator(&database.config).await;
    lock(&mut session, "dead", -5).await.unwrap();
    lock(&mut session, "new", 60).await.unwrap();
    assert_eq!(
        text(&database, "SELECT owner FROM tbl_distribute_lock WHERE expiredAt > NOW()").await,
        "dead"
    );
    database.done().await;
}

#[tokio::test]
async fn v3_the_first_release_of_two_frees_the_lock() {
    let Some(database) = with_table().await else { return };
    let mut session = operator(&database.config).await;
    for _ in 0..2 {
        lock(&mut session, "a", 60).await.unwrap();
    }
    session.query("delete from tbl_distribute_lock where rkey = 'k' and owner = 'a'").await.unwrap();
    lock(&mut session, "b", 60).await.unwrap();
    assert_eq!(text(&database, "SELECT owner FROM tbl_distribute_lock").await, "b", "a is still at work");
    database.done().await;
}

/// It looks first and writes then, and the write does not look at the time.
#[tokio::test]
async fn v4_a_hold_that_came_too_late_revives_a_lock_that_had_ended() {
    let Some(database) = with_table().await else { return };
    let mut session = operator(&database.config).await;
    lock(&mut session, "a", 1).await.unwrap();
    let look = "expiredAt > NOW() AND rkey = 'k' AND owner = 'a'";
    assert_eq!(count(&database, look).await, 1);
    // As if a second had passed between the two.
    database.run(EXPIRE).await;
    assert_eq!(count(&database, look).await, 0, "whoever looks now may have it");
    let update = "update tbl_distribute_lock set reentrant = CONCAT(`reentrant`, '2'), expiredAt = NOW() + INTERVAL 60 SECOND \
         where rkey = 'k' and owner = 'a'";
    assert_eq!(session.query(update).await.unwrap().changed, 1);
    assert_eq!(count(&database, look).await, 1, "it is held again, by who had lost it");
    database.done().await;
}

#[tokio::test]
async fn v4_here_a_renewal_that_comes_too_late_revives_nothing() {
    let Some(database) = with_table().await else { return };
    let (ours, late) = (ours(&database).await, mutex(LEASE));
    let stands = ours.join(&late, false).await.unwrap();
    assert_eq!(ours.renew(&[place(&late, stands.ticket())]).await.unwrap(), [stands]);
    database.run(EXPIRE).await;
    assert_eq!(ours.renew(&[place(&late, stands.ticket())]).await.unwrap(), [Standing::Lapsed]);
    assert_eq!(count(&database, "expiredAt > NOW()").await, 0);
    database.done().await;
}

/// A release reads the set, takes its id out and writes the rest: it forgets whoever came between the two.
#[tokio::test]
async fn v4_a_release_forgets_a_hold_that_came_meanwhile() {
    let Some(database) = with_table().await else { return };
    let mut session = operator(&database.config).await;
    let read =
        "select reentrant from tbl_distribute_lock where expiredAt > NOW() and rkey = 'k' and owner = 'a'";
    let hold = |id| {
        format!(
            "update tbl_distribute_lock set reentrant = CONCAT(`reentrant`, '{id}') where rkey = 'k' and owner = 'a'"
        )
    };
    lock(&mut session, "a", 60).await.unwrap();
    database.run("update tbl_distribute_lock set reentrant = '1'").await;
    session.query(&hold(2)).await.unwrap();
    assert_eq!(text(&database, read).await, "12");
    // The first is about to let go, and has read that; a third one comes; now the first writes what is left without it.
    session.query(&hold(3)).await.unwrap();
    session
        .query("update tbl_distribute_lock set reentrant = '2' where rkey = 'k' and owner = 'a'")
        .await
        .unwrap();
    // The second finds nobody but itself.
    assert_eq!(text(&database, read).await, "2");
    session.query("delete from tbl_distribute_lock where rkey = 'k' and owner = 'a'").await.unwrap();
    lock(&mut session, "b", 60).await.unwrap();
    assert_eq!(text(&database, "SELECT owner FROM tbl_distribute_lock").await, "b", "the third is at work");
    database.done().await;
}

/// V3 and V4 here: the holds of an owner are counted in its process, and the row goes with the last of them.
#[tokio::test]
async fn v4_here_the_last_hold_of_an_owner_frees_the_lock() {
    let Some(database) = with_table().await else { return };
    let locks = Locks::builder().mysql(shared(&database)).await.unwrap();
    let me = locks.owner("a");
    let first = me.mutex("k").lock().await.unwrap();
    let second = me.mutex("k").lock().await.unwrap();
    let mutex = me.mutex("k");
    let (released, third) = tokio::join!(first.release(), mutex.lock());
    released.unwrap();
    second.release().await.unwrap();
    let mut session = operator(&database.config).await;
    lock(&mut session, "b", 60).await.unwrap();
    assert_eq!(count(&database, "owner <> 'b' AND expiredAt > NOW()").await, 1, "the third is at work");
    third.unwrap().release().await.unwrap();
    assert_eq!(count(&database, "TRUE").await, 0);
    database.done().await;
}

/// Holds the lock as V5 does: a row, and a transaction that sits on it. The session's id.
async fn hold_as_v5(holder: &mut Connection, seconds: i32) -> i64 {
    lock(holder, "a", seconds).await.unwrap();
    let id = holder.query("SELECT CONNECTION_ID()").await.unwrap().rows[0].try_get(0).unwrap();
    let hold = "begin; select rkey from tbl_distribute_lock where rkey = 'k' and owner = 'a' for update";
    holder.query(hold).await.unwrap();
    id
}

#[tokio::test]
async fn v5_who_hangs_keeps_everybody_waiting_beyond_its_time() {
    let Some(database) = with_table().await else { return };
    let (mut holder, mut other) = (operator(&database.config).await, operator(&database.config).await);
    hold_as_v5(&mut holder, 1).await;
    tokio::time::sleep(Duration::from_millis(2100)).await;
    other.query("SET SESSION innodb_lock_wait_timeout = 1").await.unwrap();
    assert_eq!(
        lock(&mut other, "b", 60).await,
        Err(1205),
        "its time is over, and it keeps everybody waiting"
    );
    // The database cannot go while a transaction has a table of it.
    holder.query("rollback").await.unwrap();
    database.done().await;
}

/// Nobody renews the time under the transaction; once it has passed, the session is all that keeps others out. It dies, and its holder
/// is told nothing. The owner is assigned first here, so that this is V5's own fault and not V2's.
#[tokio::test]
async fn v5_a_session_that_dies_is_not_a_holder_that_stopped() {
    let Some(database) = with_table().await else { return };
    database.run("CREATE TABLE guarded (id INT PRIMARY KEY, written_by VARCHAR(20)) ENGINE = InnoDB").await;
    database.run("INSERT INTO guarded VALUES (1, '')").await;
    let (mut holder, mut other) = (operator(&database.config).await, operator(&database.config).await);
    let id = hold_as_v5(&mut holder, 1).await;
    tokio::time::sleep(Duration::from_millis(2100)).await;
    let take = "insert into tbl_distribute_lock (rkey, owner, expiredAt) values ('k', 'b', NOW() + INTERVAL 60 SECOND) \
         on duplicate key update owner = IF(expiredAt < NOW(), VALUES(owner), owner), \
         expiredAt = IF(owner = VALUES(owner), VALUES(expiredAt), expiredAt)";
    other.query("SET SESSION innodb_lock_wait_timeout = 1").await.unwrap();
    assert_eq!(other.query(take).await.unwrap_err().number(), Some(1205), "the transaction keeps it");
    other.query(&format!("KILL {id}")).await.unwrap();
    let start = Instant::now();
    while let Err(failure) = other.query(take).await {
        assert!(failure.number() == Some(1205) && start.elapsed() < Duration::from_secs(10), "{failure}");
    }
    assert_eq!(text(&database, "SELECT owner FROM tbl_distribute_lock").await, "b");
    // Two are inside. The first one works in another session than it locks in, and overwrites what the second did.
    database.run("UPDATE guarded SET written_by = 'b'").await;
    database.run("UPDATE guarded SET written_by = 'a'").await;
    assert_eq!(text(&database, "SELECT written_by FROM guarded").await, "a");
    assert!(holder.query("SELECT 1").await.is_err(), "it learns that only when it asks in that session");
    database.done().await;
}
