//! The command never goes on alone: whatever happens to its wrapper, nothing of its group works when the next holder is in.

#![allow(clippy::unwrap_used)]

mod common;
use common::{Lab, Log, another_guardian_of, guardian_of, kill, lives, state, until};
use std::process::Stdio;
use std::time::Duration;

#[test]
fn a_killed_wrapper_takes_its_command_with_it_at_once() {
    let lab = Lab::new();
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
    let guardian = guardian_of(held.pid());
    kill("KILL", held.pid());
    until("the grandchild is gone", || !lives(grandchild));
    until("the guardian is gone", || !lives(guardian));
}

/// The first thing the command does is to kill its wrapper, which perhaps has not yet heard that it was started.
#[test]
fn a_wrapper_killed_by_its_commands_first_step_leaves_nobody_at_work() {
    let lab = Lab::new();
    let log = Log::new(&lab);
    let script = format!("{} work & work & kill -KILL $PPID; work", log.worker());
    for _ in 0..10 {
        let _ = std::fs::remove_file(&log.0);
        let mut command = lab.command(&["run", "x", "--", "sh", "-c", &script]);
        let mut killed = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        killed.wait().unwrap();
        assert_eq!(lab.say(&["run", "x", "--", "sh", "-c", &log.next()]).code, Some(0));
        log.assert_nobody_worked_beside_the_next();
    }
}

#[test]
fn a_wrapper_killed_at_any_moment_of_its_first_100_ms_leaves_nobody_at_work() {
    let lab = Lab::new();
    let log = Log::new(&lab);
    let script = format!("{} work & work & work", log.worker());
    for moment in 0..48_u64 {
        let _ = std::fs::remove_file(&log.0);
        let mut command = lab.command(&["run", "x", "--", "sh", "-c", &script]);
        let mut killed = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Somebody who waits in line already is woken by the very death of the wrapper.
        let next = || lab.command(&["run", "x", "--", "sh", "-c", &log.next()]).spawn().unwrap();
        let waits = (moment % 2 == 1).then(|| {
            until("it holds", || lab.counts("x").0 == 1);
            next()
        });
        // Spread over the whole time, in no order.
        std::thread::sleep(Duration::from_micros(moment * 7919 % 100 * 1000));
        kill("KILL", killed.id().cast_signed());
        killed.wait().unwrap();
        let said = common::ended(waits.unwrap_or_else(next));
        assert_eq!(said.code, Some(0), "{said:?}");
        log.assert_nobody_worked_beside_the_next();
    }
}

/// Stopped by the first step of its command: from the fork on somebody else is there to end it.
#[test]
fn a_wrapper_that_is_stopped_has_its_group_killed_before_the_next_is_in() {
    let lab = Lab::new();
    let log = Log::new(&lab);
    // Nobody of it ends when it is asked to.
    let script = format!("trap '' TERM; {} work & kill -STOP $PPID; echo in; work", log.worker());
    let held = lab.hold(&["--lease", "1s"], "x", &script);
    until("the wrapper is stopped", || state(held.pid()) == 'T');
    assert_eq!(lab.say(&["run", "x", "--", "sh", "-c", &log.next()]).code, Some(0));
    log.assert_nobody_worked_beside_the_next();
    kill("CONT", held.pid());
    let said = held.end();
    assert_eq!(said.code, Some(79), "{said:?}");
    assert!(said.err.starts_with("lockline: lost the lock \"x\": "), "{said:?}");
}

#[test]
fn a_command_whose_wrapper_is_stopped_is_asked_to_end_while_the_lock_is_its_own() {
    let lab = Lab::new();
    let log = Log::new(&lab);
    let path = log.0.display();
    let script =
        format!("trap \"echo cleaned >> '{path}'; exit 3\" TERM; echo in; while :; do sleep 0.02; done");
    let held = lab.hold(&["--lease", "6s"], "x", &script);
    kill("STOP", held.pid());
    let waiter = lab.wait_in_line(&["run", "x", "--", "sh", "-c", &log.next()], "x");
    until("the command has cleaned up", || log.text() == "cleaned\n");
    assert_eq!(lab.counts("x"), (1, 1), "and the lock was still its own");
    // Awake again in time, the wrapper has the lock but no command: that was not the command's own end.
    kill("CONT", held.pid());
    let said = held.end();
    assert_eq!(said.code, Some(79), "{said:?}");
    assert!(
        said.err.contains("not renewed in time") && said.err.contains("the command was stopped"),
        "{said:?}"
    );
    assert_eq!(common::ended(waiter).code, Some(0));
}

#[test]
fn a_wrapper_that_was_stopped_for_a_moment_goes_on() {
    let lab = Lab::new();
    let held = lab.hold(&["--lease", "20s"], "x", "echo in; read _; exit 4");
    kill("STOP", held.pid());
    until("the wrapper is stopped", || state(held.pid()) == 'T');
    kill("CONT", held.pid());
    assert_eq!(held.let_go().code, Some(4));
}

#[test]
fn a_killed_guardian_is_replaced() {
    let lab = Lab::new();
    let log = Log::new(&lab);
    let script = format!("{} echo in; work", log.worker());
    let held = lab.hold(&["--lease", "1s"], "x", &script);
    let first = guardian_of(held.pid());
    kill("KILL", first);
    let second = another_guardian_of(held.pid(), first);
    kill("KILL", held.pid());
    assert_eq!(lab.say(&["run", "x", "--", "sh", "-c", &log.next()]).code, Some(0));
    log.assert_nobody_worked_beside_the_next();
    until("the second is gone", || !lives(second));
}

#[test]
fn the_guardian_keeps_nothing_open_and_hears_no_signal() {
    let lab = Lab::new();
    let held = lab.hold_simply("x");
    let guardian = guardian_of(held.pid());
    let mut open = Vec::new();
    until("it has closed what it does not need", || {
        let fds = std::fs::read_dir(format!("/proc/{guardian}/fd")).unwrap();
        open = fds.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok()).collect();
        open.len() == 2
    });
    assert!(open.iter().all(|target| target.to_str().unwrap().starts_with("pipe:")), "{open:?}");
    let numbers = |pid: i32, format: &str| {
        let shown =
            std::process::Command::new("ps").args(["-o", format, "-p", &pid.to_string()]).output().unwrap();
        String::from_utf8(shown.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(numbers(guardian, "sid="), guardian.to_string(), "a session of its own");
    for signal in ["TERM", "INT", "HUP", "QUIT", "USR1", "TSTP", "PIPE"] {
        kill(signal, guardian);
    }
    assert_eq!(held.let_go().code, Some(0));
    until("the guardian is gone", || !lives(guardian));
}
