#![doc = include_str!("GUIDE.md")]

mod ballot;
mod ballots;
mod config;
mod hands;
mod nodes;
mod plain;
mod round;
mod tally;
mod tickets;
mod verbs;
mod view;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

pub use config::RedlockConfig;

use super::foreign::Foreign;
use super::redis::{Layout, layouts};
use crate::driver::{Bells, Driver, DriverInfo, Exclusion, Fencing, Guarantees, Query, Verb};
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, LineView, Place, Shut, Standing, Ticket};
use crate::name::Name;
use ballots::{Ballots, NodeBells};
use nodes::Nodes;
use plain::Plain;
use verbs::{Quorum, Turns};

/// Locks on a majority of independent Redis servers. See the [module](self).
pub struct Redlock {
    info: DriverInfo,
    locks: Locks,
}

/// How they are stored.
enum Locks {
    Line(Quorum),
    Foreign(Foreign),
}

impl Redlock {
    /// Connects to a majority of the nodes at least; a node that is down is connected when it comes back. To be called
    /// inside a Tokio runtime with I/O and time enabled.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for another number of nodes than 3, 5 or 7;
    /// [`Unavailable`](ErrorKind::Unavailable) if no majority can be reached; and what one of the nodes is refused for,
    /// as on one server.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind but scripts in the servers' caches.
    pub async fn connect(config: RedlockConfig, bells: Bells) -> Result<Redlock> {
        tokio::runtime::Handle::try_current().map_err(|_| {
            Error::new(ErrorKind::Invalid, "connect", "there is no Tokio runtime here")
                .hint("call it inside a runtime, or use the blocking API")
        })?;
        config.check()?;
        if config.layout() != Layout::Line {
            let store = Plain::connect(&config, &bells).await?;
            let foreign = layouts::plain(&config.nodes[0].space, Box::new(store), bells);
            let info = DriverInfo { driver: "redlock", address: foreign.address().clone() };
            return Ok(Redlock { info, locks: Locks::Foreign(foreign) });
        }
        let ballots = Arc::new(Ballots::new(config.nodes.len(), bells));
        let board = |node| Arc::new(NodeBells { node, ballots: ballots.clone() }) as Bells;
        let nodes = Arc::new(Nodes::open(&config, board).await?);
        let address = nodes.address().clone();
        let info = DriverInfo { driver: "redlock", address: address.clone() };
        let quorum = Quorum { config, address, nodes, ballots, turns: Turns::default() };
        Ok(Redlock { info, locks: Locks::Line(quorum) })
    }
}

impl Driver for Redlock {
    fn info(&self) -> &DriverInfo {
        &self.info
    }

    fn guarantees(&self) -> Guarantees {
        match &self.locks {
            Locks::Line(quorum) => {
                let all_keep = quorum.nodes.all_keep_their_data();
                let fencing = if all_keep { Fencing::Always } else { Fencing::ClockBounded };
                Guarantees { fencing, exclusion: Exclusion::NoForwardStepOverFailover }
            }
            Locks::Foreign(foreign) => foreign.guarantees(),
        }
    }

    fn shut(&self, _: Option<&Name>) -> Option<Shut> {
        match &self.locks {
            Locks::Line(quorum) => quorum.nodes.shut(),
            Locks::Foreign(_) => None,
        }
    }

    fn join<'a>(&'a self, claim: &'a Claim, wait: bool) -> Verb<'a, Standing> {
        match &self.locks {
            Locks::Line(quorum) => Box::pin(quorum.join(claim, wait)),
            Locks::Foreign(foreign) => Box::pin(foreign.join(claim, wait)),
        }
    }

    fn renew<'a>(&'a self, places: &'a [Place]) -> Verb<'a, Vec<Standing>> {
        match &self.locks {
            Locks::Line(quorum) => Box::pin(quorum.renew(places)),
            Locks::Foreign(foreign) => Box::pin(foreign.renew(places)),
        }
    }

    fn leave<'a>(&'a self, place: &'a Place) -> Verb<'a, ()> {
        match &self.locks {
            Locks::Line(quorum) => Box::pin(quorum.leave(place)),
            Locks::Foreign(foreign) => Box::pin(foreign.leave(place)),
        }
    }

    fn view<'a>(&'a self, query: &'a Query) -> Verb<'a, Vec<LineView>> {
        match &self.locks {
            Locks::Line(quorum) => Box::pin(quorum.view(query)),
            Locks::Foreign(foreign) => Box::pin(foreign.view(query)),
        }
    }

    fn evict<'a>(&'a self, name: &'a Name, ticket: Ticket, at_once: bool) -> Verb<'a, bool> {
        match &self.locks {
            Locks::Line(quorum) => Box::pin(quorum.evict(name, ticket, at_once)),
            Locks::Foreign(foreign) => Box::pin(foreign.evict(name, ticket, at_once)),
        }
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock").field("address", &self.info.address).finish_non_exhaustive()
    }
}
