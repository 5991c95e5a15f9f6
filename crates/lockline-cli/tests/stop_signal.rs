//! A stop signal for the wrapper alone, as a supervisor or `kill` sends it: the command stops with it.

#![allow(clippy::unwrap_used)]

mod common;
use common::{Lab, Log, kill, state, until};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

/// A wrapper in a group of its own that somebody looks after: else the kernel lets it not be stopped.
fn start(lab: &Lab, lease: &str, script: &str) -> (Child, i32) {
    let file = lab.state.path().join("command");
    let script = format!("echo $$ > '{0}.new'; mv '{0}.new' '{0}'; {script}", file.display());
    let mut command = lab.command(&["run", "--lease", lease, "x", "--", "sh", "-c", &script]);
    let child = command.process_group(0).stdin(Stdio::piped()).spawn().unwrap();
    until("the command runs", || file.exists());
    let command = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    (child, command)
}

#[test]
fn both_stop_and_both_go_on() {
    let lab = Lab::new();
    let (mut wrapper, command) = start(&lab, "60s", "read _; exit 6");
    let pid = wrapper.id().cast_signed();
    for _ in 0..3 {
        kill("TSTP", pid);
        until("both are stopped", || state(command) == 'T' && state(pid) == 'T');
        kill("CONT", pid);
        until("both go on", || state(command) != 'T' && state(pid) != 'T');
    }
    wrapper.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(common::ended(wrapper).code, Some(6));
}

#[test]
fn a_wrapper_stopped_beyond_its_lease_leaves_nobody_at_work_and_says_so() {
    let lab = Lab::new();
    let log = Log::new(&lab);
    let (wrapper, command) = start(&lab, "1s", &format!("{} work", log.worker()));
    let pid = wrapper.id().cast_signed();
    kill("TSTP", pid);
    until("both are stopped", || state(command) != 'R' && state(pid) == 'T');
    assert_eq!(lab.say(&["run", "x", "--", "sh", "-c", &log.next()]).code, Some(0));
    // Not even if somebody continues the command without its wrapper.
    let text = log.text();
    assert!(text.ends_with("next\nout\n"), "{}", text.len());
    log.assert_nobody_worked_beside_the_next();
    kill("CONT", pid);
    let said = common::ended(wrapper);
    assert_eq!(said.code, Some(79), "{said:?}");
}

#[test]
fn a_waiter_can_be_stopped_and_waits_on() {
    let lab = Lab::new();
    let held = lab.hold_simply("x");
    let mut command = lab.command(&["run", "x", "--", "echo", "in"]);
    let waiter = command.process_group(0).spawn().unwrap();
    until("it waits", || lab.counts("x") == (1, 1));
    let pid = waiter.id().cast_signed();
    kill("TSTP", pid);
    until("it is stopped", || state(pid) == 'T');
    kill("CONT", pid);
    held.let_go();
    let said = common::ended(waiter);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "in\n"), "{said:?}");
}
