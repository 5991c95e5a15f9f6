//! The door: connect to an engine, and ask it for locks.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::{Bells, Driver, DriverInfo, Guarantees, Query};
#[cfg(feature = "etcd")]
use crate::drivers::etcd::{Etcd, EtcdConfig};
use crate::drivers::memory::{Memory, MemoryDriver};
#[cfg(feature = "mysql")]
use crate::drivers::mysql::{Mysql, MysqlConfig};
#[cfg(feature = "postgres")]
use crate::drivers::postgres::{Postgres, PostgresConfig};
#[cfg(feature = "redis")]
use crate::drivers::redis::{Redis, RedisConfig};
#[cfg(feature = "redis")]
use crate::drivers::redlock::{Redlock, RedlockConfig};
#[cfg(feature = "sqlite")]
use crate::drivers::sqlite::{Sqlite, SqliteConfig};
#[cfg(feature = "zookeeper")]
use crate::drivers::zookeeper::{Zookeeper, ZookeeperConfig};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::bells::Board;
use crate::hold::client::{Client, Departures, Settings};
use crate::line::{LineView, Ticket, Who};
use crate::name::Name;
use crate::owner::{Owner, check_label};
use crate::primitive::{All, Asking, Election, Mutex, RwLock, Semaphore, check_lease};
use crate::time::Clock;
use crate::url::EngineUrl;

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

    /// What the engine is, and what it can promise.
    pub fn info(&self) -> &DriverInfo {
        self.client.driver.info()
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
        let line = found.into_iter().next().unwrap_or_else(|| LineView::free(asked));
        Ok(LineView { name: Name::new(name)?, ..line })
    }

    async fn look(&self, query: &Query) -> Result<Vec<LineView>> {
        self.client.check_open("view")?;
        self.client.ask("view", self.client.driver.view(query)).await
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
    /// # Errors
    /// [`ErrorKind::Unknown`] if not everything had left in time; the leases do the rest.
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

/// What stands between a client and its driver.
#[derive(Clone)]
struct Layer(Arc<Wrap>);

type Wrap = dyn Fn(Arc<dyn Driver>) -> Arc<dyn Driver> + Send + Sync;

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Layer")
    }
}

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Builder {
    lease: Duration,
    prefix: String,
    owner: Option<String>,
    most_claims: usize,
    demanded: Option<Guarantees>,
    layer: Option<Layer>,
    clock: Clock,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            lease: Duration::from_secs(10),
            prefix: String::new(),
            owner: None,
            most_claims: 100_000,
            demanded: None,
            layer: None,
            clock: Clock::Boot,
        }
    }
}

impl Builder {
    #[cfg(test)]
    pub(crate) fn on_clock(clock: Clock) -> Builder {
        Builder { clock, ..Builder::default() }
    }

    /// How long a place lives without being renewed, unless a lock says otherwise. From 100 ms to 24 h.
    ///
    /// Default: 10 s, renewed at a third of it: see [`Mutex::lease`](crate::Mutex::lease).
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Builder {
        self.lease = lease;
        self
    }

