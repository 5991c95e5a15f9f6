//! What a driver's test file provides: a fresh engine per test, and the ways to reach it.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use lockline::driver::{Bells, Driver};

/// A future that some engine's code will finish.
pub type Soon<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

type Open = Box<dyn Fn(Bells) -> Soon<'static, lockline::Result<Arc<dyn Driver>>> + Send + Sync>;

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

/// A name space of its own on the Redis server of this run.
///
/// # Panics
/// If this run includes no Redis, or its address makes no sense.
#[cfg(feature = "redis")]
pub fn redis() -> Engine {
    redis_with(&format!("space=test-{:016x}", fastrand::u64(..)))
}

/// A name space of its own on the same server, where locks are stored as other clients store theirs.
///
/// # Panics
/// As [`redis()`].
#[cfg(feature = "redis")]
pub fn redis_layout(layout: &str) -> Engine {
    redis_with(&format!("layout={layout}&space=test-{:016x}:", fastrand::u64(..)))
}

#[cfg(feature = "redis")]
fn redis_with(options: &str) -> Engine {
    let (engine, server) = on_redis("redis", options);
    let space = options.split("space=").last().unwrap_or_default().to_owned();
    let keys = Arc::new(RedisKeys { server, space });
    let to_forget = keys.clone();
    engine.forgets(move || to_forget.delete().expect("the keys are deleted")).keeps(CleanedUp(keys))
}

/// The same on other kinds of Redis servers. They end with the run, and what tests leave there with them.
///
/// # Panics
/// If this run does not include it, or its address makes no sense.
#[cfg(feature = "redis")]
pub fn redis_kind(name: &'static str) -> Engine {
    on_redis(name, &format!("space=test-{:016x}", fastrand::u64(..))).0
}

/// The engine, and the address of its servers.
#[cfg(feature = "redis")]
fn on_redis(name: &'static str, options: &str) -> (Engine, String) {
    use lockline::EngineUrl;
    use lockline::drivers::redis::{Redis, RedisConfig};
    let server = crate::engines::required_url(name)
        .unwrap_or_else(|| panic!("{} names no {name}", crate::engines::VARIABLE));
    let url = format!("{server}{}{options}", if server.contains('?') { '&' } else { '?' });
    let config = EngineUrl::parse(&url).and_then(RedisConfig::from_url).expect("the address makes sense");
    let open = move |bells| {
        let config = config.clone();
        async move { Ok(Arc::new(Redis::connect(config, bells).await?) as Arc<dyn Driver>) }
    };
    (Engine::new(name, url, open), server)
}

/// A name space of its own on the quorum of this run that is called `name`.
///
/// # Panics
/// If this run includes no such quorum, or its address makes no sense.
#[cfg(feature = "redis")]
pub fn redlock(name: &'static str) -> Engine {
    redlock_with(name, &format!("space=test-{:016x}", fastrand::u64(..)))
}

/// The same, where locks are stored as other clients store theirs.
///
/// # Panics
/// As [`redlock`].
#[cfg(feature = "redis")]
pub fn redlock_layout(name: &'static str, layout: &str) -> Engine {
    redlock_with(name, &format!("layout={layout}&space=test-{:016x}:", fastrand::u64(..)))
}

#[cfg(feature = "redis")]
fn redlock_with(name: &'static str, options: &str) -> Engine {
    use lockline::EngineUrl;
    use lockline::drivers::redlock::{Redlock, RedlockConfig};
    let servers = crate::engines::required_url(name)
        .unwrap_or_else(|| panic!("{} names no {name}", crate::engines::VARIABLE));
    let space = options.split("space=").last().unwrap_or_default().to_owned();
    let url = format!("{servers}{}{options}", if servers.contains('?') { '&' } else { '?' });
    let parsed = EngineUrl::parse(&url).expect("the address makes sense");
    let config = RedlockConfig::from_url(parsed.clone()).expect("the address makes sense");
    let open = move |bells| {
        let config = config.clone();
        async move { Ok(Arc::new(Redlock::connect(config, bells).await?) as Arc<dyn Driver>) }
    };
    let keys =
        |host: &String| Arc::new(RedisKeys { server: format!("redis://{host}"), space: space.clone() });
    let keys: Vec<_> = parsed.hosts().iter().map(keys).collect();
    let to_forget = keys.clone();
    Engine::new(name, url, open)
        .without_permits()
        .forgets(move || to_forget.iter().for_each(|keys| keys.delete().expect("the keys are deleted")))
        .keeps(keys.into_iter().map(CleanedUp).collect::<Vec<_>>())
}

/// All keys of one name space.
#[cfg(feature = "redis")]
struct RedisKeys {
    server: String,
    space: String,
}

