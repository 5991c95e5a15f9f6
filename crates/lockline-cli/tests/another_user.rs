//! A command that runs as another user, as with sudo: it cannot be stopped, and that is not hidden.
//!
//! The wrapper runs as nobody, and its command is a setuid copy of `setpriv` that makes itself root's. Only root can set
//! that up.

#![allow(clippy::unwrap_used)]

mod common;
use common::{Lab, kill, lives, said, started_by, until};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const NOBODY: &[&str] = &["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];

struct Scene {
    lab: Lab,
    lockline: PathBuf,
    become_root: PathBuf,
}

/// Fails for anybody but root: a test that did not run has not passed.
fn scene() -> Scene {
    let is_root =
        std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    assert!(is_root, "only root can make a command of another user: run the tests as root");
    let lab = Lab::new();
    let folder = lab.state.path();
    let make = |from: &str, name: &str, mode: u32| {
        let to = folder.join(name);
        // By another process: what this one has open for writing, a child that another test starts at that moment has open, too,
        // and a program that somebody may write to cannot be run ("text file busy").
        assert!(Command::new("cp").arg(from).arg(&to).status().unwrap().success());
        // For nobody's group alone: a test that is killed must not leave everybody a way to become root.
        std::os::unix::fs::chown(&to, Some(0), Some(65534)).unwrap();
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(mode)).unwrap();
        to
    };
    let setpriv = String::from_utf8(Command::new("which").arg("setpriv").output().unwrap().stdout).unwrap();
    let lockline = make(env!("CARGO_BIN_EXE_lockline"), "lockline-copy", 0o755);
    let become_root = make(setpriv.trim(), "become-root", 0o4750);
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    Scene { lab, lockline, become_root }
}

impl Scene {
    /// A wrapper of nobody's whose command is root's, and prints its pid.
    fn hold(&self, flags: &[&str], script: &str) -> (Child, i32) {
        let root = self.become_root.to_str().unwrap();
        let rest = ["x", "--", root, "--reuid", "0", "--regid", "0", "--clear-groups", "sh", "-c", script];
        let args = [&["run", "--lease", "1s", "--grace", "300ms"], flags, &rest].concat();
        let mut command = self.as_nobody(&args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let Ok(pid) = first.trim().parse() else {
            panic!("the command did not start: {:?}", said(child.wait_with_output().unwrap()));
        };
        let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(format!("/proc/{pid}")).unwrap());
        assert_eq!(uid, 0, "the command is root's");
        (child, pid)
    }

    fn as_nobody(&self, args: &[&str]) -> Command {
        let mut plain = Command::new(&self.lockline);
        plain.args(args).env("XDG_STATE_HOME", self.lab.state.path()).env("LOCKLINE_URL", "");
        started_by("setpriv", NOBODY, &plain)
    }
}

/// Evicts the holder, as the user whose lock file it is: root does not use anybody else's.
fn evict(lockline: impl Fn(&[&str]) -> Command) {
    let shown = said(lockline(&["show", "x", "--json"]).output().unwrap());
    let line: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    let token = line["holders"][0]["token"].to_string();
    let evicted = said(lockline(&["evict", "x", "--token", &token]).output().unwrap());
    assert_eq!(evicted.code, Some(0), "{evicted:?}");
}

#[test]
fn a_command_that_cannot_be_stopped_is_named_and_waited_for() {
    let scene = scene();
    let go = scene.lab.state.path().join("go");
    let script = format!("echo $$; while ! test -e '{}'; do sleep 0.05; done", go.display());
    // Some machines show nobody the processes of others.
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let hidden = mounts.lines().any(|line| line.starts_with("proc /proc ") && line.contains("hidepid="));
    for json in [false, true] {
        let _ = std::fs::remove_file(&go);
        let (mut wrapper, command) = scene.hold(if json { &["--json"] } else { &[] }, &script);
        evict(|args| scene.as_nobody(args));
        let mut told = BufReader::new(wrapper.stderr.take().unwrap()).lines();
        let first = told.next().unwrap().unwrap();
        assert!(lives(command), "it could not be stopped");
        assert!(lives(wrapper.id().cast_signed()), "and is waited for");
        std::fs::write(&go, "").unwrap();
        let rest: Vec<String> = told.map(Result::unwrap).collect();
        assert_eq!(wrapper.wait().unwrap().code(), Some(79), "{first} {rest:?}");
        if json {
            let event: serde_json::Value = serde_json::from_str(&first).unwrap();
            assert_eq!((&event["event"], &event["name"]), (&"unstoppable".into(), &"x".into()), "{event}");
            assert!(
                event["processes"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|p| p["pid"] == command && (hidden || p["uid"] == 0))
            );
        } else {
            assert!(
                first.contains(&format!(
                    "pid {command} ({})",
                    if hidden { "hidden by /proc" } else { "sh, user 0" }
                )),
                "{first}"
            );
            assert!(first.contains("may not be stopped by this user"), "{first}");
            assert!(rest[0].starts_with("hint: "), "{rest:?}");
        }
        // Its own hint may follow.
        let last = rest.iter().rfind(|line| !line.starts_with("hint: ")).unwrap();
        assert!(last.contains("could not be stopped") && !last.contains("was stopped"), "{last}");
    }
}

#[test]
fn a_signal_that_cannot_be_passed_on_is_told() {
    let scene = scene();
    let go = scene.lab.state.path().join("go");
    let script = format!("echo $$; while ! test -e '{}'; do sleep 0.05; done", go.display());
    let (wrapper, command) = scene.hold(&[], &script);
    kill("TERM", wrapper.id().cast_signed());
    let mut wrapper = wrapper;
    let mut told = BufReader::new(wrapper.stderr.take().unwrap()).lines();
    let first = told.next().unwrap().unwrap();
    assert!(first.contains("SIGTERM could not be passed on"), "{first}");
    std::fs::write(&go, "").unwrap();
    until("the command is gone", || !lives(command));
    assert_eq!(wrapper.wait().unwrap().code(), Some(0));
}

#[test]
fn as_root_a_command_of_another_user_is_stopped() {
    let scene = scene();
    let mut words = vec!["--lease", "1s", "x", "--", "setpriv"];
    words.extend(NOBODY);
    words.extend(["sh", "-c", "echo $$; sleep 1000"]);
    let mut command = scene.lab.command(&[&["run"], &words[..]].concat());
    let mut wrapper = command.spawn().unwrap();
    let mut first = String::new();
    BufReader::new(wrapper.stdout.take().unwrap()).read_line(&mut first).unwrap();
    evict(|args| scene.lab.command(args));
    let said = common::ended(wrapper);
    assert_eq!(said.code, Some(79), "{said:?}");
    assert!(said.err.contains("the command was stopped"), "{said:?}");
    assert!(!lives(first.trim().parse().unwrap()));
}
