//! Cores that do not sleep.
//!
//! A core of a virtual machine that has nothing to do is given back to its host, and takes up to a tenth of a millisecond to come
//! back. Whoever asks a server and waits pays that several times for each round trip, and the longer the server works, the more
//! surely: then a row tells how the host sleeps. With a loop on each core that runs only when nothing else does, it tells what the
//! work costs, as on a machine that has other things to do.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::{Signal, set_parent_process_death_signal};

/// The word that makes a process one of these loops.
pub const AWAKE: &str = "--awake-loop";

/// Loops that end with this.
#[derive(Debug)]
pub struct Awake(Vec<Child>);

impl Awake {
    /// Starts one for each core, in the scheduling class of those who get what nobody else wants.
    ///
    /// # Errors
    /// Without `chrt`, which is part of util-linux.
    pub fn start() -> Result<Awake> {
        let mut all = Awake(Vec::new());
        for _ in 0..std::thread::available_parallelism()?.get() {
            let mut idle = Command::new("chrt");
            idle.args(["--idle", "0"]).arg(std::env::current_exe()?).arg(AWAKE).stdin(Stdio::null());
            all.0.push(idle.spawn().context("chrt, which keeps the cores awake")?);
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        for one in &mut all.0 {
            ensure!(one.try_wait()?.is_none(), "chrt does not keep the cores awake");
        }
        Ok(all)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for one in &mut self.0 {
            let _ = one.kill();
            let _ = one.wait();
        }
    }
}

/// One loop. It ends with whoever started it.
///
/// # Errors
/// If it could not end with it.
pub fn stay_awake() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    loop {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_end_with_what_started_them() {
        let mut awake = Awake(vec![Command::new("sleep").arg("600").spawn().unwrap()]);
        let pid = awake.0[0].id();
        assert!(awake.0[0].try_wait().unwrap().is_none());
        drop(awake);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