#[cfg(feature = "redis")]
impl RedisKeys {
    /// Deletes them, all at once.
    fn delete(&self) -> redis::RedisResult<()> {
        const DELETE: &str =
            "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end";
        // Its options are ours, and nothing to this client.
        let server = self.server.split('?').next().unwrap_or_default();
        let mut connection = redis::Client::open(server)?.get_connection()?;
        redis::cmd("EVAL").arg(DELETE).arg(0).arg(format!("*{}*", self.space)).query(&mut connection)
    }
}

/// Leaves the server as it was found; one that is gone needs no cleaning.
#[cfg(feature = "redis")]
struct CleanedUp(Arc<RedisKeys>);

#[cfg(feature = "redis")]
impl Drop for CleanedUp {
    fn drop(&mut self) {
        let _ = self.0.delete();
    }
}

/// A path of its own on a ZooKeeper ensemble of this run, by the name that the run gives it.
///
/// # Panics
/// If this run does not include it, or its address makes no sense.
#[cfg(feature = "zookeeper")]
pub fn zookeeper(server: &'static str) -> Engine {
    use lockline::EngineUrl;
    use lockline::drivers::zookeeper::{Zookeeper, ZookeeperConfig};
    let hosts = crate::engines::required_url(server)
        .unwrap_or_else(|| panic!("{} names no {server}", crate::engines::VARIABLE));
    let base = format!("/test-{:016x}", fastrand::u64(..));
    let url = format!("{hosts}{base}");
    let config = EngineUrl::parse(&url).and_then(ZookeeperConfig::from_url).expect("the address makes sense");
    let open = move |bells| {
        let config = config.clone();
        async move { Ok(Arc::new(Zookeeper::connect(config, bells).await?) as Arc<dyn Driver>) }
    };
    let forget = move || {
        let (hosts, base) = (hosts.clone(), base.clone());
        // On a thread of its own: a test has a runtime already.
        let deleting = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(delete_claims(hosts.trim_start_matches("zookeeper://"), base))
        });
        deleting.join().expect("the thread ends well").expect("the claims are deleted");
    };
    Engine::new("zookeeper", url, open).forgets(forget)
}

/// Deletes every ephemeral znode below this one.
#[cfg(feature = "zookeeper")]
async fn delete_claims(hosts: &str, base: String) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let client = zookeeper_client::Client::connect(hosts).await?;
    client.sync("/").await?;
    let mut ahead = vec![base];
    while let Some(path) = ahead.pop() {
        match client.check_stat(&path).await? {
            Some(stat) if stat.ephemeral_owner != 0 => drop(client.delete(&path, None).await),
            Some(_) => {
                ahead.extend(client.list_children(&path).await?.iter().map(|child| format!("{path}/{child}")))
            }
            None => {}
        }
    }
    Ok(())
}

/// A name space of its own on the etcd server, or the three of them, of this run.
///
/// # Panics
/// If this run does not include it, or its address makes no sense.
#[cfg(feature = "etcd")]
pub fn etcd(which: &'static str) -> Engine {
    use lockline::EngineUrl;
    use lockline::drivers::etcd::{Etcd, EtcdConfig};
    let server = crate::engines::required_url(which)
        .unwrap_or_else(|| panic!("{} names no {which}", crate::engines::VARIABLE));
    let space = format!("test-{:016x}/", fastrand::u64(..));
    let url = format!("{server}{}space={space}", if server.contains('?') { '&' } else { '?' });
    let config = EngineUrl::parse(&url).and_then(EtcdConfig::from_url).expect("the address makes sense");
    let open = move |bells| {
        let config = config.clone();
        async move { Ok(Arc::new(Etcd::connect(config, bells).await?) as Arc<dyn Driver>) }
    };
    let keys = Arc::new(EtcdKeys { server, space });
    let to_forget = keys.clone();
    Engine::new(which, url, open)
        .forgets(move || to_forget.delete().expect("the keys are deleted"))
        .keeps(CleanedEtcd(keys))
}

/// All keys of one name space.
#[cfg(feature = "etcd")]
struct EtcdKeys {
    server: String,
    space: String,
}

#[cfg(feature = "etcd")]
impl EtcdKeys {
    /// Deletes them, all at once, as an operator would.
    fn delete(&self) -> std::io::Result<()> {
        let hosts = self.server.trim_start_matches("etcd://").split('?').next().unwrap_or_default();
        let done = std::process::Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", hosts, "del", "--prefix", &self.space])
            .output()?;
        if done.status.success() { Ok(()) } else { Err(std::io::Error::other(format!("{done:?}"))) }
    }
}

/// Leaves the server as it was found; one that is gone needs no cleaning.
#[cfg(feature = "etcd")]
struct CleanedEtcd(Arc<EtcdKeys>);

#[cfg(feature = "etcd")]
impl Drop for CleanedEtcd {
    fn drop(&mut self) {
        let _ = self.0.delete();
    }
}

