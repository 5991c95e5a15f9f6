//! A driver that counts the verbs sent to the one it wraps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lockline::Name;
use lockline::driver::{Driver, DriverInfo, Guarantees, Query, Verb};
use lockline::line::{Claim, LineView, Place, Shut, Standing, Ticket};

/// How many verbs were sent.
#[derive(Debug, Default)]
pub struct Counts {
    join: AtomicU64,
    leave: AtomicU64,
    renew: AtomicU64,
    renewed: AtomicU64,
    largest_batch: AtomicU64,
    other: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    /// All verbs.
    pub verbs: u64,
    /// `renew`s among them.
    pub renew: u64,
    /// Places in those.
    pub renewed: u64,
}

impl Counts {
    /// The counts now.
    pub fn now(&self) -> Snapshot {
        let renew = self.renew.load(Relaxed);
        let verbs = self.join.load(Relaxed) + self.leave.load(Relaxed) + renew + self.other.load(Relaxed);
        Snapshot { verbs, renew, renewed: self.renewed.load(Relaxed) }
    }

    /// The most places in one `renew` so far.
    pub fn largest_batch(&self) -> u64 {
        self.largest_batch.load(Relaxed)
    }
}

impl Snapshot {
    /// What was counted since an earlier moment.
    #[must_use]
    pub fn since(self, earlier: Snapshot) -> Snapshot {
        Snapshot {
            verbs: self.verbs - earlier.verbs,
            renew: self.renew - earlier.renew,
            renewed: self.renewed - earlier.renewed,
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Counting {
    inner: Arc<dyn Driver>,
    counts: Arc<Counts>,
}

impl Counting {
    /// Counts what is sent to `inner`.
    pub fn new(inner: Arc<dyn Driver>, counts: Arc<Counts>) -> Counting {
        Counting { inner, counts }
    }
}

impl Driver for Counting {
    fn info(&self) -> &DriverInfo {
        self.inner.info()
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    fn shut(&self, name: Option<&Name>) -> Option<Shut> {
        self.inner.shut(name)
    }

    fn join<'a>(&'a self, claim: &'a Claim, wait: bool) -> Verb<'a, Standing> {
        self.counts.join.fetch_add(1, Relaxed);
        self.inner.join(claim, wait)
    }

    fn renew<'a>(&'a self, places: &'a [Place]) -> Verb<'a, Vec<Standing>> {
        self.counts.renew.fetch_add(1, Relaxed);
        self.counts.renewed.fetch_add(places.len() as u64, Relaxed);
        self.counts.largest_batch.fetch_max(places.len() as u64, Relaxed);
        self.inner.renew(places)
    }

    fn leave<'a>(&'a self, place: &'a Place) -> Verb<'a, ()> {
        self.counts.leave.fetch_add(1, Relaxed);
        self.inner.leave(place)
    }

    fn view<'a>(&'a self, query: &'a Query) -> Verb<'a, Vec<LineView>> {
        self.counts.other.fetch_add(1, Relaxed);
        self.inner.view(query)
    }

    fn evict<'a>(&'a self, name: &'a Name, ticket: Ticket, at_once: bool) -> Verb<'a, bool> {
        self.counts.other.fetch_add(1, Relaxed);
        self.inner.evict(name, ticket, at_once)
    }
}
