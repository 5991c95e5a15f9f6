//! The locks of other clients, held as they hold them: for fleets that lock in several languages.
//!
//! There is no line in these formats. A claim that waits stands in this process only ([`waiters`]), and asks again: on a
//! message, where the others send one, and after a pause anyway. So there is no order between clients, and no ticket
//! before a claim is in. Modes other than exclusive, and identities that several processes share, are refused before
//! anything is sent.
//!
//! [`foreign`] is the verbs, [`store`] where the locks are: on one [`server`], or on a majority of several
//! (`drivers/redlock/plain`).

mod ear;
mod foreign;
mod link;
mod people;
mod plain;
mod redisson;
mod server;
mod store;
mod waiters;

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use redis::Cmd;
use sha2::{Digest, Sha256};

use crate::line::{Claim, ClaimId, Ticket, Who};

pub(in crate::drivers) use foreign::Foreign;
pub(in crate::drivers) use server::Server;
pub(in crate::drivers) use store::{Ask, Eviction, Found, Seen, Store};

/// How locks are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Layout {
    /// Lockline's own: a line, with order, tokens and every primitive.
    #[default]
    Line,
    /// A string per lock, as redis-py's `Lock`, node `redlock`, redsync and others keep it. Mutexes only, no order, no
    /// tokens.
    Plain,
    /// A hash per lock, as Redisson's `RLock` keeps it. Mutexes only, no order, no tokens.
    Redisson,
    /// The same with a token per holder, as Redisson's `RFencedLock` keeps it.
    RedissonFenced,
}

/// A layout's scripts, in the order of [`link::Script`].
type Scripts = [&'static str; 5];

/// What is different from one layout to the other. All of it is text: what is sent is the same for all.
trait Format: Send + Sync + fmt::Debug {
    fn scripts(&self) -> &'static Scripts;
    /// The type of a lock's key, as the server calls it.
    fn stored_as(&self) -> &'static str;
    /// The keys that the scripts want for a lock.
    fn keys(&self, key: &str) -> Vec<String>;
    /// By what the server knows a claim.
    fn mark(&self, id: ClaimId) -> String;
    /// What a claim writes.
    fn text(&self, claim: &Claim) -> String;
    /// A single command that takes a free lock, if there is one.
    fn take(&self, key: &str, text: &str, lease: Duration) -> Option<Cmd>;
    /// Where a release is announced.
    fn channel(&self, key: &str) -> Option<String>;
    /// The keys whose releases are announced there.
    fn announced_on<'a>(&self, channel: &'a str) -> Vec<&'a str>;
    /// Who it is that stands on the server; `None` if that is no lock.
    fn holder(&self, text: &str) -> Option<Holder>;
}

/// The format of a layout, and whether its holders have tokens.
fn format_of(layout: Layout) -> (&'static dyn Format, bool) {
    match layout {
        // Lockline's own layout has a driver of its own.
        Layout::Line | Layout::Plain => (&plain::Plain, false),
        Layout::Redisson => (&redisson::Redisson { fenced: false }, false),
        Layout::RedissonFenced => (&redisson::Redisson { fenced: true }, true),
    }
}

/// Who holds a lock.
struct Holder {
    /// What its ticket is made from, where there are no tokens.
    named_by: String,
    who: Who,
    evicted: bool,
}

/// A number for a holder, where there are no tokens: it tells one from another, and nothing about who came first.
fn ticket_of(named_by: &str) -> Ticket {
    let hash = Sha256::digest(named_by.as_bytes());
    let bits = u64::from_be_bytes(hash[..8].try_into().unwrap_or_default());
    // Like tokens it fits a JSON number, and it is not the ticket before all tickets.
    Ticket::new((bits >> 12).max(1))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
