//! The command that runs under the lock: its streams, environment, group and signals, and that it never goes on alone.

#![allow(clippy::unwrap_used)]

mod common;
use common::{Lab, kill, lives, until};
use std::io::Write;
use std::process::Stdio;

#[test]
fn streams_are_untouched_and_the_environment_says_what_it_holds() {
    let lab = Lab::new();
    let script = "cat; echo \"$LOCKLINE_NAME|$LOCKLINE_TOKEN|$LOCKLINE_OWNER\"; echo talk >&2";
    let mut command = lab.command(&["run", "a name", "--owner", "me", "--", "sh", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"\x00data\n").unwrap();
    let said = common::ended(child);
    let (data, rest) = said.out.split_once('\n').unwrap();
    assert_eq!((data, said.err.as_str()), ("\0data", "talk\n"));
    let words: Vec<&str> = rest.trim().split('|').collect();
    assert_eq!((words[0], words[2]), ("a name", "me"));
    assert!(words[1].parse::<u64>().unwrap() > 0);
}

#[test]
fn tokens_rise_from_run_to_run() {
    let lab = Lab::new();
    let token = || {
        lab.say(&["run", "x", "--", "sh", "-c", "echo $LOCKLINE_TOKEN"]).out.trim().parse::<u64>().unwrap()
    };
    let tokens = [token(), token(), token()];
    assert!(tokens[0] < tokens[1] && tokens[1] < tokens[2], "{tokens:?}");
}

#[test]
fn run_says_nothing_by_default_and_what_it_did_with_v() {
    let lab = Lab::new();
    let said = lab.say(&["run", "x", "--", "true"]);
    assert_eq!((said.out.as_str(), said.err.as_str()), ("", ""));
    let said = lab.say(&["run", "-v", "x", "--", "true"]);
    assert_eq!(said.out, "");
    assert!(said.err.starts_with("lockline: got x after ") && said.err.contains(", token "), "{said:?}");
    let said = lab.say(&["run", "-v", "--json", "x", "--", "true"]);
    let event: serde_json::Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!((event["event"].as_str(), event["name"].as_str()), (Some("acquired"), Some("x")));
    let said = lab.say(&["run", "--json", "x", "--", "no-such-program"]);
    let event: serde_json::Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!((event["event"].as_str(), event["exit"].as_u64()), (Some("failed"), Some(127)));
}

#[test]
fn the_command_has_a_process_group_of_its_own() {
    let lab = Lab::new();
    let said = lab.say(&["run", "x", "--", "sh", "-c", "echo $$; ps -o pgid= -p $$"]);
    let numbers: Vec<&str> = said.out.split_whitespace().collect();
    assert_eq!(numbers[0], numbers[1], "{said:?}");
}

#[test]
fn signals_are_passed_on_and_the_lock_stays_until_the_command_has_ended() {
    let lab = Lab::new();
    for signal in ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM"] {
        let script =
            format!("trap 'echo heard; read _; exit 7' {signal}; echo in; while :; do sleep 0.02; done");
        let mut held = lab.hold(&[], "x", &script);
        kill(signal, held.pid());
        assert_eq!(held.next_line(), "heard", "{signal}");
        assert_eq!(lab.counts("x"), (1, 0), "still held while the command cleans up");
        assert_eq!(held.let_go().code, Some(7), "{signal}");
        assert_eq!(lab.counts("x"), (0, 0));
    }
}

#[test]
fn what_was_ignored_stays_ignored() {
    let lab = Lab::new();
    let script = "trap '' HUP; exec \"$0\" run x -- sh -c 'kill -HUP $$; echo survived'";
    let said =
        common::said(common::started_by("sh", &["-c", script], &lab.bare_command(&[])).output().unwrap());
    assert_eq!((said.code, said.out.as_str()), (Some(0), "survived\n"), "{said:?}");
}

#[test]
fn a_killed_wrapper_takes_its_command_with_it_at_once() {
    let lab = Lab::new();
    // `exec`, so that the command is the sleeper itself and no guardian is needed.
    let held = lab.hold(&["--lease", "1s"], "x", "echo $$; exec sleep 1000");
    let command: i32 = held.first.parse().unwrap();
    assert!(lives(command));
    kill("KILL", held.pid());
    until("the command is gone", || !lives(command));
    until("the lock is free", || lab.counts("x") == (0, 0));
}

#[test]
fn a_killed_wrapper_takes_its_commands_children_with_it() {
    let lab = Lab::new();
    let held = lab.hold(&[], "x", "sleep 1000 & echo $!; wait");
    let grandchild: i32 = held.first.parse().unwrap();
    until("the guardian is there", || guardian_of(held.pid()).is_some());
    assert!(lives(grandchild));
    kill("KILL", held.pid());
    until("the grandchild is gone", || !lives(grandchild));
}

#[test]
fn the_guardian_goes_home_and_spares_what_was_left_running() {
    let lab = Lab::new();
    let held = lab.hold(&[], "x", "sleep 1000 >/dev/null 2>&1 & echo $!; read _; exit 0");
    let left: i32 = held.first.parse().unwrap();
    let mut guardian = None;
    until("the guardian is there", || {
        guardian = guardian_of(held.pid());
        guardian.is_some()
    });
    assert_eq!(held.let_go().code, Some(0));
    until("the guardian is gone", || !lives(guardian.unwrap()));
    assert!(lives(left), "a daemon that the command started is its own affair");
    kill("KILL", left);
}

/// The guardian among the children of a wrapper.
fn guardian_of(wrapper: i32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{wrapper}/task/{wrapper}/children")).ok()?;
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains("guardian")
    })
}
