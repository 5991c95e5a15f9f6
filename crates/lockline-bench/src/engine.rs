//! The engines that can be measured, and where.
//!
//! A new engine is a variant here and its bare operations in `floors`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use lockline::Locks;
use tempfile::TempDir;

use crate::counting::{Counting, Counts};

/// An engine that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// The line itself, within this process.
    Memory,
    /// One file, shared by the processes of this host.
    #[cfg(feature = "sqlite")]
    Sqlite,
    /// One Redis server.
    #[cfg(feature = "redis")]
    Redis,
    /// Five Redis servers that know nothing of each other.
    #[cfg(feature = "redis")]
    Redlock,
    /// One ZooKeeper server.
    #[cfg(feature = "zookeeper")]
    Zookeeper,
    /// Three ZooKeeper servers.
    #[cfg(feature = "zookeeper")]
    ZookeeperEnsemble,
    /// One etcd server.
    #[cfg(feature = "etcd")]
    Etcd,
    /// One PostgreSQL server.
    #[cfg(feature = "postgres")]
    Postgres,
    /// One MariaDB or MySQL server.
    #[cfg(feature = "mysql")]
    Mysql,
}

impl Engine {
    /// Its name, as in URLs.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Memory => "memory",
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => "sqlite",
            #[cfg(feature = "redis")]
            Engine::Redis => "redis",
            #[cfg(feature = "redis")]
            Engine::Redlock => "redlock",
            #[cfg(feature = "zookeeper")]
            Engine::Zookeeper => "zookeeper",
            #[cfg(feature = "zookeeper")]
            Engine::ZookeeperEnsemble => "zookeeper-ensemble",
            #[cfg(feature = "etcd")]
            Engine::Etcd => "etcd",
            #[cfg(feature = "postgres")]
            Engine::Postgres => "postgres",
            #[cfg(feature = "mysql")]
            Engine::Mysql => "mysql",
        }
    }

    /// The engine of this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn named(name: &str) -> Result<Engine> {
        <Engine as clap::ValueEnum>::from_str(name, false)
            .map_err(|_| anyhow::anyhow!("no engine is called {name:?}"))
    }

    /// Whether several processes can reach it.
    pub fn is_shared(self) -> bool {
        self != Engine::Memory
    }

    /// Whether it is several servers that know nothing of each other.
    pub fn is_quorum(self) -> bool {
        match self {
            #[cfg(feature = "redis")]
            Engine::Redlock => true,
            _ => false,
        }
    }

    /// Whether the command works on it without being told where it is.
    pub fn is_embedded(self) -> bool {
        match self {
            Engine::Memory => true,
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => true,
            #[allow(unreachable_patterns)] // Without any server there is nothing left.
            _ => false,
        }
    }
}

/// One engine, with nothing of ours in it, for one run.
#[derive(Debug)]
pub struct Site {
    /// Which engine.
    pub engine: Engine,
    /// Where. Children of this process are told.
    pub url: String,
    /// Where floors keep their own files, so that they share the disk with the engine.
    pub dir: PathBuf,
    /// Removed with the site; `None` in a child, whose parent does that.
    _dir: Option<TempDir>,
}

/// A client whose verbs are counted.
#[derive(Clone, Debug)]
pub struct Counted {
    /// The client.
    pub locks: Locks,
    /// What it sent.
    pub counts: Arc<Counts>,
}

impl Counted {
    /// Another client with the default lease, whose verbs count together with this one's.
    ///
    /// # Errors
    /// What connecting fails with.
    pub async fn alike(&self, site: &Site) -> Result<Counted> {
        site.connect_counted(Duration::from_secs(10), self.counts.clone()).await
    }
}

impl Site {
    /// A fresh one; on a server, which is at `server`, a name space of its own.
    ///
    /// # Errors
    /// Without a temporary folder, or without the server's address.
    pub fn fresh(engine: Engine, server: Option<&str>) -> Result<Site> {
        let dir = tempfile::Builder::new().prefix("lockline-bench-").tempdir()?;
        let here = dir.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let url = match engine {
            Engine::Memory => format!("memory:{here}"),
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => format!("sqlite:{}", dir.path().join("locks.db").display()),
            #[allow(unreachable_patterns)] // Without any server there is nothing left.
            _ => {
                let server = server.with_context(|| {
                    format!("where is {}? `cargo xtask bench` starts one; otherwise --url", engine.name())
                })?;
                // A name space, so that runs do not meet; which option that is, is the engine's.
                format!("{server}{}prefix={here}/", if server.contains('?') { '&' } else { '?' })
            }
        };
        Ok(Site { engine, url, dir: dir.path().to_owned(), _dir: Some(dir) })
    }

    /// The one that another process made.
    pub fn of_parent(engine: Engine, url: &str) -> Site {
        Site { engine, url: url.to_owned(), dir: PathBuf::new(), _dir: None }
    }

    /// A client with the default lease.
    ///
    /// # Errors
    /// What connecting fails with.
    pub async fn connect(&self) -> Result<Counted> {
        self.connect_with(Duration::from_secs(10)).await
    }

    /// A client with this lease.
    ///
    /// # Errors
    /// What connecting fails with.
    pub async fn connect_with(&self, lease: Duration) -> Result<Counted> {
        self.connect_counted(lease, Arc::new(Counts::default())).await
    }

    async fn connect_counted(&self, lease: Duration, counts: Arc<Counts>) -> Result<Counted> {
        let counted = counts.clone();
        let locks = Locks::builder()
            .lease(lease)
            .layer(move |driver| Arc::new(Counting::new(driver, counted.clone())))
            .connect(&self.url)
            .await?;
        Ok(Counted { locks, counts })
    }
}
