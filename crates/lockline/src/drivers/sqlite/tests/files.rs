//! What is refused, what is made, what survives.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use super::{Heard, claim, is_in, open, place};
use crate::driver::{Driver, Query};
use crate::drivers::sqlite::{Sqlite, SqliteConfig};
use crate::error::{Error, ErrorKind};
use crate::line::Mode;
use crate::time::{BootClock, Time};

const LEASE: Duration = Duration::from_secs(60);

pub(super) async fn refusal(config: SqliteConfig) -> Error {
    let error =
        Sqlite::open(config, std::sync::Arc::new(Heard::default())).await.expect_err("must be refused");
    assert!(error.hint_text().is_some(), "no hint: {error}");
    assert!(error.engine().is_some_and(|engine| engine.starts_with("sqlite:/")), "{error}");
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

pub(super) fn sql(path: &Path, statements: &str) {
    rusqlite::Connection::open(path).unwrap().execute_batch(statements).unwrap();
}

#[tokio::test]
async fn a_path_that_cannot_be_a_lock_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(refusal(SqliteConfig::new(dir.path())).await.kind(), ErrorKind::Invalid);
    assert_eq!(
        refusal(SqliteConfig::new(dir.path().join("no/such/locks.db"))).await.kind(),
        ErrorKind::Invalid
    );
    assert_eq!(refusal(SqliteConfig::new("/dev/null")).await.kind(), ErrorKind::Invalid);
    assert!(!dir.path().join("no").exists());
}

#[tokio::test]
async fn a_file_of_somebody_else_is_refused_and_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    fs::write(&text, "a text that is longer than the head of an SQLite file: ".repeat(100)).unwrap();
    let other = dir.path().join("other.db");
    sql(&other, "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)");
    let marked = dir.path().join("marked.db");
    sql(&marked, "PRAGMA application_id = 42; PRAGMA user_version = 1");
    let newer = dir.path().join("newer.db");
    drop(open(&newer).await);
    sql(&newer, "PRAGMA user_version = 5; PRAGMA wal_checkpoint(TRUNCATE)");
    for path in [text, other, marked, newer] {
        let before = fs::read(&path).unwrap();
        assert_eq!(refusal(SqliteConfig::new(&path)).await.kind(), ErrorKind::Unsafe, "{path:?}");
        assert!(before == fs::read(&path).unwrap(), "{path:?} was changed");
    }
}

#[tokio::test]
async fn a_file_is_made_for_its_user_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sub/dir/locks.db");
    let bells = std::sync::Arc::new(Heard::default());
    let file = Sqlite::open(SqliteConfig::new(&path).create_dir(true), bells).await.unwrap();
    assert!(is_in(&file.join(&claim("x", Mode::Exclusive, LEASE), true).await.unwrap()));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        assert_eq!(mode(&path.with_file_name(file)), 0o600, "{file}");
    }
}

#[tokio::test]
async fn an_empty_file_is_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("locks.db"), "").unwrap();
    let (file, _) = open(dir.path().join("locks.db")).await;
    assert!(is_in(&file.join(&claim("x", Mode::Exclusive, LEASE), true).await.unwrap()));
}

#[tokio::test]
async fn many_can_make_the_file_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let all: Vec<_> = (0..8).map(|_| tokio::spawn(open(path.clone()))).collect();
    let mut held = 0;
    for one in all {
        let (file, _) = one.await.unwrap();
        held += u32::from(is_in(&file.join(&claim("x", Mode::Exclusive, LEASE), false).await.unwrap()));
    }
    assert_eq!(held, 1);
}

/// A file as an older schema had it, and a claim in it, renewed for a minute at this moment.
fn old_file(path: &Path, version: u32, renewed: Time) {
    let (schema, meta, more) = match version {
        1 => (include_str!("schema_1.sql"), "1, 'some boot', 9000000000000000000", ""),
        2 => (include_str!("schema_2.sql"), "1, 'some boot', 9000000000000000000, 0", ""),
        _ => (include_str!("schema_3.sql"), "1, 9000000000000000000, 0, 0, 0, 0", "1, "),
    };
    sql(path, "PRAGMA page_size = 1024; PRAGMA journal_mode = WAL");
    sql(path, schema);
    sql(path, &format!("INSERT INTO meta VALUES ({meta})"));
    let (lease, deadline) = (LEASE.as_micros(), (renewed + LEASE).as_micros());
    let times = format!("{lease}, {deadline}, {more}1");
    let values = format!("'x', 1, x'00', 0, 0, 0, 1, 0, 0, {times}, 'o', 'h', 1, NULL, x'00', 1, 1, 1");
    sql(path, &format!("INSERT INTO claims VALUES ({values})"));
    sql(path, &format!("PRAGMA application_id = 0x4c6b4c6e; PRAGMA user_version = {version}"));
}

