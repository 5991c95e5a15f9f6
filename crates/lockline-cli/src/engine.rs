//! Which engine is meant, and how to get to it.

use std::path::PathBuf;

use lockline::{EngineUrl, Locks, Name};

use crate::exit::{Failure, code};
use crate::output::say;
use crate::secret;

/// This user's own file on this machine.
const DEFAULT_URL: &str = "sqlite:";

/// Where the locks are.
pub(crate) struct Engine {
    /// May hold a password, so it is never shown.
    url: String,
    /// The file it is in, if it is one.
    file: Option<PathBuf>,
    /// What the engine puts before every name.
    space: String,
}

impl Engine {
    /// The engine at an address, or this user's own. Touches nothing.
    pub(crate) fn of(on: Option<String>) -> Result<Engine, Failure> {
        // `LOCKLINE_URL=` in front of a command is how one switches it off.
        let url = on.filter(|url| !url.is_empty()).unwrap_or_else(|| DEFAULT_URL.to_owned());
        let mut parsed = EngineUrl::parse(&url)?;
        Ok(Engine { file: file_of(&parsed)?, space: parsed.take("prefix").unwrap_or_default(), url })
    }

    /// Checks a name as the engine will, its name space included. Touches nothing.
    pub(crate) fn check(&self, name: &str) -> Result<(), Failure> {
        Name::new(name)?;
        Name::new(format!("{}{name}", self.space))?;
        Ok(())
    }

    /// Connects, under a label that others see.
    pub(crate) async fn open(&self, owner: &str) -> Result<Locks, Failure> {
        // Most commands end before a thread for the file would have been worth its start.
        let late = if self.file.is_none() || self.url.contains("thread=") {
            ""
        } else if self.url.contains('?') {
            "&thread=late"
        } else {
            "?thread=late"
        };
        Locks::builder().owner(owner).connect(&format!("{}{late}", self.url)).await.map_err(|error| {
            let hint = secret::hint().filter(|_| self.is_from_environment());
            let failure = Failure::from(error);
            if let Some(hint) = hint { failure.hint(hint) } else { failure }
        })
    }

    fn is_from_environment(&self) -> bool {
        std::env::var(secret::URL).is_ok_and(|url| url == self.url)
    }

    /// Whether its password stands on the command line, where `ps` shows it.
    pub(crate) fn shows_its_secret(&self) -> bool {
        secret::is_on_command_line(&self.url)
    }

    /// Connects to look; `None` if there is nothing to look at: whoever only looks must not make the file.
    pub(crate) async fn open_to_look(&self) -> Result<Option<Locks>, Failure> {
        if self.shows_its_secret() {
            say(&format!("lockline: {}\nhint: {}\n", secret::SHOWN, secret::SHOWN_HINT));
        }
        let exists = self.file.as_ref().is_none_or(|file| file.exists());
        if exists { Ok(Some(self.open("lockline").await?)) } else { Ok(None) }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("file", &self.file).finish_non_exhaustive()
    }
}

#[cfg(feature = "sqlite")]
fn file_of(url: &EngineUrl) -> Result<Option<PathBuf>, Failure> {
    Ok(match (url.scheme(), url.path()) {
        ("sqlite", "") => Some(lockline::drivers::sqlite::SqliteConfig::of_user()?.path().to_owned()),
        ("sqlite", path) => Some(PathBuf::from(path)),
        _ => None,
    })
}

#[cfg(not(feature = "sqlite"))]
#[allow(clippy::unnecessary_wraps)]
fn file_of(_: &EngineUrl) -> Result<Option<PathBuf>, Failure> {
    Ok(None)
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
