//! The door: connect to an engine, and ask it for locks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::builder::Builder;
use crate::driver::{DriverInfo, Guarantees, Query};
use crate::drivers::memory::Memory;
#[cfg(feature = "sqlite")]
use crate::drivers::sqlite::SqliteConfig;
use crate::error::Result;
use crate::hold::client::{Client, Departures};
use crate::line::{LineView, Shut, Ticket};
use crate::name::Name;
use crate::owner::Owner;
use crate::primitive::{All, Asking, Election, Mutex, RwLock, Semaphore};

/// Locks on one engine. Cheap to clone; all clones share one connection, one keeper and one set of claims.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockline::Result<()> {
/// use lockline::Locks;
/// let locks = Locks::connect("memory:").await?;
/// let guard = locks.mutex("orders/42").lock().await?;     // waits its turn
/// println!("token {}", guard.fence());                    // hand this to whatever the lock protects
/// guard.release().await?;
/// # Ok(()) }
/// ```
///
/// # Where its work runs
/// Renewal and background release run on the tokio runtime that made it. If that runtime is blocked for longer than a
/// lease, guards are lost, and say so. Programs without a runtime use [`blocking`](crate::blocking).
///
/// # After a fork
/// A client and its guards belong to the process that made them: in a forked child they are inert.
#[derive(Clone)]
pub struct Locks {
    client: Arc<Client>,
}

impl Locks {
    pub(crate) fn of(client: Arc<Client>) -> Locks {
        Locks { client }
    }

