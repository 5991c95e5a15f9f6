//! Fencing tokens, and the simplest resource that checks them.
//!
//! A lock says who *should* work; the token decides whose write *counts*. A holder can be stopped (a pause, a swap, a
//! suspended laptop) after it looked at its lock and before it wrote. No lock service can prevent that; a resource that
//! refuses tokens older than the newest it has seen can. See the fencing guide in `docs/fencing.md`.

#[cfg(feature = "etcd")]
pub mod etcd;
pub mod sql;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The token of one grant: later holders have larger ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence {
    token: u64,
    exclusive: bool,
}

impl Fence {
    /// No token: the engine gives none, see [`Fencing::None`](crate::driver::Fencing::None). Its number is 0, which is
    /// below every token, and a resource that checks tokens must refuse it: nothing tells whose write is newer.
    pub const NONE: Fence = Fence::new(0, true);

    pub(crate) const fn new(token: u64, exclusive: bool) -> Fence {
        Fence { token, exclusive }
    }

    /// A token that came from elsewhere, such as `LOCKLINE_TOKEN` in the environment, for an exclusive hold.
    pub const fn from_token(token: u64) -> Fence {
        Fence::new(token, true)
    }

    /// The number to store and to compare. It fits a signed 64-bit column and a JSON number.
    pub const fn token(self) -> u64 {
        self.token
    }

    /// Whether there is no token: see [`Fence::NONE`].
    pub const fn is_none(self) -> bool {
        self.token == 0
    }

    /// Whether the hold is exclusive. Co-holders (readers, permits) act in any order, so only exclusive tokens raise a
    /// resource's mark; the others are only checked against it.
    pub const fn is_exclusive(self) -> bool {
        self.exclusive
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.token.fmt(f)
    }
}

/// A gate before a resource in memory: lets a token pass unless a newer exclusive one has passed before.
///
/// ```
/// use lockline::fence::{Fence, Gate};
/// let gate = Gate::default();
/// assert!(gate.pass(Fence::from_token(41)).is_ok());
/// assert!(gate.pass(Fence::from_token(42)).is_ok());
/// assert!(gate.pass(Fence::from_token(41)).is_err());     // a holder that slept through its lease
/// ```
///
/// `pass` is one atomic step, but what you do after it is not part of that step: keep the gate and the write under one
/// mutex, or put the check into the write itself (a SQL predicate, a script), as `docs/fencing.md` shows.
#[derive(Debug, Default)]
pub struct Gate {
    newest: AtomicU64,
}

impl Gate {
    /// A gate that has seen `newest` already: what was stored beside the resource.
    pub const fn after(newest: u64) -> Gate {
        Gate { newest: AtomicU64::new(newest) }
    }

    /// Lets a token pass.
    ///
    /// # Errors
    /// [`Stale`] if a newer exclusive token has passed: whoever holds this one has lost its lock. So is
    /// [`Fence::NONE`], always.
    pub fn pass(&self, fence: Fence) -> Result<(), Stale> {
        if fence.is_none() {
            return Err(Stale { token: 0, newest: self.newest() });
        }
        let newest = if fence.exclusive {
            self.newest.fetch_max(fence.token, Ordering::AcqRel)
        } else {
            self.newest.load(Ordering::Acquire)
        };
        if fence.token < newest { Err(Stale { token: fence.token, newest }) } else { Ok(()) }
    }

    /// The newest exclusive token that has passed, to be stored beside the resource.
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }
}

/// A token that is older than one which has been seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The token that was shown.
    pub token: u64,
    /// The newest that had been seen.
    pub newest: u64,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.token == 0 {
            return f.write_str("no fencing token: the engine of this lock gives none");
        }
        write!(f, "stale fencing token {}: {} has been seen", self.token, self.newest)
    }
}

impl std::error::Error for Stale {}
