//! The engines that can be measured: how to open each, and what its floors are.
//!
//! A new engine is a variant, an arm in `Site::open`, and its floors.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use lockline::Locks;
use lockline::driver::{Bells, Driver};
use lockline::drivers::memory::{Memory, MemoryDriver};
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
}

impl Engine {
    /// Its name, as in URLs.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Memory => "memory",
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => "sqlite",
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
}

/// One engine, with nothing in it, for one run.
#[derive(Debug)]
pub struct Site {
    /// Which engine.
    pub engine: Engine,
    memory: Memory,
    /// Where its file is, if it has one. Children of this process are told.
    pub file: PathBuf,
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

impl Site {
    /// A fresh one.
    ///
    /// # Errors
    /// Without a temporary folder.
    pub fn fresh(engine: Engine) -> Result<Site> {
        let dir = tempfile::Builder::new().prefix("lockline-bench-").tempdir()?;
        let file = dir.path().join("locks.db");
        Ok(Site { engine, memory: Memory::default(), file, dir: dir.path().to_owned(), _dir: Some(dir) })
    }

    /// The one that another process made.
    pub fn of_parent(engine: Engine, file: &Path) -> Site {
        let dir = file.parent().map(Path::to_owned).unwrap_or_default();
        Site { engine, memory: Memory::default(), file: file.to_owned(), dir, _dir: None }
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
        let counts = Arc::new(Counts::default());
        let counted = counts.clone();
        let locks = Locks::builder()
            .lease(lease)
            .driver(async |bells| {
                let inner = self.open(bells).await?;
                Ok(Arc::new(Counting::new(inner, counted)) as Arc<dyn Driver>)
            })
            .await?;
        Ok(Counted { locks, counts })
    }

    async fn open(&self, bells: Bells) -> lockline::Result<Arc<dyn Driver>> {
        Ok(match self.engine {
            Engine::Memory => Arc::new(MemoryDriver::new(self.memory.clone(), bells)),
            #[cfg(feature = "sqlite")]
            Engine::Sqlite => {
                use lockline::drivers::sqlite::{Sqlite, SqliteConfig};
                Arc::new(Sqlite::open(SqliteConfig::new(&self.file), bells).await?)
            }
        })
    }
}
