//! One file by several paths, and files that go away under their users.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use super::files::refusal;
use super::processes::{child_command, said};
use super::{claim, is_in, open, place};
use crate::driver::{Driver, Query};
use crate::drivers::sqlite::SqliteConfig;
use crate::error::ErrorKind;
use crate::line::{Mode, Standing};
use crate::{Locks, LossReason};

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_hard_link_is_refused_by_either_name() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one.db"), dir.path().join("two.db"));
    drop(open(&one).await);
    fs::hard_link(&one, &two).unwrap();
    for path in [&one, &two] {
        let error = refusal(SqliteConfig::new(path)).await;
        assert_eq!(error.kind(), ErrorKind::Unsafe, "{error}");
        assert!(error.to_string().contains("hard link"), "{error}");
    }
    assert!(!dir.path().join("two.db-wal").exists());
}

#[tokio::test]
async fn a_hard_link_that_is_made_later_lets_nobody_else_in() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("one.db");
    let (file, _) = open(&path).await;
    let mine = claim("x", Mode::Exclusive, LEASE);
    assert!(is_in(&file.join(&mine, true).await.unwrap()));
    fs::hard_link(&path, dir.path().join("two.db")).unwrap();
    let error = file.join(&claim("y", Mode::Exclusive, LEASE), true).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsafe, "{error}");
    assert!(is_in(&file.renew(&[place(&mine, None)]).await.unwrap()[0]), "a backup must not cost a lock");
    file.leave(&place(&mine, None)).await.unwrap();
    fs::remove_file(dir.path().join("two.db")).unwrap();
    assert!(is_in(&file.join(&claim("y", Mode::Exclusive, LEASE), true).await.unwrap()));
}

#[tokio::test]
async fn a_file_that_is_mounted_by_itself_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (real, mounted) = (dir.path().join("real.db"), dir.path().join("mounted.db"));
    let (file, _) = open(&real).await;
    assert!(is_in(&file.join(&claim("x", Mode::Exclusive, LEASE), true).await.unwrap()));
    fs::write(&mounted, "").unwrap();
    let mount = r#"mount --bind "$0" "$1" && shift && exec "$@""#;
    let container =
        ["unshare", "--mount", "sh", "-c", mount, real.to_str().unwrap(), mounted.to_str().unwrap()];
    let word = said(&mut child_command(&container, &format!("refused {}", mounted.display())));
    assert_eq!(word, "Unsafe");
    // Mounted with its directory it is one file with one log.
    let elsewhere = tempfile::tempdir().unwrap();
    let there = elsewhere.path().to_str().unwrap();
    let container = ["unshare", "--mount", "sh", "-c", mount, dir.path().to_str().unwrap(), there];
    assert_eq!(said(&mut child_command(&container, &format!("try {there}/real.db"))), "busy");
}

#[tokio::test]
async fn a_symbolic_link_leads_to_the_same_locks() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real.db"), dir.path().join("elsewhere/link.db"));
    drop(open(&real).await);
    fs::create_dir(dir.path().join("elsewhere")).unwrap();
    symlink(&real, &link).unwrap();
    let (by_link, _) = open(&link).await;
    let mine = claim("x", Mode::Exclusive, LEASE);
    assert!(is_in(&by_link.join(&mine, true).await.unwrap()));
    let (file, _) = open(&real).await;
    assert_eq!(file.join(&claim("x", Mode::Exclusive, LEASE), false).await.unwrap(), Standing::Out);
    assert_eq!(fs::read_dir(dir.path().join("elsewhere")).unwrap().count(), 1, "no log beside the link");
    // The link leads elsewhere: who opens it from now on does not see this lock.
    drop(open(dir.path().join("other.db")).await);
    fs::remove_file(&link).unwrap();
    symlink(dir.path().join("other.db"), &link).unwrap();
    assert_eq!(by_link.renew(&[place(&mine, None)]).await.unwrap(), [Standing::Lapsed]);
}

#[tokio::test]
async fn a_symbolic_link_that_leads_nowhere_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    symlink(dir.path().join("nothing.db"), dir.path().join("link.db")).unwrap();
    let error = refusal(SqliteConfig::new(dir.path().join("link.db"))).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(!dir.path().join("nothing.db").exists());
}

/// Does something to the files of a lock that is held.
async fn after(name: &str, happens: impl Fn(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let (file, _) = open(&path).await;
    let mine = claim("x", Mode::Exclusive, LEASE);
    let ticket = file.join(&mine, true).await.unwrap().ticket();
    happens(&path);
    let told = file.renew(&[place(&mine, ticket), place(&mine, None)]).await.unwrap();
    assert_eq!(told, [Standing::Lapsed, Standing::Lapsed], "{name}");
    let kinds = [
        file.join(&claim("y", Mode::Exclusive, LEASE), true).await.unwrap_err().kind(),
        file.leave(&place(&mine, ticket)).await.unwrap_err().kind(),
        file.view(&Query::Prefix(String::new())).await.unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::Unsafe; 3], "{name}");
}

#[tokio::test]
async fn a_holder_is_told_with_its_next_renewal_that_its_file_is_gone() {
    after("removed", |path| fs::remove_file(path).unwrap()).await;
    after("moved", |path| fs::rename(path, path.with_file_name("moved")).unwrap()).await;
    after("replaced", |path| {
        fs::write(path.with_file_name("new"), "").unwrap();
        fs::rename(path.with_file_name("new"), path).unwrap();
    })
    .await;
    after("directory moved", |path| {
        let directory = path.parent().unwrap();
        fs::rename(directory, directory.with_extension("moved")).unwrap();
        fs::remove_dir_all(directory.with_extension("moved")).unwrap();
    })
    .await;
    after("log removed", |path| fs::remove_file(path.with_file_name("locks.db-wal")).unwrap()).await;
    after("index removed", |path| fs::remove_file(path.with_file_name("locks.db-shm")).unwrap()).await;
}

#[tokio::test]
async fn a_guard_says_that_the_engine_forgot_it_when_its_file_was_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let locks = Locks::connect(&format!("sqlite:{}?lease=5s", path.display())).await.unwrap();
    let guard = locks.mutex("x").lock().await.unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(guard.lost().await.reason, LossReason::Forgotten);
    let error = locks.mutex("y").lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsafe, "{error}");
    assert!(error.to_string().contains("removed or replaced"), "{error}");
}

#[tokio::test]
async fn a_file_that_comes_back_is_the_same_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let (file, _) = open(&path).await;
    let mine = claim("x", Mode::Exclusive, LEASE);
    file.join(&mine, true).await.unwrap();
    fs::rename(&path, dir.path().join("moved")).unwrap();
    assert_eq!(file.renew(&[place(&mine, None)]).await.unwrap(), [Standing::Lapsed]);
    fs::rename(dir.path().join("moved"), &path).unwrap();
    assert!(is_in(&file.renew(&[place(&mine, None)]).await.unwrap()[0]));
}
