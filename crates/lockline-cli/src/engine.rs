//! Which engine is meant, and how to get to it.

use std::path::{Path, PathBuf};

use lockline::{EngineUrl, Locks, Name};

use crate::exit::{Failure, code};

/// Where the locks are.
#[derive(Clone, Debug)]
pub(crate) enum Engine {
    /// This user's own file, made when it is first needed.
    OwnFile(PathBuf),
    /// At an address. It may hold a password, so it is never shown.
    At(Address),
}

#[derive(Clone)]
pub(crate) struct Address(String);

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Address(…)")
    }
}

impl Engine {
    /// The engine at an address, or this user's own. Touches nothing.
    pub(crate) fn of(on: Option<String>) -> Result<Engine, Failure> {
        match on {
            // `LOCKLINE_URL=` in front of a command is how one switches it off.
            Some(url) if !url.is_empty() => {
                EngineUrl::parse(&url)?;
                Ok(Engine::At(Address(url)))
            }
            _ if cfg!(feature = "sqlite") => Ok(Engine::OwnFile(own_file()?)),
            _ => Err(Failure::usage("this build has no engine of its own")
                .hint("name one with --on URL or LOCKLINE_URL")),
        }
    }

    /// Checks a name as the engine will, its name space included. Touches nothing.
    pub(crate) fn check(&self, name: &str) -> Result<(), Failure> {
        let space = match self {
            Engine::At(Address(url)) => EngineUrl::parse(url)?.take("prefix").unwrap_or_default(),
            Engine::OwnFile(_) => String::new(),
        };
        Name::new(name)?;
        Name::new(format!("{space}{name}"))?;
        Ok(())
    }

    /// Whether a look at the engine is worth it: whoever only looks must not make the file.
    pub(crate) fn exists(&self) -> bool {
        match self {
            Engine::OwnFile(path) => path.exists(),
            Engine::At(Address(url)) => match EngineUrl::parse(url) {
                Ok(url) if url.scheme() == "sqlite" => Path::new(url.path()).exists(),
                _ => true,
            },
        }
    }

    /// Connects, under a label that others see.
    pub(crate) async fn open(&self, owner: &str) -> Result<Locks, Failure> {
        let builder = Locks::builder().owner(owner);
        match self {
            Engine::At(Address(url)) => Ok(builder.connect(url).await?),
            #[cfg(feature = "sqlite")]
            Engine::OwnFile(path) => {
                let config = lockline::drivers::sqlite::SqliteConfig::new(path).create_dir(true);
                Ok(builder.sqlite(config).await?)
            }
            #[cfg(not(feature = "sqlite"))]
            Engine::OwnFile(_) => Err(Failure::usage("this build has no engine of its own")),
        }
    }

    /// Connects to look; `None` if there is nothing to look at.
    pub(crate) async fn open_to_look(&self) -> Result<Option<Locks>, Failure> {
        if self.exists() { Ok(Some(self.open("lockline").await?)) } else { Ok(None) }
    }
}

/// As the XDG base directories have it: the state of this user on this machine.
fn own_file() -> Result<PathBuf, Failure> {
    let absolute = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    state.map(|state| state.join("lockline/locks.db")).ok_or_else(|| {
        Failure::usage(
            "there is no place for the lock file: neither XDG_STATE_HOME nor HOME is set to a directory",
        )
        .hint("set one of them, or name an engine with --on sqlite:/path/to/file or LOCKLINE_URL")
    })
}

/// Runs a command's future on a runtime of one thread: the one that started the process.
pub(crate) fn on_runtime(work: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(code::SYSTEM, format!("the runtime could not be started: {e}")))?;
    let result = runtime.block_on(work);
    // The process is about to end; taking the runtime down first would only make its caller wait.
    std::mem::forget(runtime);
    result
}
