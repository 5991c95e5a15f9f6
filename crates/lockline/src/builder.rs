//! How a client behaves, and which engine it gets.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::{Bells, Driver, Guarantees};
#[cfg(feature = "etcd")]
use crate::drivers::etcd::{Etcd, EtcdConfig};
use crate::drivers::memory::{Memory, MemoryDriver};
use crate::drivers::missing_feature;
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
use crate::hold::client::{Client, Settings};
use crate::hold::promises::Promises;
use crate::line::Who;
use crate::locks::Locks;
use crate::name::Name;
use crate::owner::check_label;
use crate::primitive::check_lease;
use crate::time::Clock;
use crate::url::EngineUrl;

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

/// How long a place lives without being renewed, unless said otherwise.
pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(10);

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            lease: DEFAULT_LEASE,
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

    /// Demands a row of the guarantees page: connecting to an engine that promises less fails. If an operator weakens the
    /// engine later, nothing more is granted, and what is held is lost within a lease
    /// ([`LossReason::Weakened`](crate::LossReason::Weakened)).
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
        if missing_feature(url.scheme()).is_some() {
            return Err(url.unknown_scheme());
        }
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
            "mysql" | "mariadb" => self.mysql(MysqlConfig::from_url(url)?).await,
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
        let promises = Promises::new(self.demanded, driver.guarantees());
        promises.check("connect", driver.guarantees()).map_err(|e| e.at(&driver.info().address))?;
        let settings = Settings {
            lease: self.lease,
            prefix: self.prefix,
            who: Arc::new(this_process(self.owner)),
            most_claims: self.most_claims,
        };
        Ok(Locks::of(Client::start(driver, board, self.clock, settings, promises)))
    }
}

fn this_process(label: Option<String>) -> Who {
    let program =
        || std::env::current_exe().ok()?.file_stem().map(|name| name.to_string_lossy().into_owned());
    Who {
        owner: label.or_else(program).unwrap_or_else(|| "unnamed".to_owned()),
        host: crate::platform::host_name(),
        pid: std::process::id(),
    }
}
