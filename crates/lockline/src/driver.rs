//! The contract between Lockline and an engine: six verbs, and a board of bells.
//!
//! Everything that is the same on every engine (waiting, timeouts, renewal, loss, reentrancy, cancellation, order of
//! several locks) is written once, above this trait. A driver does what its engine must do atomically, and nothing else.
//!
//! # What every driver promises
//! - **Each verb first drops all lapsed claims** of its line, wherever they stand, and rings whoever got in by it.
//! - **Everything is idempotent by claim id.** The same `join` again finds the same place and ticket, and extends it.
//! - **Three outcomes.** `Ok` is done or not done, as it says. An error of kind [`Unknown`](crate::ErrorKind::Unknown)
//!   may have been done; every other kind was not.
//! - **Order.** A `leave` that is called after a `join` of the same claim has ended takes effect after it, even if the
//!   future of the `join` was dropped half-way. (While it is still polled it may send more; who leaves meanwhile leaves again.)
//! - **Dropping a future is safe.** The verb may still happen; nothing else may break.
//! - **Deadlines come from above.** Core puts a deadline around each call and drops the future when it has passed.
//! - **Bells are hints.** A driver rings as well as it can; truth is what `renew` answers.
//! - **Errors carry no secret**, and name the engine by its redacted address.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::error::Result;
use crate::line::{Bell, Claim, ClaimId, LineView, Place, Shut, Standing, Ticket};
use crate::name::Name;

/// Where a driver rings its bells. Core registers a claim there *before* it joins, so a bell may come before the answer.
///
/// A test may put its own in between, to listen or to lose some.
pub trait BellBoard: Send + Sync + fmt::Debug + 'static {
    /// The engine says that something happened to this claim of ours. Never blocks.
    fn ring(&self, name: &Name, bell: &Bell);

    /// So many replicas have the claim's place as it was last granted or renewed. Said before the answer, or the bell, that
    /// it is about, by an engine that was asked to wait for them. Never blocks.
    fn acknowledged(&self, id: ClaimId, replicas: u32);

    /// Something happened that may let this waiting claim of ours in, but only `renew` can tell: it is to be looked at
    /// now. Never blocks.
    fn look_now(&self, id: ClaimId);

    /// Bells may have been lost (a reconnect, a gap): every waiting claim is to be looked at now. Never blocks.
    fn look_at_all(&self);
}

/// A shared [`BellBoard`], given to a driver when it is made.
pub type Bells = Arc<dyn BellBoard>;

/// The future of a verb.
pub type Verb<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// An engine's verbs. See the [module](self) for what each of them promises.
pub trait Driver: Send + Sync + fmt::Debug + 'static {
    /// What this engine is.
    fn info(&self) -> &DriverInfo;

    /// What a lock on this engine can promise *now*: a row of the guarantees page, read from the engine's own settings.
    ///
    /// An operator may weaken an engine while it runs, and then the row says less within a lease of any claim: a driver
    /// reads the settings it depends on with what it sends for `join` and `renew`. Never blocks.
    fn guarantees(&self) -> Guarantees;

    /// Whether nobody gets this lock yet, although the engine is up; without a name: whether nobody gets any. As far as is
    /// known without asking it, and told for a moment too long rather than too short: who is refused after that met
    /// somebody, and not a shut engine. Never blocks.
    ///
    /// Default: no. An engine that never forgets needs nothing else.
    fn shut(&self, name: Option<&Name>) -> Option<Shut> {
        let _ = name;
        None
    }

    /// Stands a claim in line, or finds it there and extends it. With `wait = false` a claim that is not in at once
    /// leaves nothing behind, and the answer is [`Standing::Out`].
    fn join<'a>(&'a self, claim: &'a Claim, wait: bool) -> Verb<'a, Standing>;

    /// Extends places, and tells where each stands, in the order asked: one engine trip for many. Never makes a place.
    /// An engine of several parts answers [`Standing::Unsure`] for places of a part that failed, and an error only if all did.
    fn renew<'a>(&'a self, places: &'a [Place]) -> Verb<'a, Vec<Standing>>;

    /// Removes a claim, in, waiting or unknown: afterwards nothing of it remains.
    fn leave<'a>(&'a self, place: &'a Place) -> Verb<'a, ()>;

    /// Holders and waiters, in order, for people. A line nobody stands in is not listed.
    fn view<'a>(&'a self, query: &'a Query) -> Verb<'a, Vec<LineView>>;

    /// Shows the place with this ticket out, if it is still there. See [`Line::evict`](crate::line::Line::evict).
    fn evict<'a>(&'a self, name: &'a Name, ticket: Ticket, at_once: bool) -> Verb<'a, bool>;
}

/// Which lines to view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// This one.
    Name(Name),
    /// All whose names start with this text; the empty text means all.
    Prefix(String),
}

impl Query {
    /// Whether a line of this name is asked for.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Query::Name(wanted) => wanted.as_str() == name,
            Query::Prefix(prefix) => name.starts_with(prefix.as_str()),
        }
    }
}

/// What an engine is.
#[derive(Clone, Debug)]
pub struct DriverInfo {
    /// The driver's short name, as in URLs and metrics: `sqlite`, `redis`.
    pub driver: &'static str,
    /// The engine's address without secrets, as shown in errors.
    pub address: Arc<str>,
}

/// What a lock on this engine can promise: a row of the guarantees page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guarantees {
    /// How far fencing tokens can be trusted to rise.
    pub fencing: Fencing,
    /// When two valid guards never overlap.
    pub exclusion: Exclusion,
}

/// How far a resource that checks fencing tokens is safe. Greater is stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fencing {
    /// There are no tokens: the lock's format, which others share, has none.
    None,
    /// Tokens are a plain counter of the engine: they rise while it keeps its data.
    Counted,
    /// Tokens rise unless the engine loses its memory *and* its clock is behind by more than the restart guard.
    ClockBounded,
    /// Tokens always rise.
    Always,
}

/// Under which condition two valid guards never overlap. Greater is stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Exclusion {
    /// Probable only: a failover or a crash may forget a lock.
    Probable,
    /// If the engine's wall clock does not step forward by more than the margin, and it keeps its data.
    NoForwardStep,
    /// The same, also over a failover.
    NoForwardStepOverFailover,
    /// If the *rates* of the clocks differ by less than the margin; what the clocks show does not matter.
    BoundedRates,
    /// Always.
    Always,
}

impl Guarantees {
    /// Whether this row is at least as strong as `demanded` in both columns.
    pub fn meets(&self, demanded: Guarantees) -> bool {
        self.fencing >= demanded.fencing && self.exclusion >= demanded.exclusion
    }
}

impl fmt::Display for Guarantees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fencing = match self.fencing {
            Fencing::None => "no tokens",
            Fencing::Counted => "tokens rising while the engine keeps its data",
            Fencing::ClockBounded => "tokens clock-bounded",
            Fencing::Always => "tokens always rising",
        };
        let exclusion = match self.exclusion {
            Exclusion::Probable => "probable exclusion",
            Exclusion::NoForwardStep => {
                "exclusion while the engine keeps its data and its clock does not step forward"
            }
            Exclusion::NoForwardStepOverFailover => {
                "exclusion, over failovers, while the clock does not step forward"
            }
            Exclusion::BoundedRates => "exclusion while clock rates stay within the margin",
            Exclusion::Always => "exclusion always",
        };
        write!(f, "{fencing}, {exclusion}")
    }
}
