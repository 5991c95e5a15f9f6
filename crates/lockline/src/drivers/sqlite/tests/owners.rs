//! Whose file root may use.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;

use super::files::refusal;
use super::processes::{child_command, said};
use super::{Heard, open};
use crate::drivers::sqlite::{Sqlite, SqliteConfig};
use crate::error::ErrorKind;

const SOMEBODY: u32 = 12_345;

fn give(path: &Path) {
    chown(path, Some(SOMEBODY), Some(SOMEBODY)).expect("this test runs as root");
}

#[tokio::test]
async fn root_does_not_use_a_file_of_somebody_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    drop(open(&path).await);
    give(&path);
    let before = fs::read(&path).unwrap();
    let error = refusal(SqliteConfig::new(&path)).await;
    assert_eq!(error.kind(), ErrorKind::Unsafe, "{error}");
    assert!(error.to_string().contains("12345") && before == fs::read(&path).unwrap(), "{error}");
    let bells = std::sync::Arc::new(Heard::default());
    Sqlite::open(SqliteConfig::new(&path).any_owner(true), bells).await.unwrap();
    // Nor where a link of somebody else leads.
    let link = dir.path().join("link.db");
    drop(open(dir.path().join("own.db")).await);
    symlink(dir.path().join("own.db"), &link).unwrap();
    drop(open(&link).await);
    lchown(&link, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    assert_eq!(refusal(SqliteConfig::new(&link)).await.kind(), ErrorKind::Unsafe);
}

#[tokio::test]
async fn a_directory_of_somebody_else_is_refused_only_if_nobody_named_it() {
    let dir = tempfile::tempdir().unwrap();
    give(dir.path());
    let path = dir.path().join("locks.db");
    // A directory of a user that is mounted into a container whose user is root.
    drop(open(&path).await);
    let config = SqliteConfig { is_of_user: true, ..SqliteConfig::new(&path) };
    assert_eq!(refusal(config).await.kind(), ErrorKind::Unsafe);
}

#[tokio::test]
async fn ordinary_users_share_a_file_in_a_directory_for_all() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = dir.path().join("locks.db");
    let word = |uid: u32, task: &str| {
        said(child_command(&[], &format!("{task} {}", path.display())).uid(uid).gid(uid))
    };
    assert_eq!(word(SOMEBODY, "view"), "0 held");
    for ending in ["", "-wal", "-shm"] {
        let path = format!("{}{ending}", path.display());
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    }
    assert_eq!(word(SOMEBODY + 1, "try"), "in");
    assert_eq!(word(0, "refused"), "Unsafe");
    // Once it is root's, all may use it.
    chown(&path, Some(0), Some(0)).unwrap();
    for uid in [0, SOMEBODY, SOMEBODY + 1] {
        assert_eq!(word(uid, "try"), "in", "{uid}");
    }
}
