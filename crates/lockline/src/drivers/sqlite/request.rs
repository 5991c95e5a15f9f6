//! What the worker is asked for.

use std::sync::mpsc::Sender;

use tokio::sync::oneshot;

use super::process::Process;
use super::verbs::Ledger;
use crate::driver::Query;
use crate::error::Error;
use crate::line::{Claim, ClaimId, LineView, Place, Refusal, Standing, Ticket};
use crate::name::Name;

pub(super) type Queue = Sender<Request>;
pub(super) type Reply = oneshot::Sender<Result<Done, Error>>;
pub(super) type ViewReply = oneshot::Sender<Result<Vec<LineView>, Error>>;

#[derive(Debug)]
pub(super) enum Request {
    Work(Work, Reply),
    View(Query, ViewReply),
    /// A watched process ended.
    Died(Process),
}

/// What changes lines.
#[derive(Debug)]
pub(super) enum Work {
    Join(Claim, bool),
    Renew(Vec<Place>),
    Leave(Name, ClaimId),
    Evict(Name, Ticket, bool),
}

/// The answer to it.
#[derive(Debug)]
pub(super) enum Done {
    Joined(Result<Standing, Refusal>),
    Renewed(Vec<Standing>),
    Left,
    Evicted(bool),
}

impl Work {
    pub(super) fn run(&self, ledger: &mut Ledger<'_>) -> rusqlite::Result<Done> {
        Ok(match self {
            Work::Join(claim, wait) => Done::Joined(ledger.join(claim, *wait)?),
            Work::Renew(places) => Done::Renewed(
                places.iter().map(|place| ledger.renew(place)).collect::<rusqlite::Result<_>>()?,
            ),
            Work::Leave(name, id) => {
                ledger.leave(name, *id)?;
                Done::Left
            }
            Work::Evict(name, ticket, at_once) => Done::Evicted(ledger.evict(name, *ticket, *at_once)?),
        })
    }

    /// The claim that leaves by it.
    pub(super) fn left(&self) -> Option<(Name, ClaimId)> {
        match self {
            Work::Leave(name, id) => Some((name.clone(), *id)),
            _ => None,
        }
    }

    pub(super) fn verb(&self) -> &'static str {
        match self {
            Work::Join(..) => "join",
            Work::Renew(..) => "renew",
            Work::Leave(..) => "leave",
            Work::Evict(..) => "evict",
        }
    }
}
