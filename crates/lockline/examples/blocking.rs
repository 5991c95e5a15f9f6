//! The same without an async runtime.

#![allow(clippy::print_stdout)] // An example talks.

use lockline::blocking::Locks;
use std::time::Duration;

fn main() -> lockline::Result<()> {
    let locks = Locks::connect("memory:")?;
    let guard = locks.mutex("nightly").max_hold(Duration::from_secs(600)).lock()?;
    for step in 1..=3 {
        guard.check()?; // stop if the lock was lost
        println!("step {step} under token {}", guard.fence());
    }
    guard.release()
}
