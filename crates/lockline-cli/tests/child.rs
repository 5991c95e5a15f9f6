//! The command that runs under the lock: its streams, environment, group and signals.

#![allow(clippy::unwrap_used)]

mod common;
use common::{Lab, kill};
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