    /// A text put before every name: a name space for one application or one environment on a shared engine.
    ///
    /// Default: none, so that everybody who uses the same name on the same engine means the same lock.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Builder {
        self.prefix = prefix.into();
        self
    }

    /// The label under which operators see this client's claims, at most 256 bytes.
    ///
    /// Default: the program's name; host and process are shown beside it anyway.
    #[must_use]
    pub fn owner(mut self, label: impl Into<String>) -> Builder {
        self.owner = Some(label.into());
        self
    }

    /// How many claims, held and waiting, this client may have at once.
    ///
    /// Default: 100 000, far above what is sensible, so that a leak ends in an error and not in an engine out of memory.
    #[must_use]
    pub fn most_claims(mut self, most: usize) -> Builder {
        self.most_claims = most;
        self
    }

    /// Demands a row of the guarantees page: connecting to an engine that promises less fails.
    ///
    /// Default: nothing is demanded, because a lock for efficiency (do not do it twice) needs no promise.
    #[must_use]
    pub fn require(mut self, guarantees: Guarantees) -> Builder {
        self.demanded = Some(guarantees);
        self
    }

    /// Puts something between the client and its driver that counts, watches or hinders what is sent.
    ///
    /// Default: nothing.
    #[must_use]
    pub fn layer(
        mut self,
        layer: impl Fn(Arc<dyn Driver>) -> Arc<dyn Driver> + Send + Sync + 'static,
    ) -> Builder {
        self.layer = Some(Layer(Arc::new(layer)));
        self
    }

    /// Connects to the engine at an address; its `lease=` and `prefix=` win over what was set here, because whoever
    /// deploys has the last word.
    ///
    /// # Errors
    /// As [`Locks::connect`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect(mut self, url: &str) -> Result<Locks> {
        let mut url = EngineUrl::parse(url)?;
        self.lease = url.take_lease()?.unwrap_or(self.lease);
        self.prefix = url.take("prefix").unwrap_or(self.prefix);
        match url.scheme() {
            "memory" => {
                let memory = Memory::named(url.path());
                url.finish()?;
                self.memory(&memory)
            }
            #[cfg(feature = "sqlite")]
            "sqlite" => self.sqlite(SqliteConfig::from_url(url)?).await,
            #[cfg(feature = "redis")]
            "redis" | "redis+unix" | "rediss" | "redis-sentinel" | "rediss-sentinel" | "redis-cluster"
            | "rediss-cluster" => self.redis(RedisConfig::from_url(url)?).await,
            #[cfg(feature = "redis")]
            "redlock" => self.redlock(RedlockConfig::from_url(url)?).await,
            #[cfg(feature = "zookeeper")]
            "zookeeper" | "zookeepers" => self.zookeeper(ZookeeperConfig::from_url(url)?).await,
            #[cfg(feature = "etcd")]
            "etcd" | "etcds" => self.etcd(EtcdConfig::from_url(url)?).await,
            #[cfg(feature = "mysql")]
            "mysql" => self.mysql(MysqlConfig::from_url(url)?).await,
            #[cfg(feature = "postgres")]
            "postgres" => self.postgres(PostgresConfig::from_url(url)?).await,
            _ => Err(url.unknown_scheme()),
        }
    }

    /// Locks within this process, shared by all clients of the same [`Memory`].
    ///
    /// # Errors
    /// A bad option.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn memory(self, memory: &Memory) -> Result<Locks> {
        let board = self.check()?;
        let driver = MemoryDriver::new(memory.clone(), board.clone());
        self.start(Arc::new(driver), board)
    }

    /// Locks among the processes of this host.
    ///
    /// # Errors
    /// A bad option; a file that cannot be used, or must not be.
    ///
    /// # Cancel safety
    /// Dropping the future leaves at most an empty lock file behind.
    #[cfg(feature = "sqlite")]
    pub async fn sqlite(self, config: SqliteConfig) -> Result<Locks> {
        self.driver(async move |bells| Ok(Arc::new(Sqlite::open(config, bells).await?) as Arc<dyn Driver>))
            .await
    }

    /// Locks among everything that can reach a Redis server.
    ///
    /// # Errors
    /// A bad option; a server that cannot be reached, or must not be trusted.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind but scripts in the server's cache.
    #[cfg(feature = "redis")]
    pub async fn redis(self, config: RedisConfig) -> Result<Locks> {
        self.driver(async move |bells| Ok(Arc::new(Redis::connect(config, bells).await?) as Arc<dyn Driver>))
            .await
    }

    /// Locks among everything that can reach a ZooKeeper ensemble.
    ///
    /// # Errors
    /// A bad option; an ensemble that cannot be reached, or refuses the login.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind but a session that ends by itself.
    #[cfg(feature = "zookeeper")]
    pub async fn zookeeper(self, config: ZookeeperConfig) -> Result<Locks> {
        let open =
            async move |bells| Ok(Arc::new(Zookeeper::connect(config, bells).await?) as Arc<dyn Driver>);
        self.driver(open).await
    }

    /// Locks among everything that can reach an etcd cluster.
    ///
    /// # Errors
    /// A bad option; a cluster that cannot be reached, or refuses the login.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    #[cfg(feature = "etcd")]
    pub async fn etcd(self, config: EtcdConfig) -> Result<Locks> {
        self.driver(async move |bells| Ok(Arc::new(Etcd::connect(config, bells).await?) as Arc<dyn Driver>))
            .await
    }

    /// Locks among everything that can reach a PostgreSQL server.
    ///
    /// # Errors
    /// A bad option; a server that cannot be reached, or must not be trusted.
    ///
    /// # Cancel safety
    /// Dropping the future leaves at most the schema behind.
    #[cfg(feature = "postgres")]
    pub async fn postgres(self, config: PostgresConfig) -> Result<Locks> {
        self.driver(async move |bells| {
            Ok(Arc::new(Postgres::connect(config, bells).await?) as Arc<dyn Driver>)
        })
        .await
    }

    /// Locks among everything that can reach a MariaDB or MySQL server.
    ///
    /// # Errors
    /// A bad option; a server that cannot be reached, or must not be trusted.
    ///
    /// # Cancel safety
    /// Dropping the future leaves at most the tables and procedures behind.
    #[cfg(feature = "mysql")]
    pub async fn mysql(self, config: MysqlConfig) -> Result<Locks> {
        self.driver(async move |bells| Ok(Arc::new(Mysql::connect(config, bells).await?) as Arc<dyn Driver>))
            .await
    }

    /// Locks on a majority of independent Redis servers.
    ///
    /// # Errors
    /// A bad option; no majority that can be reached, or a server that must not be trusted.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind but scripts in the servers' caches.
    #[cfg(feature = "redis")]
    pub async fn redlock(self, config: RedlockConfig) -> Result<Locks> {
        let open = async move |bells| Ok(Arc::new(Redlock::connect(config, bells).await?) as Arc<dyn Driver>);
        self.driver(open).await
    }

    /// Locks on any driver: `open` is given the board to ring its bells on.
    ///
    /// # Errors
    /// A bad option, or what `open` fails with.
    ///
    /// # Cancel safety
    /// As that of the future that `open` makes.
    pub async fn driver<F, Opening>(self, open: F) -> Result<Locks>
    where
        F: FnOnce(Bells) -> Opening,
        Opening: Future<Output = Result<Arc<dyn Driver>>>,
    {
        let board = self.check()?;
        let driver = open(board.clone()).await?;
        self.start(driver, board)
    }

    /// Everything that can be refused before an engine is touched.
    fn check(&self) -> Result<Arc<Board>> {
        check_lease(self.lease)?;
        if self.prefix.contains('\0') || self.prefix.len() >= Name::MAX_BYTES {
            return Err(Error::new(
                ErrorKind::Invalid,
                "prefix",
                "a prefix is shorter than 512 bytes and has no NUL",
            ));
        }
        self.owner.as_deref().map_or(Ok(()), |label| check_label("owner", label))?;
        Ok(Arc::new(Board::new(self.clock, self.lease)))
    }

    fn start(self, driver: Arc<dyn Driver>, board: Arc<Board>) -> Result<Locks> {
        let driver = self.layer.as_ref().map_or_else(|| driver.clone(), |Layer(layer)| layer(driver.clone()));
        let offered = driver.info().guarantees;
        if let Some(demanded) = self.demanded.filter(|demanded| !offered.meets(*demanded)) {
            let message = format!("this engine promises: {offered}; demanded: {demanded}");
            return Err(Error::new(ErrorKind::Unsupported, "connect", message)
                .at(&driver.info().address)
                .hint(
                    "choose an engine whose row on the guarantees page is at least as strong, or demand less",
                ));
        }
        let settings = Settings {
            lease: self.lease,
            prefix: self.prefix,
            who: Arc::new(this_process(self.owner)),
            most_claims: self.most_claims,
        };
        Ok(Locks { client: Client::start(driver, board, self.clock, settings) })
    }
}

fn this_process(label: Option<String>) -> Who {
    let program =
        || std::env::current_exe().ok()?.file_stem().map(|name| name.to_string_lossy().into_owned());
    Who {
        owner: label.or_else(program).unwrap_or_else(|| "unnamed".to_owned()),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pid: std::process::id(),
    }
}
