#![doc = include_str!("GUIDE.md")]

mod bits;
mod config;
mod connection;
mod dial;
mod durability;
mod error;
mod renew;
mod schema;
mod tls;
mod verbs;

#[cfg(test)]
mod tests;

use std::fmt;

pub use config::{Pooler, PostgresConfig, Tls};
pub use schema::sql as schema_sql;

use crate::driver::{Bells, Driver, DriverInfo, Guarantees, Query, Verb};
use crate::drivers::relational;
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, LineView, Place, Standing, Ticket};
use crate::name::Name;
use verbs::Verbs;

/// Locks on a PostgreSQL server. See the [module](self).
pub struct Postgres {
    info: DriverInfo,
    verbs: Verbs,
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
        let verbs = Verbs::open(config, bells).await?;
        let info = DriverInfo { driver: "postgres", address: verbs.address().clone() };
        Ok(Postgres { info, verbs })
    }
}

impl Driver for Postgres {
    fn info(&self) -> &DriverInfo {
        &self.info
    }

    fn guarantees(&self) -> Guarantees {
        self.verbs.guarantees()
    }

    fn join<'a>(&'a self, claim: &'a Claim, wait: bool) -> Verb<'a, Standing> {
        Box::pin(self.verbs.join(claim, wait))
    }

    fn renew<'a>(&'a self, places: &'a [Place]) -> Verb<'a, Vec<Standing>> {
        Box::pin(relational::renew(&self.verbs, places))
    }

    fn leave<'a>(&'a self, place: &'a Place) -> Verb<'a, ()> {
        Box::pin(self.verbs.leave(place))
    }

    fn view<'a>(&'a self, query: &'a Query) -> Verb<'a, Vec<LineView>> {
        Box::pin(self.verbs.view(query))
    }

    fn evict<'a>(&'a self, name: &'a Name, ticket: Ticket, at_once: bool) -> Verb<'a, bool> {
        Box::pin(self.verbs.evict(name, ticket, at_once))
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("address", &self.info.address).finish_non_exhaustive()
    }
}
