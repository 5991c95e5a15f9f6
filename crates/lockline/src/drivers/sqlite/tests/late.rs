//! A worker without a thread, when others are on the file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::files::sql;
use super::{Heard, claim, is_in, open, place};
use crate::driver::{Driver, Query};
use crate::drivers::sqlite::{Sqlite, SqliteConfig};
use crate::line::Mode;

const LEASE: Duration = Duration::from_secs(60);
/// Longer than a worker without a thread waits, far less than the others do.
const A_WHILE: Duration = Duration::from_millis(600);

/// Somebody keeps the file locked for a while.
fn occupy(path: &Path, how: &str) -> std::thread::JoinHandle<()> {
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch(how).unwrap();
    std::thread::spawn(move || {
        std::thread::sleep(A_WHILE);
        db.execute_batch("COMMIT").unwrap();
    })
}

async fn open_late(path: &Path) -> Sqlite {
    let config = SqliteConfig::new(path).late_thread(true);
    Sqlite::open(config, Arc::new(Heard::default())).await.unwrap()
}

#[tokio::test]
async fn a_new_file_that_another_process_is_making_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let other = occupy(&path, "BEGIN EXCLUSIVE");
    let file = open_late(&path).await;
    assert!(is_in(&file.join(&claim("x", Mode::Exclusive, LEASE), false).await.unwrap()));
    other.join().unwrap();
}

#[tokio::test]
async fn a_file_of_another_boot_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    drop(open(&path).await);
    sql(&path, "DELETE FROM boots");
    let other = occupy(&path, "BEGIN IMMEDIATE");
    let file = open_late(&path).await;
    assert!(is_in(&file.join(&claim("x", Mode::Exclusive, LEASE), false).await.unwrap()));
    other.join().unwrap();
}

#[tokio::test]
async fn a_first_request_waits_for_others_on_the_file_and_keeps_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let file = open_late(&path).await;
    let other = occupy(&path, "BEGIN IMMEDIATE");
    let (mine, leaves) = (claim("x", Mode::Exclusive, LEASE), claim("y", Mode::Exclusive, LEASE));
    let gone = place(&leaves, None);
    let verbs = (file.join(&mine, false), file.join(&leaves, true), file.leave(&gone));
    let (tried, joined, left) = tokio::join!(verbs.0, verbs.1, verbs.2);
    assert!(is_in(&tried.unwrap()) && is_in(&joined.unwrap()));
    left.unwrap();
    let lines = file.view(&Query::Prefix(String::new())).await.unwrap();
    assert_eq!(lines.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(), ["x"]);
    other.join().unwrap();
}
