//! What the drivers of SQL servers share: how a claim is written in columns, how an answer is read, and how rows become
//! lines that people can read. What differs is each server's own: its dialect, its connections, its bell.
//!
//! On each server the line is the same two tables and the same five routines, checked against the pure machine. A routine
//! takes plain columns and answers one text: standings, separated by `;`, then one line for each bell that is to be rung in
//! the caller's own process.

mod address;
mod answer;
mod busy;
#[cfg(test)]
pub(super) mod certificates;
mod letters;
mod renew;
pub(super) mod shared;
#[cfg(test)]
pub(super) mod testing;
mod tls;
mod view;

pub(super) use address::{Login, host_and_port, warn_of_clear_password};
pub(super) use answer::Answer;
#[cfg(feature = "postgres")]
pub(super) use answer::decode_bell;
pub(super) use busy::{BusyRows, patience, stayed_locked};
pub(super) use letters::LetterBox;
pub(super) use renew::{Batch, RenewsRows, renew};
pub(super) use tls::{Trust, authorities_of, client_config, system_authorities};
pub(super) use view::{ClaimRow, assemble};

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind};
use crate::line::{Claim, Mode, Place, Ticket};

/// How many lines one call of a view looks at: short enough that nobody waits behind it.
pub(super) const LINES: usize = 64;

/// After how long a server that had no room for one more session may be asked again.
pub(super) const COME_AGAIN: Duration = Duration::from_millis(250);

/// The key of a line: a name is data, so only its hash is part of a key. Half of SHA-256 is more than anyone can find two
/// names for.
pub(super) fn line_key(name: &str) -> u128 {
    let hash = Sha256::digest(name.as_bytes());
    u128::from_be_bytes(hash[..16].try_into().unwrap_or_default())
}

/// A mode as three columns: kind, permits, limit.
pub(super) fn mode_columns(mode: Mode) -> (i16, i64, i64) {
    match mode {
        Mode::Exclusive => (0, 0, 0),
        Mode::Shared => (1, 0, 0),
        Mode::Permits { count, limit } => (2, count.into(), limit.into()),
    }
}

/// A duration as a column.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// A ticket as a column; none is 0, which no place has.
pub(super) fn ticket_column(ticket: Option<Ticket>) -> i64 {
    i64::try_from(ticket.map_or(0, Ticket::get)).unwrap_or(i64::MAX)
}

/// Whether a place asks for the final renewal, as a column; with its lease.
pub(super) fn lease_columns(place: &Place) -> (i64, bool) {
    (micros(place.lease), place.last)
}

/// An answer that none of our routines gives.
pub(super) fn nonsense(operation: &'static str, address: &Arc<str>) -> Error {
    Error::new(ErrorKind::Unknown, operation, "the server's answer makes no sense").at(address)
}

/// The claim's identity stands in the line in another mode.
pub(super) fn would_wait_for_itself(claim: &Claim, address: &Arc<str>) -> Error {
    let message = "this owner already stands in the line in another mode and would wait for itself";
    Error::new(ErrorKind::Deadlock, "join", message)
        .hint("release what the owner has on this name first")
        .about(&claim.name)
        .at(address)
}