#[tokio::test]
async fn a_file_of_an_older_schema_is_taken_over_once_nobody_is_in_it() {
    for version in [1, 2, 3] {
        let dir = tempfile::tempdir().unwrap();
        let [used, idle, other_boot] = ["used.db", "idle.db", "boot.db"].map(|name| dir.path().join(name));
        old_file(&used, version, BootClock.now());
        old_file(&idle, version, BootClock.now().minus(LEASE));
        old_file(&other_boot, version, BootClock.now() + 100 * LEASE);
        let error = refusal(SqliteConfig::new(&used)).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("older Lockline"), "{error}");
        let claims: u32 = rusqlite::Connection::open(&used)
            .unwrap()
            .query_row("SELECT count(*) FROM claims", [], |row| row.get(0))
            .unwrap();
        assert_eq!(claims, 1, "nothing was changed");
        for free in [idle, other_boot] {
            let (file, _) = open(&free).await;
            let standing = file.join(&claim("x", Mode::Exclusive, LEASE), true).await.unwrap();
            assert_eq!(standing.ticket().unwrap().get(), 9_000_000_000_000_000_001, "the counter goes on");
            drop(file);
            drop(open(&free).await);
        }
    }
}

#[tokio::test]
async fn a_damaged_file_is_said_to_be_unsafe() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let (file, _) = open(&path).await;
    file.join(&claim("x", Mode::Exclusive, LEASE), true).await.unwrap();
    drop(file);
    sql(&path, "PRAGMA wal_checkpoint(TRUNCATE)");
    let mut bytes = fs::read(&path).unwrap();
    bytes[100..].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    assert_eq!(refusal(SqliteConfig::new(&path)).await.kind(), ErrorKind::Unsafe);
}

#[tokio::test]
async fn what_was_asked_before_the_drop_is_done_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let (file, _) = open(&path).await;
    let mine = claim("x", Mode::Exclusive, LEASE);
    // Neither future is polled; the leave stands behind the join in the queue.
    let joined = file.join(&mine, true);
    drop(file.leave(&place(&mine, None)));
    drop(joined);
    let kept = claim("y", Mode::Exclusive, LEASE);
    let joined = file.join(&kept, true);
    let leaves = claim("z", Mode::Exclusive, LEASE);
    file.join(&leaves, true).await.unwrap();
    drop(joined);
    drop(file.leave(&place(&leaves, None)));
    drop(file);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (file, _) = open(&path).await;
    let lines = file.view(&Query::Prefix(String::new())).await.unwrap();
    assert!(lines.iter().all(|line| line.name.as_str() == "y"), "{lines:?}");
}

#[tokio::test]
async fn a_thousand_waiters_cost_little() {
    let dir = tempfile::tempdir().unwrap();
    let (file, heard) = open(dir.path().join("locks.db")).await;
    let claims: Vec<_> = (0..1000).map(|_| claim("x", Mode::Exclusive, LEASE)).collect();
    let started = std::time::Instant::now();
    for claim in &claims {
        file.join(claim, true).await.unwrap();
    }
    let places: Vec<_> = claims.iter().map(|claim| place(claim, None)).collect();
    file.renew(&places).await.unwrap();
    for place in &places {
        file.leave(place).await.unwrap();
    }
    assert_eq!(heard.take().len(), 999, "one bell for each that got in, and none else");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert!(file.view(&Query::Prefix(String::new())).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_file_that_stays_locked_is_unavailable_and_nothing_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let config = SqliteConfig::new(&path).busy_timeout(Duration::from_millis(100));
    let file = Sqlite::open(config, std::sync::Arc::new(Heard::default())).await.unwrap();
    let blocker = rusqlite::Connection::open(&path).unwrap();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let started = std::time::Instant::now();
    let mine = [claim("x", Mode::Exclusive, LEASE), claim("y", Mode::Exclusive, LEASE)];
    let (one, two) = tokio::join!(file.join(&mine[0], true), file.join(&mine[1], true));
    assert_eq!(one.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(two.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    // Looking does not need the lock.
    assert!(file.view(&Query::Prefix(String::new())).await.unwrap().is_empty());
    blocker.execute_batch("COMMIT").unwrap();
    assert!(is_in(&file.join(&mine[0], true).await.unwrap()));
}

#[tokio::test]
async fn a_leave_in_the_same_transaction_is_the_last_word() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let (holder, _) = open(&path).await;
    let first = claim("x", Mode::Exclusive, LEASE);
    holder.join(&first, true).await.unwrap();
    // A join that waits is looked at twice if somebody before it is found dead: it must not come back after its leave.
    let (file, _) = open(&path).await;
    let blocker = rusqlite::Connection::open(&path).unwrap();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let nothing = place(&claim("y", Mode::Exclusive, LEASE), None);
    let stuck = file.leave(&nothing);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mine = claim("x", Mode::Exclusive, LEASE);
    let goes = place(&mine, None);
    let (joined, left) = (file.join(&mine, true), file.leave(&goes));
    blocker.execute_batch("COMMIT").unwrap();
    let (stuck, joined, left) = tokio::join!(stuck, joined, left);
    stuck.unwrap();
    joined.unwrap();
    left.unwrap();
    let lines = file.view(&Query::Prefix(String::new())).await.unwrap();
    assert_eq!((lines.len(), lines[0].holders.len(), lines[0].waiters.len()), (1, 1, 0), "{lines:?}");
}
