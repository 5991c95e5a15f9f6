#![doc = include_str!("GUIDE.md")]

pub(in crate::drivers) mod address;
pub(in crate::drivers) mod answers;
mod bell;
mod cluster;
pub(in crate::drivers) mod config;
pub(in crate::drivers) mod connection;
mod dial;
pub(in crate::drivers) mod error;
mod incarnation;
pub(in crate::drivers) mod layouts;
mod lent;
mod link;
mod live;
mod map;
mod met;
mod outbox;
mod pass;
mod replicas;
mod scripts;
mod sentinel;
mod slots;
mod tls;
pub(in crate::drivers) mod verbs;

#[cfg(test)]
pub(in crate::drivers) mod tests;

use std::fmt;

pub use config::{RedisConfig, Replicas, RestartGuard};
pub use layouts::Layout;
pub use tls::Tls;

use crate::driver::{Bells, Driver, DriverInfo, Guarantees, Query, Verb};
use crate::drivers::foreign::Foreign;
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, LineView, Place, Shut, Standing, Ticket};
use crate::name::Name;
use connection::Connection;

/// Locks on Redis. See the [module](self).
pub struct Redis {
    info: DriverInfo,
    locks: Locks,
}

/// How they are stored.
enum Locks {
    Line(Box<Connection>),
    Foreign(Foreign),
}

impl Redis {
    /// Connects, and refuses a server that locks cannot be trusted to. To be called inside a Tokio runtime with I/O and
    /// time enabled.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if it cannot be reached; [`Denied`](ErrorKind::Denied) for a wrong login
    /// or a missing right, which is named, and for certificates that are not accepted; [`Unsafe`](ErrorKind::Unsafe) for
    /// a replica, or a server that removes keys when its memory is full; [`Unsupported`](ErrorKind::Unsupported) for a
    /// version before 6.2, and for a server of another kind than the address says.
    pub async fn connect(config: RedisConfig, bells: Bells) -> Result<Redis> {
        tokio::runtime::Handle::try_current().map_err(|_| {
            Error::new(ErrorKind::Invalid, "connect", "there is no Tokio runtime here")
                .hint("call it inside a runtime, or use the blocking API")
        })?;
        if config.layout != Layout::Line {
            let locks = layouts::connect(&config, bells).await?;
            let info = DriverInfo { driver: "redis", address: locks.address().clone() };
            return Ok(Redis { info, locks: Locks::Foreign(locks) });
        }
        let connection = Connection::open(config, bells).await?;
        let info = DriverInfo { driver: "redis", address: connection.address.clone() };
        Ok(Redis { info, locks: Locks::Line(Box::new(connection)) })
    }
}

#[cfg(test)]
impl Redis {
    /// The connection of Lockline's own layout.
    fn line(&self) -> &Connection {
        match &self.locks {
            Locks::Line(line) => line,
            Locks::Foreign(_) => panic!("these are others' locks"),
        }
    }
}

impl Driver for Redis {
    fn info(&self) -> &DriverInfo {
        &self.info
    }

    fn guarantees(&self) -> Guarantees {
        match &self.locks {
            Locks::Line(connection) => connection.guarantees(),
            Locks::Foreign(locks) => locks.guarantees(),
        }
    }

    fn shut(&self, name: Option<&Name>) -> Option<Shut> {
        match &self.locks {
            Locks::Line(connection) => connection.shut(name),
            // Their formats know no guard.
            Locks::Foreign(_) => None,
        }
    }

    fn join<'a>(&'a self, claim: &'a Claim, wait: bool) -> Verb<'a, Standing> {
        match &self.locks {
            Locks::Line(line) => Box::pin(line.join(claim, wait)),
            Locks::Foreign(foreign) => Box::pin(foreign.join(claim, wait)),
        }
    }

    fn renew<'a>(&'a self, places: &'a [Place]) -> Verb<'a, Vec<Standing>> {
        match &self.locks {
            Locks::Line(line) => Box::pin(line.renew(places)),
            Locks::Foreign(foreign) => Box::pin(foreign.renew(places)),
        }
    }

    fn leave<'a>(&'a self, place: &'a Place) -> Verb<'a, ()> {
        match &self.locks {
            Locks::Line(line) => Box::pin(line.leave(place)),
            Locks::Foreign(foreign) => Box::pin(foreign.leave(place)),
        }
    }

    fn view<'a>(&'a self, query: &'a Query) -> Verb<'a, Vec<LineView>> {
        match &self.locks {
            Locks::Line(line) => Box::pin(line.view(query)),
            Locks::Foreign(foreign) => Box::pin(foreign.view(query)),
        }
    }

    fn evict<'a>(&'a self, name: &'a Name, ticket: Ticket, at_once: bool) -> Verb<'a, bool> {
        match &self.locks {
            Locks::Line(line) => Box::pin(line.evict(name, ticket, at_once)),
            Locks::Foreign(foreign) => Box::pin(foreign.evict(name, ticket, at_once)),
        }
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("address", &self.info.address).finish_non_exhaustive()
    }
}
