//! A server whose wall clock a test steps while it runs.
//!
//! Nothing but the standard library, because the drivers' own tests take this file along.

use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is added to the wall clock of those who were started with it.
#[derive(Debug)]
pub struct SteppedClock {
    library: PathBuf,
    step: PathBuf,
}

impl SteppedClock {
    /// Builds it in a folder, with the compiler that Rust links with.
    ///
    /// # Errors
    /// If there is no C compiler, or the folder cannot be written to.
    pub fn new(home: &Path) -> Result<SteppedClock> {
        let clock =
            SteppedClock { library: home.join("stepped_clock.so"), step: home.join("stepped_clock.ms") };
        let source = home.join("stepped_clock.c");
        std::fs::write(&source, include_str!("stepped_clock.c"))?;
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .arg(&clock.library)
            .arg(&source)
            .output()?;
        if !built.status.success() {
            return Err(Error::other(String::from_utf8_lossy(&built.stderr).into_owned()));
        }
        clock.step(0)?;
        Ok(clock)
    }

    /// Steps the clock of all who run with it to so many milliseconds from the right time.
    ///
    /// # Errors
    /// If the folder is gone.
    pub fn step(&self, from_now_ms: i64) -> Result<()> {
        use std::os::unix::fs::FileExt;
        // Written in place: they have mapped it.
        let file = std::fs::File::options().create(true).truncate(false).write(true).open(&self.step)?;
        file.write_all_at(&from_now_ms.to_ne_bytes(), 0)
    }

    /// Has a program that is about to be started run with it.
    pub fn wound_up<'a>(&self, program: &'a mut Command) -> &'a mut Command {
        program.env("LD_PRELOAD", &self.library).env("LOCKLINE_STEPPED_CLOCK", &self.step)
    }
}
