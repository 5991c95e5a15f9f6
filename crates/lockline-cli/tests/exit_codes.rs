//! Every exit code, and that a lock is let go whatever the code.

#![allow(clippy::unwrap_used)]

mod common;
use common::{Lab, assert_one_line, ended, kill, lives, until};

#[test]
fn the_commands_own_code_passes_through() {
    let lab = Lab::new();
    for code in [0, 1, 3, 64, 75, 79, 125, 255] {
        let said = lab.say(&["run", "x", "--", "sh", "-c", &format!("exit {code}")]);
        assert_eq!((said.code, said.err.as_str()), (Some(code), ""), "{said:?}");
    }
    assert_eq!(lab.counts("x"), (0, 0));
}

#[test]
fn a_signal_that_ends_the_command_is_128_and_its_number() {
    let lab = Lab::new();
    for (signal, number) in [("TERM", 15), ("KILL", 9), ("INT", 2), ("USR1", 10)] {
        let said = lab.say(&["run", "x", "--", "sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(said.code, Some(128 + number), "{said:?}");
    }
    assert_eq!(lab.counts("x"), (0, 0));
}

#[test]
fn a_command_that_cannot_be_run_is_126_or_127_and_lets_go() {
    let lab = Lab::new();
    for (program, code) in
        [("no-such-program", 127), ("/no/such/program", 127), ("/etc/passwd", 126), ("/", 126), ("", 127)]
    {
        let said = lab.say(&["run", "x", "--", program]);
        assert_eq!(said.code, Some(code), "{program}: {said:?}");
        assert_one_line(&said);
        assert_eq!(lab.counts("x"), (0, 0));
    }
}

#[test]
fn a_busy_lock_is_75_or_what_the_caller_wants() {
    let lab = Lab::new();
    let held = lab.hold_simply("x");
    for (flags, code) in [
        (&["-n"][..], 75),
        (&["--no-wait"], 75),
        (&["-w", "0"], 75),
        (&["-w", "0.05"], 75),
        (&["--wait", "50ms"], 75),
        (&["-n", "-E", "0"], 0),
        (&["-nE", "255"], 255),
        (&["-n", "--conflict-exit-code", "4"], 4),
        (&["-n", "-s"], 75),
        (&["-n", "--permits", "1/9"], 75),
    ] {
        let said = lab.say(&[&["run"], flags, &["x", "--", "echo", "no"]].concat());
        assert_eq!((said.code, said.out.as_str()), (Some(code), ""), "{flags:?} {said:?}");
        assert_one_line(&said);
        // The same flags after the name.
        let said = lab.say(&[&["run", "x"], flags, &["-q", "--", "echo", "no"]].concat());
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(code), "", ""), "{flags:?}");
    }
    assert_eq!(lab.counts("x"), (1, 0), "who gives up leaves the line");
    assert_eq!(held.let_go().code, Some(0));
}

#[test]
fn shared_holders_and_permits_fit_together() {
    let lab = Lab::new();
    let one = lab.hold(&["-s"], "x", "echo in; read _; exit 0");
    assert_eq!(lab.say(&["run", "-ns", "x", "--", "true"]).code, Some(0));
    assert_eq!(lab.say(&["run", "-nx", "x", "--", "true"]).code, Some(75));
    assert_eq!(lab.say(&["run", "-n", "-s", "-x", "x", "--", "true"]).code, Some(75), "the last one counts");
    one.let_go();
    let two = lab.hold(&["--permits", "2/3"], "p", "echo in; read _; exit 0");
    assert_eq!(lab.say(&["run", "-n", "--permits", "1/3", "p", "--", "true"]).code, Some(0));
    assert_eq!(lab.say(&["run", "-n", "--permits", "2/3", "p", "--", "true"]).code, Some(75));
    two.let_go();
}

#[test]
fn a_signal_while_waiting_leaves_the_line() {
    let lab = Lab::new();
    let held = lab.hold_simply("x");
    for (signal, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("QUIT", 3), ("USR2", 12)] {
        let waiter = lab.wait_in_line(&["run", "x", "--", "echo", "no"], "x");
        kill(signal, waiter.id().cast_signed());
        let said = ended(waiter);
        assert_eq!((said.code, said.out.as_str()), (Some(128 + number), ""), "{said:?}");
        assert_eq!(lab.counts("x"), (1, 0));
    }
    held.let_go();
}

#[test]
fn an_evicted_waiter_was_not_acquired() {
    let lab = Lab::new();
    let held = lab.hold_simply("x");
    for (flags, code) in [(&["run"][..], 75), (&["run", "-E", "9"], 9)] {
        let waiter = lab.wait_in_line(&[flags, &["x", "--", "true"]].concat(), "x");
        let ticket = lab.show("x")["waiters"][0]["ticket"].to_string();
        assert_eq!(lab.say(&["evict", "x", "--token", &ticket]).code, Some(0));
        let said = ended(waiter);
        assert_eq!(said.code, Some(code), "{said:?}");
        assert_one_line(&said);
    }
    held.let_go();
}

#[test]
fn an_engine_that_cannot_be_trusted_or_reached() {
    let lab = Lab::new();
    let foreign = lab.state.path().join("foreign");
    std::fs::write(&foreign, "this is no lock file, and long enough to be looked at ".repeat(40)).unwrap();
    let before = std::fs::read(&foreign).unwrap();
    let said = lab.say(&["run", "--on", &format!("sqlite:{}", foreign.display()), "x", "--", "true"]);
    assert_eq!(said.code, Some(78), "{said:?}");
    assert_one_line(&said);
    assert_eq!(std::fs::read(&foreign).unwrap(), before);
}

#[test]
fn a_wrapper_killed_while_waiting_leaves_nothing_for_long() {
    let lab = Lab::new();
    let held = lab.hold_simply("x");
    let waiter = lab.wait_in_line(&["run", "x", "--", "true"], "x");
    let pid = waiter.id().cast_signed();
    kill("KILL", pid);
    ended(waiter);
    assert!(!lives(pid));
    held.let_go();
    until("the line is empty", || lab.counts("x") == (0, 0));
}
