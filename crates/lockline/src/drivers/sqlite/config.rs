//! Where the file is, and how to treat it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::line::Now;
use crate::time::{BootClock, wall_micros};

/// Where the file is, and how to treat it.
///
/// ```
/// # use lockline::drivers::sqlite::SqliteConfig;
/// let config = SqliteConfig::new("/var/lib/app/locks.db").create_dir(true);
/// ```
#[derive(Clone, Debug)]
pub struct SqliteConfig {
    pub(super) path: PathBuf,
    pub(super) create_dir: bool,
    pub(super) allow_unproven_file_system: bool,
    pub(super) busy_timeout: Duration,
    pub(super) late_thread: bool,
    pub(super) any_owner: bool,
    /// The path is the user's own, which nobody has named.
    pub(super) is_of_user: bool,
    pub(super) clock: Clock,
}

impl SqliteConfig {
    /// Locks in the file at this path. It is made, readable by its user only, if it does not exist; its directory must.
    pub fn new(path: impl Into<PathBuf>) -> SqliteConfig {
        SqliteConfig {
            path: path.into(),
            create_dir: false,
            allow_unproven_file_system: false,
            busy_timeout: Duration::from_secs(5),
            late_thread: false,
            any_owner: false,
            is_of_user: false,
            clock: Clock::real(),
        }
    }

    /// Where the file is, or will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file's directory, with those above it, for this user only (mode 0700) if it is missing.
    ///
    /// Default: `false`, because a directory that is missing is usually a misspelt one, and two processes with two
    /// spellings would hold two locks.
    #[must_use]
    pub fn create_dir(mut self, create: bool) -> SqliteConfig {
        self.create_dir = create;
        self
    }

    /// Accepts FUSE and 9p file systems. Only for one that is known to give all its users on this host working POSIX
    /// locks and one shared memory mapping. Network file systems are refused whatever this says.
    ///
    /// Default: `false`, because most of them do not, and then two holders are told that they are alone.
    #[must_use]
    pub fn allow_unproven_file_system(mut self, allow: bool) -> SqliteConfig {
        self.allow_unproven_file_system = allow;
        self
    }

    /// How long one transaction waits for the others on the file before it gives up with
    /// [`Unavailable`](crate::ErrorKind::Unavailable).
    ///
    /// Default: 5 s. A transaction takes well under a millisecond, so only a process that was stopped inside one makes
    /// anybody wait this long; callers with short leases have given up before.
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> SqliteConfig {
        self.busy_timeout = timeout;
        self
    }

    /// Serves the file on the calling thread until somebody has to wait or the program has lived for 50 ms, and only
    /// then on a thread of its own. For a command that takes one lock, does a little and ends: starting a thread and
    /// changing between the two costs it more than its transactions.
    ///
    /// Default: `false`, because whoever shares its runtime with others must not hold it up for a disk.
    #[must_use]
    pub fn late_thread(mut self, late: bool) -> SqliteConfig {
        self.late_thread = late;
        self
    }

    /// Lets root use a file that belongs to another user. Whoever may write the file can hold up, end and forge every lock in
    /// it; a file that somebody put into a shared directory in advance looks as any other. For ordinary users nothing is asked.
    ///
    /// Default: `false`, because root usually guards what that user must not touch.
    #[must_use]
    pub fn any_owner(mut self, any: bool) -> SqliteConfig {
        self.any_owner = any;
        self
    }

    #[cfg(test)]
    pub(super) fn clock(mut self, clock: impl Fn() -> Now + Send + Sync + 'static) -> SqliteConfig {
        self.clock = Clock(Arc::new(clock));
        self
    }
}

/// Reads the moment of a transaction. A test puts its own in.
#[derive(Clone)]
pub(super) struct Clock(Arc<dyn Fn() -> Now + Send + Sync>);

impl Clock {
    fn real() -> Clock {
        Clock(Arc::new(|| Now { at: BootClock.now(), ticket_us: wall_micros() }))
    }

    pub(super) fn now(&self) -> Now {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
