#![doc = include_str!("GUIDE.md")]

mod address;
mod bits;
mod config;
mod connection;
mod dial;
mod durability;
mod error;
mod renew;
mod schema;
mod shared;
mod tls;
mod verbs;

#[cfg(test)]
mod tests;

use std::fmt;

pub use crate::drivers::relational::shared::Layout;
pub use config::{Pooler, PostgresConfig, Tls};
pub use schema::sql as schema_sql;
pub use shared::shared_table_sql;

use crate::driver::{Bells, Driver, DriverInfo, Guarantees, Query, Verb};
use crate::drivers::foreign::Foreign;
use crate::drivers::relational;
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, LineView, Place, Standing, Ticket};
use crate::name::Name;
use verbs::Verbs;

/// Locks on a PostgreSQL server. See the [module](self).
pub struct Postgres {
    info: DriverInfo,
    locks: Locks,
}

/// How they are stored.
enum Locks {
    Line(Box<Verbs>),
    Foreign(Foreign),
}

impl Postgres {
    /// Connects, makes the schema if there is none, and refuses a server that locks cannot be trusted to. To be called
    /// inside a Tokio runtime with I/O and time enabled.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if it cannot be reached or is a standby; [`Denied`](ErrorKind::Denied) for a
    /// wrong login or a missing right; [`Unsafe`](ErrorKind::Unsafe) for a schema that is not ours;
    /// [`Unsupported`](ErrorKind::Unsupported) for one of a later version.
    pub async fn connect(config: PostgresConfig, bells: Bells) -> Result<Postgres> {
        tokio::runtime::Handle::try_current().map_err(|_| {
            Error::new(ErrorKind::Invalid, "connect", "there is no Tokio runtime here")
                .hint("call it inside a runtime, or use the blocking API")
        })?;
        config.check()?;
        let address = config.greet();
        let info = DriverInfo { driver: "postgres", address: address.clone() };
        let locks = match config.layout.clone() {
            Some(layout) => Locks::Foreign(shared::open(config, &layout, address, bells).await?),
            None => Locks::Line(Box::new(Verbs::open(config, address, bells).await?)),
        };
        Ok(Postgres { info, locks })
    }
}

#[cfg(test)]
impl Postgres {
    /// The verbs of Lockline's own layout.
    fn line(&self) -> &Verbs {
        match &self.locks {
            Locks::Line(line) => line,
            Locks::Foreign(_) => panic!("these are others' locks"),
        }
    }
}

impl Driver for Postgres {
    fn info(&self) -> &DriverInfo {
        &self.info
    }

    fn guarantees(&self) -> Guarantees {
        match &self.locks {
            Locks::Line(line) => line.guarantees(),
            Locks::Foreign(foreign) => foreign.guarantees(),
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
            Locks::Line(line) => Box::pin(relational::renew(&**line, places)),
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

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("address", &self.info.address).finish_non_exhaustive()
    }
}
