//! Which engine is meant, and how to get to it.

use std::path::PathBuf;
use std::time::Duration;

use lockline::{EngineUrl, Locks, Name};
use tokio::time::Instant;

use crate::exit::{Failure, code};
use crate::output::{say, visible};
use crate::secret;
use crate::source::{From, OF_THE_MACHINE, Source};

/// How long whoever only looks waits for room in an engine that is full.
const LOOKER_WAITS: Duration = Duration::from_secs(5);

/// Where the locks are.
pub(crate) struct Engine {
    source: Source,
    /// The address as people may see it.
    shown: String,
    /// The file it is in, if it is one.
    file: Option<PathBuf>,
    /// What the engine puts before every name.
    space: String,
}

impl Engine {
    /// The engine at an address, or this user's own. Touches nothing.
    pub(crate) fn of(on: Option<String>) -> Result<Engine, Failure> {
        let source = Source::find(on)?;
        let mut parsed = EngineUrl::parse(&source.url)?;
        let file = file_of(&parsed)?;
        let shown =
            file.as_ref().map_or_else(|| parsed.to_string(), |file| format!("sqlite:{}", file.display()));
        Ok(Engine { file, shown, space: parsed.take("prefix").unwrap_or_default(), source })
    }

    /// Its address without secrets.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// What is to be said of where its address was found: a message and a hint.
    pub(crate) fn warning(&self) -> Option<(String, String)> {
        if self.source.from == From::CommandLine && secret::without_secret(&self.source.url).is_some() {
            return Some((secret::SHOWN.to_owned(), secret::SHOWN_HINT.to_owned()));
        }
        let file = self.source.open_file.as_ref()?.display().to_string();
        let message = format!("other users can read the password in {file}");
        Some((message, format!("chmod 600 {file}, or chgrp and chmod 640 for a group that may know it")))
    }

    /// Nobody said which engine is meant, and nobody looks: then it is said, once for this user on this machine. A job that
    /// relies on it would otherwise share its locks with nobody, in silence. Called when the file is there.
    pub(crate) fn announcement(&self) -> Option<(String, String)> {
        use std::io::IsTerminal;
        let file = self.file.as_ref().filter(|_| self.source.from == From::Default)?;
        if std::io::stdin().is_terminal() || std::io::stderr().is_terminal() {
            return None;
        }
        let told =
            std::fs::OpenOptions::new().write(true).create_new(true).open(file.with_file_name("announced"));
        if told.is_err_and(|e| e.kind() == std::io::ErrorKind::AlreadyExists) {
            return None;
        }
        let message = format!(
            "no engine is named: the locks are in {}, which only this user's commands on this machine share",
            file.display()
        );
        let hint = format!(
            "set LOCKLINE_URL, or write url = \"…\" into {OF_THE_MACHINE}; `--on sqlite:` says that this file is meant"
        );
        Some((message, hint))
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
        let url = &self.source.url;
        let late = if self.file.is_none() || url.contains("thread=") {
            ""
        } else if url.contains('?') {
            "&thread=late"
        } else {
            "?thread=late"
        };
        let connected = match crate::built::check(url) {
            Ok(()) => {
                Locks::builder().owner(owner).connect(&format!("{url}{late}")).await.map_err(Failure::from)
            }
            Err(failure) => Err(failure),
        };
        connected.map_err(|failure| {
            let hint = secret::hint().filter(|_| self.source.from == From::Environment);
            if let Some(hint) = hint { failure.hint(hint) } else { failure }
        })
    }

    /// The same, again and again while the engine says that it has no room for one more, for as long as the wait allows.
    pub(crate) async fn open_again(
        &self,
        owner: &str,
        end: Option<Instant>,
        mut failure: Failure,
    ) -> Result<Locks, Failure> {
        loop {
            let Some(pause) = failure.retry_after else { return Err(failure) };
            if end.is_some_and(|end| Instant::now() + pause >= end) {
                return Err(failure);
            }
            tokio::time::sleep(pause).await;
            failure = match self.open(owner).await {
                Ok(locks) => return Ok(locks),
                Err(failure) => failure,
            };
        }
    }

    /// Connects to look; `None` if there is nothing to look at: whoever only looks must not make the file.
    pub(crate) async fn open_to_look(&self) -> Result<Option<Locks>, Failure> {
        if let Some((message, hint)) = self.warning() {
            say(&format!("lockline: {}\nhint: {}\n", visible(&message), visible(&hint)));
        }
        let exists = self.file.as_ref().is_none_or(|file| file.exists());
        if !exists {
            return Ok(None);
        }
        match self.open("lockline").await {
            Ok(locks) => Ok(Some(locks)),
            // An engine that is full of others has room for one more look before long.
            Err(failure) => {
                self.open_again("lockline", Some(Instant::now() + LOOKER_WAITS), failure).await.map(Some)
            }
        }
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

/// As many files as a runtime, signals, a connection, the guardian and the command need at once, and some more.
const FILES_NEEDED: usize = 16;

/// Refuses to begin what would fail half-way, in the middle of a library, for want of file descriptors.
fn check_files() -> Result<(), Failure> {
    let few = |e: std::io::Error| {
        Failure::new(code::SYSTEM, format!("this process may not open {FILES_NEEDED} more files: {e}"))
            .hint("raise the limit of open files: ulimit -n 256")
    };
    let first = std::fs::File::open("/dev/null").map_err(few)?;
    let mut all = Vec::with_capacity(FILES_NEEDED);
    for _ in 1..FILES_NEEDED {
        all.push(first.try_clone().map_err(few)?);
    }
    Ok(())
}

/// Runs a command's future on a runtime of one thread: the one that started the process.
pub(crate) fn on_runtime(work: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    check_files()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::system("the runtime could not be started", e))?;
    let result = runtime.block_on(work);
    // The process is about to end; taking the runtime down first would only make its caller wait.
    std::mem::forget(runtime);
    result
}
