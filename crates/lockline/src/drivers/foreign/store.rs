//! Where the locks of a layout are: on one server, on a majority of several, or in a table.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::Verb;
use crate::error::Result;
use crate::line::{ClaimId, ClaimView, Place, Ticket};
use crate::name::Name;

/// A question about one lock.
#[derive(Clone, Debug)]
pub(in crate::drivers) struct Ask {
    pub(in crate::drivers) key: String,
    pub(in crate::drivers) id: ClaimId,
    pub(in crate::drivers) lease: Duration,
    /// What is written if the lock is taken.
    pub(in crate::drivers) text: String,
    /// The token that is known, where there are tokens.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only formats of Redis have tokens"))]
    pub(in crate::drivers) known: String,
}

impl Ask {
    pub(super) fn of(place: &Place, key: String, text: String, known: String) -> Ask {
        Ask { key, id: place.id, lease: place.lease, text, known }
    }
}

/// Where a claim stands on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::drivers) enum Found {
    In(Ticket),
    Evicted,
    /// Somebody else holds it, for so long at most; `None` if that has no end.
    Busy(Option<Duration>),
    /// Nobody holds it, and it was not asked for.
    Free,
    /// Somebody waits for it as a fair lock.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only on Redis"))]
    Fair,
    /// The key is something else.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only on Redis"))]
    NoLock,
    /// Too few servers answered to say anything.
    Unsure,
}

/// What stands under a key.
#[derive(Clone, Debug)]
pub(in crate::drivers) struct Seen {
    pub(in crate::drivers) stored: String,
    pub(in crate::drivers) view: ClaimView,
    /// Whether it ends by itself.
    pub(in crate::drivers) has_end: bool,
}

/// What became of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::drivers) enum Eviction {
    Done,
    /// Something else stands there.
    NotThere,
    /// It has no lease that could end.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only on Redis"))]
    NoEnd,
}

/// Where the locks of a layout are. Everything about waiting is done above it, once.
pub(in crate::drivers) trait Store: fmt::Debug + Send + Sync {
    fn address(&self) -> &Arc<str>;

    /// Whether what it answered is there again after a restart.
    fn keeps_its_data(&self) -> bool;

    /// Refuses a lock that cannot be stored here, before anything is sent.
    fn check(&self, _name: &Name, _key: &str) -> Result<()> {
        Ok(())
    }

    /// Takes a free lock; finds out where the claim stands if it is not free: it may be in, if an answer was lost.
    ///
    /// Only its first command may take the lock, and that is sent when the future is first polled: so a release that is
    /// asked for later comes behind it.
    fn take<'a>(&'a self, ask: &'a Ask) -> Verb<'a, Found>;

    /// Takes each lock that is free, in one trip, and extends each that is held by the one who asks.
    fn acquire<'a>(&'a self, asks: &'a [Ask]) -> Verb<'a, Vec<Found>>;

    /// Extends each lock that is held by the one who asks, in one trip.
    fn extend<'a>(&'a self, operation: &'static str, asks: &'a [Ask]) -> Verb<'a, Vec<Found>>;

    /// Lets go of a lock, if this claim holds it. The lease it was asked for with, 0 if that is not known, says how long
    /// servers may be waited for.
    fn release<'a>(&'a self, key: &'a str, id: ClaimId, lease: Duration) -> Verb<'a, ()>;

    /// What stands under each key.
    fn look<'a>(&'a self, operation: &'static str, keys: &'a [String]) -> Verb<'a, Vec<Option<Seen>>>;

    /// The names of all keys that may be locks.
    fn names<'a>(&'a self, prefix: &'a str) -> Verb<'a, Vec<Name>>;

    /// Evicts whoever is stored under the key as this.
    fn evict<'a>(&'a self, key: &'a str, stored: &'a str, at_once: bool) -> Verb<'a, Eviction>;

    /// Listens to a channel. `true` if it did not before: what was said until now was not heard.
    ///
    /// Like the next one, only for formats that have channels.
    fn listen<'a>(&'a self, _channel: &'a str) -> Verb<'a, bool> {
        Box::pin(std::future::ready(Ok(false)))
    }

    /// Stops listening to a channel, unless somebody needs it again.
    fn stop_listening<'a>(
        &'a self,
        _channel: &'a str,
        _needed: Box<dyn FnOnce() -> bool + Send + 'a>,
    ) -> Verb<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}
