//! What can go wrong, and what to do about it.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::name::Name;

/// What kind of failure it is: what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call itself is wrong (name, URL, lease, count): nothing was sent. Fix the call.
    Invalid,
    /// Granting it would make the owner wait for itself: nothing was sent. Fix the order of the calls.
    Deadlock,
    /// This engine cannot do it, or cannot promise what was demanded. Choose another engine or ask for less.
    Unsupported,
    /// The engine could not be reached, did not answer in time, or is up but grants nothing yet, and nothing was done. Try
    /// later; [`Error::retry_after`] says when, if that is known.
    Unavailable,
    /// The engine may or may not have done it; whatever it did ends with the lease. Ask again.
    Unknown,
    /// The engine refused this user: wrong password or missing right. Retrying does not help.
    Denied,
    /// The engine is set up, or its data is, in a way a lock cannot be trusted to. The message says what to change.
    Unsafe,
    /// The engine is out of disk or memory: no new claims, but holders can still renew and release.
    Full,
    /// The lock was lost while it was held.
    Lost,
    /// The claim was evicted by an operator while it waited.
    Evicted,
    /// This client has been shut down, or the process is a fork of the one that made it.
    Closed,
    /// A limit of this client was reached, such as the number of claims at once, or the server takes no more connections. Try later.
    Limit,
}

impl ErrorKind {
    /// Whether the same call may succeed later without any change by the caller.
    pub fn is_transient(self) -> bool {
        matches!(self, ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::Full | ErrorKind::Limit)
    }

    /// What helps against most failures of this kind, where whoever reports one knows nothing better.
    const fn usual_hint(self) -> &'static str {
        match self {
            ErrorKind::Invalid => {
                "nothing was sent: correct what the message names; the engine's guide lists its options"
            }
            ErrorKind::Deadlock => {
                "let go of the one before asking for the other, or ask for all of them at once"
            }
            ErrorKind::Unsupported => "the table of engines in the README says which can; or ask for less",
            ErrorKind::Unavailable => "check that the engine runs and can be reached; then ask again",
            ErrorKind::Unknown => "ask again; whatever was done ends with the lease",
            ErrorKind::Denied => {
                "check user, password and rights; the engine's guide lists the rights that locks need"
            }
            ErrorKind::Unsafe => "change what the message names, or use another engine for locks",
            ErrorKind::Full => "make room in the engine; holders can still renew and release",
            ErrorKind::Lost => {
                "stop what the lock protected, and take it again; a fencing token keeps late writes out"
            }
            ErrorKind::Evicted => "an operator removed the claim; ask whoever did before asking again",
            ErrorKind::Closed => "connect anew, in this process",
            ErrorKind::Limit => "drop guards that are no longer needed, or raise Builder::most_claims",
        }
    }
}

/// The result of most of what Lockline does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn StdError + Send + Sync + 'static>;

/// A failure: its [kind](ErrorKind), the operation, the lock, the engine (never a secret), and the cause.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    operation: &'static str,
    message: Cow<'static, str>,
    name: Option<Name>,
    engine: Option<Arc<str>>,
    hint: Option<Cow<'static, str>>,
    retry_after: Option<Duration>,
    source: Option<Source>,
}

impl Error {
    /// A failure of `operation`. `message` is one line that says what is wrong and must not contain a secret.
    pub fn new(kind: ErrorKind, operation: &'static str, message: impl Into<Cow<'static, str>>) -> Error {
        let message = message.into();
        Error(Box::new(Inner {
            kind,
            operation,
            message,
            name: None,
            engine: None,
            hint: None,
            retry_after: None,
            source: None,
        }))
    }

    /// Adds the lock it is about, unless one is named already.
    #[must_use]
    pub fn about(mut self, name: &Name) -> Error {
        self.0.name.get_or_insert_with(|| name.clone());
        self
    }

    /// Adds the engine's redacted address, unless one is named already.
    #[must_use]
    pub fn at(mut self, engine: &Arc<str>) -> Error {
        self.0.engine.get_or_insert_with(|| engine.clone());
        self
    }

