//! What a driver's test file provides: a fresh engine per test, and the ways to reach it.

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod shared_tables;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use lockline::driver::{Bells, Driver};

#[cfg(feature = "etcd")]
pub use self::etcd::etcd;
#[cfg(feature = "mysql")]
pub use self::mysql::mysql;
#[cfg(feature = "postgres")]
pub use self::postgres::postgres;
#[cfg(feature = "redis")]
pub use self::redis::{redis, redis_kind, redis_layout, redlock, redlock_layout};
#[cfg(feature = "mysql")]
pub use self::shared_tables::mysql_layout;
#[cfg(feature = "postgres")]
pub use self::shared_tables::postgres_layout;
#[cfg(feature = "zookeeper")]
pub use self::zookeeper::zookeeper;

/// A future that some engine's code will finish.
pub type Soon<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

type Open = Box<dyn Fn(Bells) -> Soon<'static, lockline::Result<Arc<dyn Driver>>> + Send + Sync>;

type SitOn = Box<dyn Fn(Vec<String>) -> Soon<'static, Box<dyn Any + Send>> + Send + Sync>;

/// One engine, fresh and empty, for one test. Whoever opens its [`url`](Engine::url) means the same locks.
///
/// An engine on a shared server makes itself fresh by a random name space of its driver in its address. The client's
/// `prefix=` is none: bare drivers do not know it, and tests set their own.
pub struct Engine {
    name: &'static str,
    url: String,
    open: Open,
    sees_dead_processes: bool,
    counts_permits: bool,
    forget: Option<Box<dyn Fn() + Send + Sync>>,
    sit_on: Option<SitOn>,
    /// A temporary directory, a server that is stopped when it is dropped: what must live as long as the test.
    _keep: Box<dyn Any + Send + Sync>,
}

