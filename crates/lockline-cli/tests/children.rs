//! What the command leaves running in its group when it has ended.

#![allow(clippy::unwrap_used)]

mod common;
use common::{Lab, Log, ended, kill, lives, until};
use std::time::{Duration, Instant};

/// A background job that writes into the log when it is told to end, and when it does so by itself.
fn background(lab: &Lab, log: &Log, then: &str) -> String {
    let go = lab.state.path().join("go");
    let (go, log) = (go.display(), log.0.display());
    format!(
        "sh -c \"trap 'echo asked >> {log}; exit' TERM; while ! test -e '{go}'; do sleep 0.02; done; echo late >> {log}\" \
         >/dev/null 2>&1 & echo $!; {then}"
    )
}

#[test]
fn a_background_job_keeps_the_lock_until_it_has_ended() {
    let lab = Lab::new();
    let log = Log::new(&lab);
    let held = lab.hold(&[], "x", &background(&lab, &log, "exit 3"));
    let waiter = lab.wait_in_line(&["run", "x", "--", "sh", "-c", &log.next()], "x");
    // Longer than it takes until something is said.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(lab.counts("x"), (1, 1));
    std::fs::write(lab.state.path().join("go"), "").unwrap();
    let said = held.end();
    assert_eq!(said.code, Some(3), "the command's own code: {said:?}");
    assert!(
        said.err.starts_with("lockline: the command has ended; waiting for what it left running: pid "),
        "{said:?}"
    );
    assert!(said.err.contains("\nhint: --children "), "{said:?}");
    assert_eq!(ended(waiter).code, Some(0));
    assert_eq!(log.text(), "late\nnext\nout\n");
}

#[test]
fn a_background_job_is_stopped_if_asked_for() {
    let lab = Lab::new();
    let log = Log::new(&lab);
    let held = lab.hold(&["--children", "stop"], "x", &background(&lab, &log, "exit 3"));
    let job: i32 = held.first.parse().unwrap();
    let said = held.end();
    assert_eq!((said.code, said.err.as_str()), (Some(3), ""), "{said:?}");
    assert!(!lives(job));
    assert_eq!(lab.counts("x"), (0, 0));
    // One that does not listen is killed after the grace.
    let script = "sh -c \"trap '' TERM; echo deaf; while :; do sleep 0.05; done\" & read _; exit 3";
    let held = lab.hold(&["--children", "stop", "--grace", "200ms"], "x", script);
    let began = Instant::now();
    assert_eq!(held.let_go().code, Some(3));
    assert!(began.elapsed() >= Duration::from_millis(200));
}

#[test]
fn a_background_job_is_left_alone_if_asked_for() {
    let lab = Lab::new();
    let log = Log::new(&lab);
    let held = lab.hold(&["--children", "leave"], "x", &background(&lab, &log, "read _; exit 3"));
    let job: i32 = held.first.parse().unwrap();
    let guardian = common::guardian_of(held.pid());
    assert_eq!(held.let_go().code, Some(3));
    until("the guardian is gone", || !lives(guardian));
    assert_eq!(lab.counts("x"), (0, 0));
    assert!(lives(job), "and neither the guardian nor the kernel ends it");
    std::fs::write(lab.state.path().join("go"), "").unwrap();
    until("it ends by itself", || log.text() == "late\n");
}

#[test]
fn a_daemon_with_a_session_of_its_own_is_not_waited_for() {
    let lab = Lab::new();
    let held = lab.hold(&[], "x", "setsid sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1' & read _; exit 0");
    let daemon: i32 = held.first.parse().unwrap();
    assert_eq!(held.let_go().code, Some(0));
    assert!(lives(daemon));
    kill("KILL", daemon);
}

#[test]
fn a_signal_ends_the_waiting_and_what_is_waited_for() {
    let lab = Lab::new();
    let log = Log::new(&lab);
    for (signal, number) in [("TERM", 15), ("INT", 2)] {
        let _ = std::fs::remove_file(&log.0);
        let held = lab.hold(&["-q"], "x", &background(&lab, &log, "exit 0"));
        let job: i32 = held.first.parse().unwrap();
        let guardian = common::guardian_of(held.pid());
        // The command itself is gone: the wrapper has only its guardian.
        let path = format!("/proc/{0}/task/{0}/children", held.pid());
        until("the command has ended", || {
            std::fs::read_to_string(&path).unwrap().trim() == guardian.to_string()
        });
        kill(signal, held.pid());
        let said = held.end();
        assert_eq!((said.code, said.err.as_str()), (Some(128 + number), ""), "{said:?}");
        assert!(!lives(job));
        assert_eq!(log.text(), "asked\n");
    }
}

#[test]
fn a_lock_lost_while_a_background_job_is_waited_for_ends_the_job() {
    let lab = Lab::new();
    let log = Log::new(&lab);
    let held = lab.hold(&[], "x", &background(&lab, &log, "exit 0"));
    let job: i32 = held.first.parse().unwrap();
    let token = lab.show("x")["holders"][0]["token"].to_string();
    lab.say(&["evict", "x", "--token", &token]);
    let said = held.end();
    assert_eq!(said.code, Some(79), "{said:?}");
    assert!(!lives(job));
}

#[test]
fn a_wrapper_killed_while_it_waits_for_a_background_job_takes_it_along() {
    let lab = Lab::new();
    let log = Log::new(&lab);
    let held = lab.hold(&[], "x", &format!("{} work & echo in; exit 0", log.worker()));
    kill("KILL", held.pid());
    assert_eq!(lab.say(&["run", "x", "--", "sh", "-c", &log.next()]).code, Some(0));
    log.assert_nobody_worked_beside_the_next();
}