/// A schema of its own on the PostgreSQL server that this run calls `name`.
///
/// # Panics
/// If this run includes no such server, or its address makes no sense.
#[cfg(feature = "postgres")]
pub fn postgres(name: &'static str) -> Engine {
    use lockline::EngineUrl;
    use lockline::drivers::postgres::{Postgres, PostgresConfig};
    let server = crate::engines::required_url(name)
        .unwrap_or_else(|| panic!("{} names no {name}", crate::engines::VARIABLE));
    let schema = format!("test_{:016x}", fastrand::u64(..));
    let url = format!("{server}{}schema={schema}", if server.contains('?') { '&' } else { '?' });
    let config = EngineUrl::parse(&url).and_then(PostgresConfig::from_url).expect("the address makes sense");
    let open = move |bells| {
        let config = config.clone();
        async move { Ok(Arc::new(Postgres::connect(config, bells).await?) as Arc<dyn Driver>) }
    };
    let forget = format!("DELETE FROM {schema}.claims; DELETE FROM {schema}.lone_claims");
    let to_forget = (server.clone(), forget);
    let clean_up = (server, format!("DROP SCHEMA IF EXISTS {schema} CASCADE"));
    Engine::new(name, url, open)
        .forgets(move || run_on_postgres(&to_forget.0, &to_forget.1).expect("the claims are deleted"))
        .keeps(PostgresSchema(clean_up))
}

/// Runs one statement on a session of its own, on a thread of its own: whoever asks may be inside a runtime.
#[cfg(feature = "postgres")]
fn run_on_postgres(server: &str, statement: &str) -> Result<(), tokio_postgres::Error> {
    // Its options are ours, and nothing to this client.
    let server = server.split('?').next().unwrap_or_default().to_owned();
    let statement = statement.to_owned();
    let work = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut config: tokio_postgres::Config = server.parse()?;
            config.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
            let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
            let driving = tokio::spawn(connection);
            let done = client.batch_execute(&statement).await;
            drop(client);
            let _ = driving.await;
            done
        })
    });
    work.join().expect("the statement does not panic")
}

/// Leaves the server as it was found; one that is gone needs no cleaning.
#[cfg(feature = "postgres")]
struct PostgresSchema((String, String));

#[cfg(feature = "postgres")]
impl Drop for PostgresSchema {
    fn drop(&mut self) {
        let _ = run_on_postgres(&self.0.0, &self.0.1);
    }
}

/// A database of its own on the MariaDB server of this run.
///
/// # Panics
/// If this run includes no such server, or its address makes no sense.
#[cfg(feature = "mysql")]
pub fn mysql() -> Engine {
    use lockline::EngineUrl;
    use lockline::drivers::mysql::{Mysql, MysqlConfig};
    let server = crate::engines::required_url("mysql")
        .unwrap_or_else(|| panic!("{} names no mysql", crate::engines::VARIABLE));
    let database = format!("test_{:016x}", fastrand::u64(..));
    run_on_mysql(&server, &format!("CREATE DATABASE {database}")).expect("a database is made");
    let (base, _) = server.rsplit_once('/').expect("the address names a database");
    let url = format!("{base}/{database}");
    let config = EngineUrl::parse(&url).and_then(MysqlConfig::from_url).expect("the address makes sense");
    let open = move |bells| {
        let config = config.clone();
        async move { Ok(Arc::new(Mysql::connect(config, bells).await?) as Arc<dyn Driver>) }
    };
    let forget =
        format!("DELETE FROM {database}.lockline_claims; DELETE FROM {database}.lockline_lone_claims");
    let to_forget = (server.clone(), forget);
    Engine::new("mysql", url, open)
        .forgets(move || run_on_mysql(&to_forget.0, &to_forget.1).expect("the claims are deleted"))
        .keeps(MysqlDatabase(server, format!("DROP DATABASE {database}")))
}

/// Runs one statement on a session of its own, on a thread of its own: whoever asks may be inside a runtime.
#[cfg(feature = "mysql")]
fn run_on_mysql(server: &str, statement: &str) -> Result<(), sqlx::Error> {
    use sqlx::Connection;
    let (server, statement) = (server.to_owned(), statement.to_owned());
    let work = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut session = sqlx::mysql::MySqlConnection::connect(&server).await?;
            sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut session).await?;
            session.close().await
        })
    });
    work.join().expect("the statement does not panic")
}

/// Leaves the server as it was found; one that is gone needs no cleaning.
#[cfg(feature = "mysql")]
struct MysqlDatabase(String, String);

#[cfg(feature = "mysql")]
impl Drop for MysqlDatabase {
    fn drop(&mut self) {
        let _ = run_on_mysql(&self.0, &self.1);
    }
}
