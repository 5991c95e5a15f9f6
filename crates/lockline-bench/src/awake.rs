//! Cores that do not sleep.
//!
//! A core that has nothing to do goes to sleep, and one of a virtual machine is given back to its host: it takes up to a tenth of a
//! millisecond to come back. Whoever asks a server and waits pays that several times for each round trip, and the longer the server
//! works, the more surely: then a row tells how the host sleeps. Kept awake, it tells what the work costs, as on a machine that has
//! other things to do.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

/// Where Linux is told how long a core may take to wake up; for as long as the file is open.
const LATENCY: &str = "/dev/cpu_dma_latency";

/// Until this is dropped, cores that have nothing to do look for work instead of sleeping.
#[derive(Debug)]
pub struct Awake(#[allow(dead_code, reason = "it is open, and that is what it is for")] File);

impl Awake {
    /// Asks for it.
    ///
    /// # Errors
    /// For users who may not: mostly everybody but root.
    pub fn start() -> Result<Awake> {
        Awake::at(Path::new(LATENCY))
    }

    fn at(path: &Path) -> Result<Awake> {
        let open = || -> std::io::Result<File> {
            let mut file = File::options().write(true).open(path)?;
            file.write_all(&0_i32.to_ne_bytes())?;
            Ok(file)
        };
        open().map(Awake).with_context(|| format!("{} cannot be written", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_for_no_latency_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("latency");
        assert!(Awake::at(&path).is_err(), "it is not made");
        std::fs::write(&path, "").unwrap();
        let awake = Awake::at(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [0; 4]);
        drop(awake);
    }
}
