//! `lockline run` inside `lockline run`.

#![allow(clippy::unwrap_used)]

mod common;
use common::{Lab, assert_one_line};

const LOCKLINE: &str = env!("CARGO_BIN_EXE_lockline");

fn inner(args: &str) -> String {
    format!("'{LOCKLINE}' run {args}")
}

#[test]
fn a_run_that_would_wait_for_itself_is_refused_at_once() {
    let lab = Lab::new();
    for (flags, script) in [
        (&[][..], inner("x -- echo no")),
        (&[], inner("-w 1000 x -- echo no")),
        (&[], inner("--shared x -- echo no")),
        (&["-s"], inner("x -- echo no")),
        (&["--permits", "2/3"], inner("--permits 2/3 x -- echo no")),
        // With others in between.
        (&[], inner(&format!("y -- '{LOCKLINE}' run z -- '{LOCKLINE}' run x -- echo no"))),
    ] {
        let said = lab.say(&[&["run"], flags, &["x", "--", "sh", "-c", &script]].concat());
        assert_eq!((said.code, said.out.as_str()), (Some(64), ""), "{script}: {said:?}");
        assert!(said.err.contains("wait for itself"), "{said:?}");
        assert_one_line(&said);
    }
    assert_eq!(lab.counts("x"), (0, 0));
}

#[test]
fn what_can_be_is_not_refused() {
    let lab = Lab::new();
    let elsewhere = format!("sqlite:{}/other.db", lab.state.path().display());
    for (flags, script, code, out) in [
        (&[][..], inner("y -- echo yes"), 0, "yes\n"),
        (&[], inner("-n x -- echo no"), 75, ""),
        (&["-s"], inner("-s x -- echo yes"), 0, "yes\n"),
        (&["--permits", "1/3"], inner("--permits 2/3 x -- echo yes"), 0, "yes\n"),
        (&[], inner(&format!("--on '{elsewhere}' x -- echo yes")), 0, "yes\n"),
    ] {
        let said = lab.say(&[&["run"], flags, &["x", "--", "sh", "-c", &script]].concat());
        assert_eq!((said.code, said.out.as_str()), (Some(code), out), "{script}: {said:?}");
    }
}

/// A daemon keeps its environment for longer than the hold it was started under.
#[test]
fn a_hold_that_is_over_is_in_nobodys_way() {
    let lab = Lab::new();
    let said = lab.say(&["run", "x", "--", "sh", "-c", "echo $LOCKLINE_HOLDS"]);
    let holds = said.out.trim();
    assert!(holds.contains('@'), "{said:?}");
    let held = lab.hold_simply("x");
    let mut command = lab.command(&["run", "-w", "0.1", "x", "--", "true"]);
    let said = common::said(command.env("LOCKLINE_HOLDS", holds).output().unwrap());
    assert_eq!(said.code, Some(75), "it is somebody else's now: {said:?}");
    held.let_go();
}
