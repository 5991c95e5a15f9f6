//! The locks of other clients, held as they hold them: for fleets that lock in several languages.
//!
//! There is no line in these formats. A claim that waits stands in this process only ([`waiters`]), and asks again: on a
//! message, where the others send one, and after a pause anyway. So there is no order between clients, and no ticket
//! before a claim is in. Modes other than exclusive, and identities that several processes share, are refused before
//! anything is sent.
//!
//! [`verbs`] is what is the same everywhere. A [`Format`] says how a claim is written, a [`Store`] where the locks are: on one
//! Redis server (`drivers/redis/layouts`), on a majority of several (`drivers/redlock/plain`), or in a table of a SQL server
//! (`drivers/relational/shared`).

mod people;
mod store;
mod verbs;
mod waiters;

use std::fmt;

use sha2::{Digest, Sha256};

use crate::line::{Claim, ClaimId, Ticket, Who};

pub(super) use store::{Ask, Eviction, Found, Seen, Store};
pub(super) use verbs::Foreign;
#[cfg(feature = "redis")]
pub(super) use waiters::Waiters;

/// How a layout writes a claim, wherever it is kept.
pub(super) trait Format: Send + Sync + fmt::Debug {
    /// By what the engine knows a claim.
    fn mark(&self, id: ClaimId) -> String;
    /// What a claim writes.
    fn text(&self, claim: &Claim) -> String;
    /// Whether its holders have tokens.
    fn fenced(&self) -> bool {
        false
    }
    /// Where a release is announced; `None` if nobody tells.
    fn channel(&self, _key: &str) -> Option<String> {
        None
    }
}

/// Who holds a lock.
#[derive(Debug)]
pub(super) struct Holder {
    /// What its ticket is made from, where there are no tokens.
    pub(super) named_by: String,
    pub(super) who: Who,
    pub(super) evicted: bool,
}

/// A number for a holder, where there are no tokens: it tells one from another, and nothing about who came first.
pub(super) fn ticket_of(named_by: &str) -> Ticket {
    let hash = Sha256::digest(named_by.as_bytes());
    let bits = u64::from_be_bytes(hash[..8].try_into().unwrap_or_default());
    // Like tokens it fits a JSON number, and it is not the ticket before all tickets.
    Ticket::new((bits >> 12).max(1))
}

/// What a claim of ours writes where there is room for a text: its id, and who it is.
pub(super) fn signature(claim: &Claim) -> String {
    let Who { owner, host, pid } = &*claim.who;
    format!("{:032x} {pid} {} {owner}", claim.id.as_u128(), host.replace(' ', "_"))
}

/// Reads a [`signature`]: the id and the space behind it, and who it is. `None` if somebody else wrote it.
pub(super) fn signed(text: &str) -> Option<(&str, Who)> {
    let (id, rest) = text.split_at_checked(32)?;
    id.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
    let mut parts = rest.strip_prefix(' ')?.splitn(3, ' ');
    let (pid, host, owner) = (parts.next()?, parts.next()?, parts.next()?);
    let who = Who { owner: owner.to_owned(), host: host.to_owned(), pid: pid.parse().ok()? };
    Some((&text[..33], who))
}

/// A holder of which nothing is known but that it is none of ours.
pub(super) fn another(owner: &str) -> Who {
    let owner = if owner.is_empty() { "(another client)" } else { owner };
    Who { owner: owner.to_owned(), host: String::new(), pid: 0 }
}
