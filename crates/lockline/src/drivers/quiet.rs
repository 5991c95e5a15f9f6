//! Which locks this client last found without anybody else: for those a short request is tried first that does nothing but
//! take a free lock, or give back one that nobody waits for. Wrong guesses cost a round trip and nothing else.

use std::fmt;
#[cfg(feature = "etcd")]
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many are remembered; a power of two.
const LINES: usize = 1024;

/// A table without locks and of a fixed size: a line that comes later takes the place of another one.
pub(super) struct QuietLines {
    lines: Box<[AtomicU64]>,
    /// Every guess is tried: whatever comes of it must be what the line does.
    #[cfg(test)]
    guesses: std::sync::atomic::AtomicBool,
}

impl QuietLines {
    pub(super) fn new() -> QuietLines {
        QuietLines {
            lines: (0..LINES).map(|_| AtomicU64::new(0)).collect(),
            #[cfg(test)]
            guesses: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// From now on all lines are taken for quiet.
    #[cfg(test)]
    pub(super) fn guess(&self) {
        self.guesses.store(true, Relaxed);
    }

    /// What a line is known as where its name is not hashed otherwise.
    #[cfg(feature = "etcd")]
    pub(super) fn key(name: &crate::name::Name) -> u128 {
        let hash = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(name);
        (u128::from(hash) << 64) | u128::from(hash)
    }

    /// Where a line is remembered, and as what. Its key is a hash, so any part of it will do.
    fn entry(&self, line: u128) -> (&AtomicU64, u64) {
        let (high, low) = ((line >> 64) as u64, line as u64);
        (&self.lines[low as usize % LINES], high)
    }

    pub(super) fn has(&self, line: u128) -> bool {
        #[cfg(test)]
        if self.guesses.load(Relaxed) {
            return true;
        }
        let (entry, key) = self.entry(line);
        entry.load(Relaxed) == key
    }

    /// Notes whether somebody else stands there.
    pub(super) fn note(&self, line: u128, is_quiet: bool) {
        let (entry, key) = self.entry(line);
        if is_quiet {
            entry.store(key, Relaxed);
        } else {
            // What another line has written there meanwhile is not ours to remove.
            let _ = entry.compare_exchange(key, 0, Relaxed, Relaxed);
        }
    }
}

impl fmt::Debug for QuietLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuietLines").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_remembered_until_somebody_comes_or_another_line_takes_its_place() {
        let quiet = QuietLines::new();
        let line = |high: u128, low: u128| (high << 64) | low;
        quiet.note(line(1, 5), true);
        assert!(quiet.has(line(1, 5)));
        assert!(!quiet.has(line(2, 5)) && !quiet.has(line(1, 6)));
        quiet.note(line(2, 5), false);
        assert!(quiet.has(line(1, 5)));
        quiet.note(line(2, 5), true);
        assert!(quiet.has(line(2, 5)) && !quiet.has(line(1, 5)));
        quiet.note(line(2, 5), false);
        assert!(!quiet.has(line(2, 5)));
    }
}
