//! A line as people see it.

use std::time::Duration;

use super::{Mode, Shut, Ticket, Who};
use crate::name::Name;

/// One lock: who holds it and who waits, in line order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineView {
    /// The lock.
    pub name: Name,
    /// The claims that are in.
    pub holders: Vec<ClaimView>,
    /// The claims that wait.
    pub waiters: Vec<ClaimView>,
    /// Nobody gets it yet, although the engine is up.
    pub shut: Option<Shut>,
}

impl LineView {
    /// The line of a lock that nobody wants.
    pub fn free(name: Name) -> LineView {
        LineView { name, holders: Vec::new(), waiters: Vec::new(), shut: None }
    }
}

/// One claim in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimView {
    /// Its ticket: once in, its fencing token.
    pub ticket: Ticket,
    /// Alone, shared, or some permits.
    pub mode: Mode,
    /// Who claims.
    pub who: Who,
    /// What is left of its lease.
    pub remaining: Duration,
    /// How long it has stood in line, waiting and holding together.
    pub since: Duration,
    /// How long it has been in; `None` while it waits, and where the engine does not keep it. The rest of `since` it waited.
    pub held: Option<Duration>,
    /// It was evicted while it was in, and only its lease still stands there.
    pub evicted: bool,
}
