//! Several processes on one file: bells between them, and deaths.
//!
//! A child is this very test program, asked for one test that does nothing unless it is told to.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::{claim, is_in, open, place};
use crate::driver::{Driver, Query};
use crate::line::{Mode, News, Standing};

const LEASE: Duration = Duration::from_secs(60);
/// Far below the lease and the second after which a waiter looks again by itself.
const AT_ONCE: Duration = Duration::from_millis(700);

pub(super) const TASK: &str = "LOCKLINE_SQLITE_TEST_TASK";

/// What a child does: `hold PATH` and `wait PATH` join the line `x`, say so, and leave it on a line of input; `try PATH` and
/// `view PATH` say what they find, `refused PATH` why the file cannot be opened.
#[test]
fn child_process() {
    let Ok(task) = std::env::var(TASK) else { return };
    let (task, path) = task.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match task {
            "full-disk" => return super::full_disk::in_child(Path::new(path)).await,
            "refused" => {
                let bells = std::sync::Arc::new(super::Heard::default());
                let config = crate::drivers::sqlite::SqliteConfig::new(path);
                let error = crate::drivers::sqlite::Sqlite::open(config, bells).await.unwrap_err();
                println!("\n@{:?}", error.kind());
                return;
            }
            "view" => {
                let (file, _heard) = open(path).await;
                let lines = file.view(&Query::Prefix(String::new())).await.unwrap();
                println!("\n@{} held", lines.iter().map(|line| line.holders.len()).sum::<usize>());
                return;
            }
            "try" => {
                let (file, _heard) = open(path).await;
                let standing = file.join(&claim("x", Mode::Exclusive, LEASE), false).await.unwrap();
                println!("\n@{}", if is_in(&standing) { "in" } else { "busy" });
                return;
            }
            _ => {}
        }
        let (file, _heard) = open(path).await;
        let mine = claim("x", Mode::Exclusive, LEASE);
        let standing = file.join(&mine, true).await.unwrap();
        println!("\n@{}", if is_in(&standing) { "in" } else { "waiting" });
        let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next());
        if line.await.unwrap().is_some() {
            file.leave(&place(&mine, None)).await.unwrap();
            println!("\n@left");
        }
    });
}

