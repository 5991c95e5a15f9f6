//! The file behind the locks: seen from a container, by a second name, and after it was removed.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Instant;

use common::{Lab, said, started_by};

#[test]
fn a_container_with_a_boot_id_of_its_own_sees_the_locks_and_ends_none() {
    let lab = Lab::new();
    let held = lab.hold_simply("x");
    let id = lab.state.path().join("boot_id");
    std::fs::write(&id, "01234567-89ab-cdef-0123-456789abcdef\n").unwrap();
    let mount = r#"mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@""#;
    let inside = |args: &[&str]| {
        let container = ["--mount", "sh", "-c", mount, id.to_str().unwrap()];
        said(started_by("unshare", &container, &lab.bare_command(args)).output().unwrap())
    };
    let listed = inside(&["ls", "--json"]);
    assert_eq!(listed.code, Some(0), "this test needs root to mount a boot id: {listed:?}");
    let listed: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
    assert_eq!(listed["locks"][0]["holders"].as_array().map(Vec::len), Some(1), "{listed}");
    let tried = inside(&["run", "-n", "x", "--", "echo", "two holders"]);
    assert_eq!((tried.code, tried.out.as_str()), (Some(75), ""), "{tried:?}");
    assert_eq!(lab.counts("x"), (1, 0));
    assert_eq!(held.let_go().code, Some(0));
}

#[test]
fn a_second_name_of_the_file_is_refused() {
    let lab = Lab::new();
    let held = lab.hold_simply("x");
    let second = lab.state.path().join("second.db");
    std::fs::hard_link(lab.file(), &second).unwrap();
    let url = format!("sqlite:{}", second.display());
    let tried = lab.say(&["run", "-n", "--on", &url, "x", "--", "echo", "two holders"]);
    assert_eq!((tried.code, tried.out.as_str()), (Some(78), ""), "{tried:?}");
    assert!(tried.err.contains("hard link") && tried.err.contains("hint: use one path"), "{tried:?}");
    assert_eq!(held.let_go().code, Some(0));
}

#[test]
fn a_command_whose_file_was_removed_is_told_before_its_lease_ends() {
    let lab = Lab::new();
    let lease = std::time::Duration::from_secs(30);
    let held = lab.hold(&["--lease", "30s"], "x", "echo in; exec sleep 60");
    let removed = Instant::now();
    std::fs::remove_file(lab.file()).unwrap();
    let said = held.end();
    assert!(removed.elapsed() < lease, "{:?}", removed.elapsed());
    assert_eq!(said.code, Some(79), "{said:?}");
    assert!(said.err.contains("the engine forgot it"), "{said:?}");
}
