//! Many commands at once on a file that none of them has seen before: each must run its job.

#![allow(clippy::unwrap_used)]

mod common;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Lab, said, started_by};

const PROCESSES: usize = 8;
const ROUNDS: usize = 12;

/// Keeps the machine so busy, for as long as it lives, that a process is now and then not run for 100 ms.
struct Load(std::sync::Arc<AtomicBool>);

impl Load {
    fn new() -> Load {
        let over = std::sync::Arc::new(AtomicBool::new(false));
        for _ in 0..24 {
            let over = over.clone();
            std::thread::spawn(move || while !over.load(Ordering::Relaxed) {});
        }
        Load(over)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Starts all, then waits for all: each job says that it ran.
fn all_run_their_jobs(round: usize, start: impl Fn(&[&str]) -> Command) {
    let jobs: Vec<Child> = (0..PROCESSES)
        .map(|_| {
            let mut job = start(&["run", "--wait", "60s", "x", "--", "echo", "ran"]);
            job.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for job in jobs {
        let said = said(job.wait_with_output().unwrap());
        assert_eq!((said.code, said.out.as_str()), (Some(0), "ran\n"), "round {round}: {said:?}");
    }
}

#[test]
fn a_new_file_is_made_by_many_at_once_under_load() {
    let _load = Load::new();
    for round in 0..ROUNDS {
        let lab = Lab::new();
        all_run_their_jobs(round, |args| lab.command(args));
    }
}

#[test]
fn a_file_of_another_boot_is_taken_over_by_many_at_once_under_load() {
    let _load = Load::new();
    let lab = Lab::new();
    assert_eq!(lab.say(&["run", "x", "--", "true"]).code, Some(0));
    let id = lab.state.path().join("boot_id");
    let mount = r#"mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@""#;
    let container = ["--mount", "sh", "-c", mount, id.to_str().unwrap()];
    for round in 0..ROUNDS {
        // Each round has a boot id that the file has not seen. To mount one needs root: without it nothing runs, and this fails.
        std::fs::write(&id, format!("01234567-89ab-cdef-0123-{round:012}\n")).unwrap();
        all_run_their_jobs(round, |args| started_by("unshare", &container, &lab.bare_command(args)));
    }
}