impl Engine {
    /// An engine at `url`; `open` makes a bare driver on it, for tests that put faults in between.
    pub fn new<F, Opening>(name: &'static str, url: impl Into<String>, open: F) -> Engine
    where
        F: Fn(Bells) -> Opening + Send + Sync + 'static,
        Opening: Future<Output = lockline::Result<Arc<dyn Driver>>> + Send + 'static,
    {
        Engine {
            name,
            url: url.into(),
            open: Box::new(move |bells| Box::pin(open(bells))),
            sees_dead_processes: false,
            counts_permits: true,
            forget: None,
            sit_on: None,
            _keep: Box::new(()),
        }
    }

    /// The engine notices at once that a process is gone, and does not wait for its leases.
    #[must_use]
    pub fn sees_dead_processes(mut self) -> Engine {
        self.sees_dead_processes = true;
        self
    }

    /// The engine cannot count permits: it must refuse them, which is tested instead.
    #[must_use]
    pub fn without_permits(mut self) -> Engine {
        self.counts_permits = false;
        self
    }

    /// How to make the engine lose every claim behind everybody's back. An engine that cannot is tested with a wrapper
    /// that takes the claims away one by one.
    #[must_use]
    pub fn forgets(mut self, forget: impl Fn() + Send + Sync + 'static) -> Engine {
        self.forget = Some(Box::new(forget));
        self
    }

    /// How a session of somebody else sits on the rows of locks, in a transaction that ends when what is given back is dropped.
    #[must_use]
    pub fn sits_on<F, Sitting>(mut self, sit: F) -> Engine
    where
        F: Fn(Vec<String>) -> Sitting + Send + Sync + 'static,
        Sitting: Future<Output = Box<dyn Any + Send>> + Send + 'static,
    {
        self.sit_on = Some(Box::new(move |names| Box::pin(sit(names))));
        self
    }

    /// Keeps something alive for as long as the engine.
    #[must_use]
    pub fn keeps(mut self, keep: impl Any + Send + Sync) -> Engine {
        self._keep = Box::new(keep);
        self
    }

    /// The driver's short name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The address that clients and child processes connect to.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether the end of a process is noticed before its leases end.
    pub fn notices_dead_processes(&self) -> bool {
        self.sees_dead_processes
    }

    /// Whether it has semaphores.
    pub fn counts_permits(&self) -> bool {
        self.counts_permits
    }

    /// Makes the engine forget every claim; `false` if it cannot be made to.
    pub fn forget(&self) -> bool {
        self.forget.as_ref().inspect(|forget| forget()).is_some()
    }

    /// Has a session of somebody else sit on the rows of these locks, which must exist, until what is given back is dropped.
    ///
    /// # Panics
    /// If the locks of this engine are no rows.
    pub async fn sit_on(&self, names: Vec<String>) -> Box<dyn Any + Send> {
        let sit = self.sit_on.as_ref().expect("the locks of this engine are rows");
        sit(names).await
    }

    /// A bare driver on the engine.
    ///
    /// # Errors
    /// What the driver fails with.
    pub async fn open(&self, bells: Bells) -> lockline::Result<Arc<dyn Driver>> {
        (self.open)(bells).await
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("name", &self.name).field("url", &self.url).finish_non_exhaustive()
    }
}

/// The engine in this process.
pub fn memory() -> Engine {
    use lockline::drivers::memory::{Memory, MemoryDriver};
    let name = format!("test-{:x}", fastrand::u64(..));
    let memory = Memory::named(&name);
    let (to_open, to_forget) = (memory.clone(), memory);
    let open = move |bells| {
        let driver: Arc<dyn Driver> = Arc::new(MemoryDriver::new(to_open.clone(), bells));
        std::future::ready(Ok(driver))
    };
    Engine::new("memory", format!("memory:{name}"), open).forgets(move || to_forget.forget())
}

/// The embedded engine, in a directory of its own.
///
/// # Panics
/// If there is no place for a temporary file.
#[cfg(feature = "sqlite")]
pub fn sqlite() -> Engine {
    use lockline::drivers::sqlite::{Sqlite, SqliteConfig};
    let dir = in_memory_if_possible().expect("a temporary directory");
    let path = dir.path().join("locks.db");
    let (to_open, to_forget) = (path.clone(), path.clone());
    let open = move |bells| {
        let config = SqliteConfig::new(to_open.clone());
        async move { Ok(Arc::new(Sqlite::open(config, bells).await?) as Arc<dyn Driver>) }
    };
    let forget = move || {
        let file = rusqlite::Connection::open(&to_forget).expect("the lock file opens");
        file.busy_timeout(std::time::Duration::from_secs(10)).expect("a busy timeout");
        file.execute("DELETE FROM claims", []).expect("the claims are deleted");
    };
    Engine::new("sqlite", format!("sqlite:{}", path.display()), open)
        .sees_dead_processes()
        .forgets(forget)
        .keeps(dir)
}

/// A directory whose files need no disk, where there is one. SQLite syncs now and then while it keeps others off the file;
/// on a disk that somebody else is busy with, that takes longer than the short leases of these tests. The driver's own
/// tests, the torture and the bench run on the disk.
#[cfg(feature = "sqlite")]
fn in_memory_if_possible() -> std::io::Result<tempfile::TempDir> {
    let shared_memory = std::path::Path::new("/dev/shm");
    if shared_memory.is_dir() { tempfile::tempdir_in(shared_memory) } else { tempfile::tempdir() }
}

/// The address of a server of this run.
#[cfg(any(
    feature = "redis",
    feature = "zookeeper",
    feature = "etcd",
    feature = "postgres",
    feature = "mysql"
))]
fn server_of(name: &str) -> String {
    crate::engines::required_url(name)
        .unwrap_or_else(|| panic!("{} names no {name}", crate::engines::VARIABLE))
}

/// An address with one more option, or several.
#[cfg(any(feature = "redis", feature = "etcd", feature = "postgres"))]
fn with_option(server: &str, option: &str) -> String {
    format!("{server}{}{option}", if server.contains('?') { '&' } else { '?' })
}

/// Runs something to its end on a thread of its own: whoever asks may be inside a runtime.
#[cfg(any(feature = "zookeeper", feature = "postgres", feature = "mysql"))]
fn on_a_thread<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(work)
    });
    thread.join().expect("it does not panic")
}