    /// Connects to the engine at an address, such as `sqlite:/var/lib/app/locks.db` or `memory:`. Every address takes the
    /// options `lease=` (see [`Builder::lease`]) and `prefix=` (see [`Builder::prefix`]).
    ///
    /// # Errors
    /// A bad address, an engine that cannot be reached or must not be trusted.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect(url: &str) -> Result<Locks> {
        Locks::builder().connect(url).await
    }

    /// Options first: [`Builder`].
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Locks within this process, on a fresh engine of their own.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn memory() -> Locks {
        Locks::builder().memory(&Memory::default()).expect("the defaults are valid")
    }

    /// Locks among the processes of this host, in a SQLite file.
    ///
    /// # Errors
    /// A file that cannot be used, or must not be.
    ///
    /// # Cancel safety
    /// Dropping the future leaves at most an empty lock file behind.
    #[cfg(feature = "sqlite")]
    pub async fn sqlite(path: impl Into<std::path::PathBuf>) -> Result<Locks> {
        Locks::builder().sqlite(SqliteConfig::new(path)).await
    }

    /// What the engine is.
    pub fn info(&self) -> &DriverInfo {
        self.client.driver.info()
    }

    /// What the engine can promise now: a row of the guarantees page. It is read from the engine's own settings, and says
    /// less within a lease of any lock of this client when an operator weakens them.
    pub fn guarantees(&self) -> Guarantees {
        self.client.driver.guarantees()
    }

    /// Whether nobody gets any lock yet although the engine is up: for a while after a restart, in which it may have forgotten
    /// holders, those who wait keep waiting, and whoever only tries is told so. As far as is known without asking the engine.
    pub fn shut(&self) -> Option<Shut> {
        self.client.driver.shut(None)
    }

    /// The same for one lock: an engine of several parts may be shut in part.
    ///
    /// # Errors
    /// A bad name.
    pub fn shut_for(&self, name: &str) -> Result<Option<Shut>> {
        Ok(self.client.driver.shut(Some(&self.engine_name(name)?)))
    }

    pub(crate) fn departures(&self) -> Arc<Departures> {
        self.client.departures.clone()
    }

    fn asking(&self) -> Asking {
        Asking::anonymous(&self.client)
    }

    /// A lock with one holder at a time.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(self.asking(), name.as_ref())
    }

    /// A lock for many readers or one writer.
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.asking(), name.as_ref())
    }

    /// `limit` permits.
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Semaphore {
        Semaphore::new(self.asking(), name.as_ref(), limit)
    }

    /// Several mutexes at once, all or nothing.
    pub fn all(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> All {
        All::new(self.asking(), names)
    }

    /// One leader among many candidates.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.asking(), name.as_ref())
    }

    /// Somebody in this process whose locks are reentrant. Each call makes another owner, also for the same label.
    pub fn owner(&self, label: impl AsRef<str>) -> Owner {
        Owner::new(self.client.clone(), label.as_ref(), None)
    }

    /// An owner that several processes share: whoever says the same identity enters the locks that any of them holds.
    ///
    /// The processes must trust each other: anyone who knows the identity shares the hold.
    pub fn shared_owner(&self, label: impl AsRef<str>, identity: impl AsRef<str>) -> Owner {
        Owner::new(self.client.clone(), label.as_ref(), Some(identity.as_ref()))
    }

    /// All locks whose names start with `prefix` and that somebody holds or waits for, sorted by name.
    ///
    /// # Errors
    /// When the engine cannot be asked.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn view(&self, prefix: &str) -> Result<Vec<LineView>> {
        let space = &self.client.settings.prefix;
        let mut lines = self.look(&Query::Prefix(format!("{space}{prefix}"))).await?;
        for line in &mut lines {
            if let Some(name) = line.name.as_str().strip_prefix(space.as_str()) {
                line.name = Name::new(name)?;
            }
        }
        lines.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(lines)
    }

    /// One lock: its holders and waiters. A free one has neither.
    ///
    /// # Errors
    /// A bad name, or when the engine cannot be asked.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn show(&self, name: &str) -> Result<LineView> {
        let asked = self.engine_name(name)?;
        let found = self.look(&Query::Name(asked.clone())).await.map_err(|e| e.about(&asked))?;
        let line = found.into_iter().next().unwrap_or_else(|| {
            let shut = self.client.driver.shut(Some(&asked));
            LineView { shut, ..LineView::free(asked) }
        });
        Ok(LineView { name: Name::new(name)?, ..line })
    }

    async fn look(&self, query: &Query) -> Result<Vec<LineView>> {
        self.client.check_open("view")?;
        let mut lines = self.client.ask("view", self.client.driver.view(query)).await?;
        for line in &mut lines {
            line.shut = self.client.driver.shut(Some(&line.name));
        }
        Ok(lines)
    }

    /// Shows out the claim that has this ticket, if it is still there; answers whether it was.
    ///
    /// A claim that waits is dropped. A holder can no longer renew and is told that it lost the lock, but its place
    /// stands until its lease ends, so that the next holder does not overlap with it. With `at_once` it is dropped now,
    /// and **only the fencing token protects** what it is working on.
    ///
    /// # Errors
    /// A bad name, or when the engine cannot be told; evicting again is safe.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the claim was evicted.
    pub async fn evict(&self, name: &str, ticket: Ticket, at_once: bool) -> Result<bool> {
        self.client.check_open("evict")?;
        let name = self.engine_name(name)?;
        let verb = self.client.driver.evict(&name, ticket, at_once);
        let evicted = self.client.ask("evict", verb).await.map_err(|e| e.about(&name))?;
        // The audit trail: who evicted whom is worth more than a debug line.
        tracing::warn!(lock = %name, %ticket, at_once, evicted, by = %self.client.settings.who.owner, "evict");
        Ok(evicted)
    }

    fn engine_name(&self, name: &str) -> Result<Name> {
        Name::prefixed(&self.client.settings.prefix, name)
    }

    /// Gives up everything this client holds or waits for, and waits until the engine knows, at most for `within`.
    ///
    /// Afterwards the client and all its clones refuse to lock, and its guards are lost. Call it before the process ends:
    /// a process that just exits leaves its places to their leases.
    ///
    /// In a service: stop accepting requests, finish those that were accepted, end the tasks that wait for locks, then call this.
    /// Guards that were dropped before have left when it returns.
    ///
    /// A lock that is being asked for is waited for until the engine has answered. So drop what you no longer poll before.
    ///
    /// # Errors
    /// [`ErrorKind::Unknown`](crate::ErrorKind::Unknown) if not everything had left in time; the leases do the rest.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop it: everything goes on leaving in the background.
    pub async fn shutdown(&self, within: Duration) -> Result<()> {
        self.client.shutdown(within).await
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("engine", &self.info().address).finish_non_exhaustive()
    }
}

impl Owner {
    /// A lock with one holder at a time, reentrant for this owner.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(Asking::by(self), name.as_ref())
    }

    /// A lock for many readers or one writer, reentrant for this owner.
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(Asking::by(self), name.as_ref())
    }

    /// `limit` permits. An owner that holds some cannot take more before it gave them back: it could deadlock.
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Semaphore {
        Semaphore::new(Asking::by(self), name.as_ref(), limit)
    }

    /// Several mutexes at once, reentrant for this owner.
    pub fn all(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> All {
        All::new(Asking::by(self), names)
    }
}
