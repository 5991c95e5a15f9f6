//! A server whose clock is stepped by the tests behaves like one whose machine's clock was.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use lockline_testkit::stepped_clock::SteppedClock;

/// Otherwise every wait of a server whose clock was set back would be over at once, and it would do nothing but look.
#[test]
fn a_wait_lasts_as_long_by_a_clock_that_was_set_back() {
    let home = tempfile::tempdir().unwrap();
    let clock = SteppedClock::new(home.path()).unwrap();
    let (source, program) = (home.path().join("wait.c"), home.path().join("wait"));
    std::fs::write(&source, include_str!("wait.c")).unwrap();
    let built = Command::new("cc").arg("-o").args([&program, &source]).status().unwrap();
    assert!(built.success());
    for step_ms in [0, -100_000, 60_000] {
        clock.step(step_ms).unwrap();
        let output = clock.wound_up(&mut Command::new(&program)).output().unwrap();
        let waited: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        assert!(waited >= 990, "stepped by {step_ms} ms it waited for {waited} ms");
        assert!(waited < 30_000, "stepped by {step_ms} ms it waited for {waited} ms");
    }
}
