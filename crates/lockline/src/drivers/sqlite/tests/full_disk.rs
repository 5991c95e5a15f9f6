//! A full disk refuses new claims, and nothing else.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::processes::child_command;
use super::{claim, is_in, open, place};
use crate::driver::{Driver, Query};
use crate::error::ErrorKind;
use crate::line::{Mode, Standing};

const LEASE: Duration = Duration::from_secs(60);

#[test]
fn on_a_full_disk_holders_renew_and_leave() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display().to_string();
    let mount = r#"mount -t tmpfs -o size=2m,mode=700 none "$0" && exec "$@""#;
    let output =
        child_command(&["unshare", "--mount", "sh", "-c", mount, &path], &format!("full-disk {path}"))
            .output()
            .expect("this test needs unshare(1)");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("@survived"),
        "it needs root to mount a disk: {output:?}"
    );
}

fn fill(path: &Path) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    for size in [65536, 4096, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
}

pub(super) async fn in_child(dir: &Path) {
    let (file, heard) = open(dir.join("locks.db")).await;
    let mut held = Vec::new();
    for n in 0..20 {
        let one = claim(&format!("before/{n}"), Mode::Exclusive, LEASE);
        let ticket = file.join(&one, true).await.unwrap().ticket();
        held.push(place(&one, ticket));
    }
    let behind = claim("before/0", Mode::Exclusive, LEASE);
    assert!(matches!(file.join(&behind, true).await.unwrap(), Standing::Waiting { .. }));
    fill(&dir.join("filler"));

    let mut refused = None;
    for n in 0..20_000 {
        let one = claim(&format!("after/{n}"), Mode::Exclusive, LEASE);
        match file.join(&one, true).await {
            Ok(standing) => held.push(place(&one, standing.ticket())),
            Err(e) => {
                refused = Some(e);
                break;
            }
        }
    }
    let refused = refused.expect("two megabytes do not hold twenty thousand claims");
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");

    for round in 0..20 {
        let standings = file.renew(&held).await.unwrap_or_else(|e| panic!("round {round}: {e:?}"));
        assert!(standings.iter().all(is_in), "round {round}");
    }
    let evicted = held.pop().unwrap();
    assert!(file.evict(&evicted.name, evicted.ticket.unwrap(), true).await.unwrap());
    assert!(file.evict(&held[1].name, held[1].ticket.unwrap(), false).await.unwrap());
    heard.take();
    for place in &held {
        file.leave(place).await.unwrap();
    }
    assert_eq!(heard.take().first().map(|(_, bell)| bell.id), Some(behind.id), "the one behind got in");
    file.leave(&place(&behind, None)).await.unwrap();
    assert!(file.view(&Query::Prefix(String::new())).await.unwrap().is_empty());

    fs::remove_file(dir.join("filler")).unwrap();
    assert!(is_in(&file.join(&claim("again", Mode::Exclusive, LEASE), true).await.unwrap()));
    drop(file);
    let db = rusqlite::Connection::open(dir.join("locks.db")).unwrap();
    let check: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    println!("\n@survived after {} claims", held.len());
}