    /// Adds what the reader could do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds when the same call may succeed.
    #[must_use]
    pub fn again_after(mut self, rest: Duration) -> Error {
        self.0.retry_after = Some(rest);
        self
    }

    /// Adds the cause. Its text must not contain a secret.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Source>) -> Error {
        self.0.source = Some(source.into());
        self
    }

    /// The same once more, for somebody else who has to be told: its cause as a text.
    pub(crate) fn again(&self) -> Error {
        let Inner { kind, operation, message, name, engine, hint, retry_after, source } = &*self.0;
        Error(Box::new(Inner {
            kind: *kind,
            operation,
            message: message.clone(),
            name: name.clone(),
            engine: engine.clone(),
            hint: hint.clone(),
            retry_after: *retry_after,
            source: source.as_ref().map(|source| source.to_string().into()),
        }))
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was being done.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The lock it is about.
    pub fn name(&self) -> Option<&Name> {
        self.0.name.as_ref()
    }

    /// The engine's address, without secrets.
    pub fn engine(&self) -> Option<&str> {
        self.0.engine.as_deref()
    }

    /// What is wrong, without the rest of the context.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What the reader could do about it, if that can be said.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref().or(Some(self.0.kind.usual_hint()))
    }

    /// How long to wait before the same call may succeed, if the engine says so: after a restart it grants nothing until
    /// the leases from before must have ended.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.operation, self.0.message)?;
        if let Some(name) = &self.0.name {
            write!(f, " (lock {:?})", name.as_str())?;
        }
        if let Some(engine) = &self.0.engine {
            write!(f, " [{engine}]")?;
        }
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {self}", self.0.kind)?;
        self.hint_text().map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // The cause's text is part of `Display` already; what lies behind it is what a report goes on with.
        self.0.source.as_ref().and_then(|source| source.source())
    }
}

/// Why a guard no longer protects anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// Its lease ran out: a fixed lease ended, or the process was stopped or too busy to renew in time.
    Expired,
    /// An operator evicted it.
    Evicted,
    /// The engine no longer knows it although its lease had not run out: restarted, failed over, flushed.
    Forgotten,
    /// The engine could not be reached until the lease ran out.
    Unreachable,
    /// It was held for as long as `max_hold` allows.
    MaxHold,
    /// The engine was set up anew while it ran, and promises less than the client demanded
    /// ([`Builder::require`](crate::Builder::require)).
    Weakened,
    /// The client was shut down.
    Shutdown,
    /// This process is a fork of the one that holds it.
    Forked,
}

impl LossReason {
    /// The word used for this reason in metrics and JSON.
    pub const fn word(self) -> &'static str {
        match self {
            LossReason::Expired => "expired",
            LossReason::Evicted => "evicted",
            LossReason::Forgotten => "forgotten",
            LossReason::Unreachable => "unreachable",
            LossReason::MaxHold => "max_hold",
            LossReason::Weakened => "weakened",
            LossReason::Shutdown => "shutdown",
            LossReason::Forked => "forked",
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LossReason::Expired => "its lease ran out",
            LossReason::Evicted => "it was evicted",
            LossReason::Forgotten => "the engine forgot it",
            LossReason::Unreachable => "the engine could not be reached until its lease ran out",
            LossReason::MaxHold => "it was held for as long as max_hold allows",
            LossReason::Weakened => "the engine now promises less than was demanded",
            LossReason::Shutdown => "the client was shut down",
            LossReason::Forked => "this process is a fork of its holder",
        })
    }
}

/// The lock was lost while it was held: whatever it protected may be in other hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The lock that was lost.
    pub name: Name,
    /// Why.
    pub reason: LossReason,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lost the lock {:?}: {}", self.name.as_str(), self.reason)
    }
}

impl StdError for Lost {}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Error {
        Error::new(ErrorKind::Lost, "hold", lost.reason.to_string()).about(&lost.name)
    }
}