pub(super) fn child_command(program: &[&str], task: &str) -> Command {
    let me = std::env::current_exe().unwrap();
    let mut words: Vec<&str> = program.to_vec();
    words.push(me.to_str().unwrap());
    words.extend([
        "--exact",
        "drivers::sqlite::tests::processes::child_process",
        "--nocapture",
        "--test-threads=1",
    ]);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env(TASK, task).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// What a child says that says one word and ends.
pub(super) fn said(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("this test runs as root, and needs unshare(1)");
    let text = String::from_utf8_lossy(&output.stdout);
    let word = text.lines().find_map(|line| line.strip_prefix('@'));
    word.unwrap_or_else(|| panic!("this test needs root, to mount something or to be somebody: {output:?}"))
        .to_owned()
}

pub(super) struct Other {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Other {
    pub(super) fn start(program: &[&str], task: &str, path: &Path) -> Other {
        let mut child = child_command(program, &format!("{task} {}", path.display())).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Other { child, input, output }
    }

    pub(super) fn hears(&mut self, word: &str) {
        let heard = (&mut self.output).lines().map(Result::unwrap).find(|line| line.starts_with('@'));
        assert_eq!(heard.as_deref(), Some(format!("@{word}").as_str()));
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_lock_goes_from_process_to_process_by_a_bell() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let mut other = Other::start(&[], "hold", &path);
    other.hears("in");
    let (file, heard) = open(&path).await;
    let mine = claim("x", Mode::Exclusive, LEASE);
    let standing = file.join(&mine, true).await.unwrap();
    assert!(matches!(standing, Standing::Waiting { ahead: 1, .. }), "{standing:?}");
    let left = Instant::now();
    other.input.write_all(b"leave\n").unwrap();
    let (_, bell) = heard.next().await;
    assert!(left.elapsed() < AT_ONCE, "{:?}", left.elapsed());
    assert_eq!((bell.id, Some(bell.ticket), bell.news), (mine.id, standing.ticket(), News::In));
    assert!(is_in(&file.renew(&[place(&mine, standing.ticket())]).await.unwrap()[0]));
}

#[tokio::test]
async fn a_killed_holder_is_noticed_at_once_by_who_waits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let mut other = Other::start(&[], "hold", &path);
    other.hears("in");
    let (file, heard) = open(&path).await;
    let mine = claim("x", Mode::Exclusive, LEASE);
    file.join(&mine, true).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(heard.take(), vec![]);
    let killed = Instant::now();
    // Not waited for: a zombie has ended too.
    other.child.kill().unwrap();
    assert_eq!(heard.next().await.1.id, mine.id);
    assert!(killed.elapsed() < AT_ONCE, "{:?}", killed.elapsed());
}

#[tokio::test]
async fn a_killed_holder_is_noticed_by_who_only_tries() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let (file, _) = open(&path).await;
    for reap in [true, false] {
        let mut other = Other::start(&[], "hold", &path);
        other.hears("in");
        let mine = claim("x", Mode::Exclusive, LEASE);
        assert_eq!(file.join(&mine, false).await.unwrap(), Standing::Out, "it lives");
        other.child.kill().unwrap();
        if reap {
            other.child.wait().unwrap();
        } else {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let mine = claim("x", Mode::Exclusive, LEASE);
        assert!(is_in(&file.join(&mine, false).await.unwrap()), "reaped: {reap}");
        file.leave(&place(&mine, None)).await.unwrap();
    }
}

#[tokio::test]
async fn a_waiter_that_was_killed_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let (file, heard) = open(&path).await;
    let first = claim("x", Mode::Exclusive, LEASE);
    assert!(is_in(&file.join(&first, true).await.unwrap()));
    let mut other = Other::start(&[], "wait", &path);
    other.hears("waiting");
    let last = claim("x", Mode::Exclusive, LEASE);
    file.join(&last, true).await.unwrap();
    other.child.kill().unwrap();
    other.child.wait().unwrap();
    let left = Instant::now();
    file.leave(&place(&first, None)).await.unwrap();
    assert_eq!(heard.next().await.1.id, last.id);
    assert!(left.elapsed() < AT_ONCE, "{:?}", left.elapsed());
}

#[tokio::test]
async fn a_process_in_another_pid_namespace_is_not_judged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    // Its pid means another process here, or none: judged by it, a living holder would lose its lock.
    let mut other =
        Other::start(&["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"], "hold", &path);
    other.hears("in");
    let (file, heard) = open(&path).await;
    assert_eq!(file.join(&claim("x", Mode::Exclusive, LEASE), false).await.unwrap(), Standing::Out);
    let mine = claim("x", Mode::Exclusive, LEASE);
    assert!(matches!(file.join(&mine, true).await.unwrap(), Standing::Waiting { .. }));
    other.input.write_all(b"leave\n").unwrap();
    other.hears("left");
    assert_eq!(heard.next().await.1.id, mine.id);
}

#[tokio::test]
async fn a_process_in_another_network_namespace_is_not_buried_when_its_bell_is_out_of_reach() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let (file, heard) = open(&path).await;
    let first = claim("x", Mode::Exclusive, LEASE);
    file.join(&first, true).await.unwrap();
    let mut other = Other::start(&["unshare", "--net"], "wait", &path);
    other.hears("waiting");
    let last = claim("x", Mode::Exclusive, LEASE);
    file.join(&last, true).await.unwrap();
    file.leave(&place(&first, None)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(heard.take(), vec![], "the other one is in, though its bell was not heard");
    let standing = file.renew(&[place(&last, None)]).await.unwrap();
    assert!(matches!(standing[0], Standing::Waiting { ahead: 1, .. }), "{standing:?}");
}

#[tokio::test]
async fn without_the_right_to_write_it_is_denied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    drop(open(&path).await);
    // Whether the directory or the file refuses: both are this user's only.
    let mut command = child_command(&[], &format!("refused {}", path.display()));
    assert_eq!(said(command.uid(65534).gid(65534)), "Denied");
}
