//! The lock is lost while the command runs: the command is stopped, and the exit code says so.

#![allow(clippy::unwrap_used)]

mod common;
use common::{Lab, ended, kill, lives, until};
use std::time::{Duration, Instant};

fn token(lab: &Lab, name: &str) -> String {
    lab.show(name)["holders"][0]["token"].to_string()
}

#[test]
fn an_evicted_holder_is_asked_to_end_and_says_79() {
    let lab = Lab::new();
    for now in [true, false] {
        let mut held = lab.hold(
            &["--lease", "1s"],
            "x",
            "trap 'echo bye; exit 3' TERM; echo in; while :; do sleep 0.02; done",
        );
        let token = token(&lab, "x");
        let mut args = vec!["evict", "x", "--token", &token];
        args.extend(now.then_some("--now"));
        let evicted = lab.say(&args);
        assert_eq!((evicted.code, evicted.out.as_str()), (Some(0), ""));
        assert!(
            evicted.err.starts_with("lockline: evicted ") && evicted.err.contains(": trap ("),
            "{evicted:?}"
        );
        assert!(evicted.err.contains("\nhint: "), "{evicted:?}");
        assert!(evicted.err.contains("only the token protects"), "{evicted:?}");
        assert_eq!(held.next_line(), "bye");
        let said = held.end();
        assert_eq!(said.code, Some(79), "{said:?}");
        // Its own renewal may come between the eviction and its bell, and finds only that nothing is known of it.
        assert!(said.err.contains("evicted") || now && said.err.contains("forgot"), "{said:?}");
        assert_eq!(lab.counts("x"), (0, 0));
    }
}

#[test]
fn who_does_not_end_is_killed_after_the_grace_with_all_its_children() {
    let lab = Lab::new();
    let script = "trap '' TERM; sh -c \"trap '' TERM; while :; do sleep 0.05; done\" & echo $!; while :; do sleep 0.05; done";
    let held = lab.hold(&["--lease", "1s", "--grace", "300ms", "-q"], "x", script);
    let grandchild: i32 = held.first.parse().unwrap();
    let began = Instant::now();
    lab.say(&["evict", "x", "--now", "--token", &token(&lab, "x")]);
    let said = held.end();
    assert_eq!((said.code, said.err.as_str()), (Some(79), ""));
    assert!(began.elapsed() >= Duration::from_millis(300));
    until("the grandchild is gone", || !lives(grandchild));
}

#[test]
fn a_child_that_outlives_the_command_is_killed_too() {
    let lab = Lab::new();
    let script = "sh -c \"trap '' TERM; while :; do sleep 0.05; done\" >/dev/null 2>&1 & echo $!; while :; do sleep 0.05; done";
    let held = lab.hold(&["--lease", "1s", "--grace", "300ms"], "x", script);
    let grandchild: i32 = held.first.parse().unwrap();
    lab.say(&["evict", "x", "--now", "--token", &token(&lab, "x")]);
    assert_eq!(held.end().code, Some(79));
    until("the grandchild is gone", || !lives(grandchild));
}

#[test]
fn the_maximum_hold_ends_a_hung_command() {
    let lab = Lab::new();
    let said = lab.say(&["run", "--max-hold", "200ms", "x", "--", "sleep", "1000"]);
    assert_eq!(said.code, Some(79), "{said:?}");
    assert!(said.err.contains("max_hold"), "{said:?}");
    assert_eq!(lab.say(&["run", "--max-hold", "1m", "x", "--", "true"]).code, Some(0));
}

#[test]
fn a_lock_held_for_its_maximum_is_kept_until_the_command_has_ended() {
    let lab = Lab::new();
    let script = "trap 'echo asked; read _; exit 3' TERM; echo in; while :; do sleep 0.02; done";
    let mut held = lab.hold(&["--max-hold", "200ms", "--grace", "20s"], "x", script);
    assert_eq!(held.next_line(), "asked");
    assert_eq!(lab.counts("x"), (1, 0), "nobody else is in while it cleans up");
    let said = held.let_go();
    assert_eq!(said.code, Some(79), "{said:?}");
    assert!(said.err.contains("max_hold"), "{said:?}");
}

#[test]
fn a_stopped_command_is_ended_all_the_same() {
    let lab = Lab::new();
    let held = lab.hold(&["--max-hold", "300ms"], "x", "echo $$; while :; do sleep 0.02; done");
    let command: i32 = held.first.parse().unwrap();
    kill("STOP", command);
    assert_eq!(held.end().code, Some(79));
    assert!(!lives(command));
}

#[test]
fn a_wrapper_stopped_beyond_its_lease_ends_its_command_when_it_wakes() {
    let lab = Lab::new();
    let held = lab.hold(&["--lease", "100ms"], "x", "echo $$; while :; do sleep 0.02; done");
    let command: i32 = held.first.parse().unwrap();
    kill("STOP", held.pid());
    // Somebody else gets in only when the lease is over.
    assert_eq!(lab.say(&["run", "x", "--", "true"]).code, Some(0));
    kill("CONT", held.pid());
    let said = held.end();
    assert_eq!(said.code, Some(79), "{said:?}");
    assert!(!lives(command));
}

#[test]
fn evicting_nobody_is_one_and_changes_nothing() {
    let lab = Lab::new();
    let said = lab.say(&["evict", "x", "--token", "1"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    common::assert_one_line(&said);
    assert!(!lab.file().exists());
    let held = lab.hold_simply("x");
    assert_eq!(lab.say(&["evict", "x", "--token", "1", "--now"]).code, Some(1));
    let answer = lab.say(&["evict", "x", "--token", "1", "--json"]);
    assert_eq!(answer.code, Some(1));
    let answer: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(answer["evicted"], false);
    assert_eq!(lab.counts("x"), (1, 0));
    assert_eq!(held.let_go().code, Some(0));
}

#[test]
fn an_evicted_waiter_is_dropped_and_the_others_move_up() {
    let lab = Lab::new();
    let held = lab.hold_simply("x");
    let first = lab.wait_in_line(&["run", "x", "--", "echo", "first"], "x");
    let second = lab.wait_in_line(&["run", "x", "--", "echo", "second"], "x");
    let ticket = lab.show("x")["waiters"][0]["ticket"].to_string();
    let said = lab.say(&["evict", "x", "--token", &ticket]);
    assert!(said.err.contains("from the line for x"), "{said:?}");
    assert_eq!(ended(first).code, Some(75));
    held.let_go();
    assert_eq!(ended(second).out, "second\n");
}
