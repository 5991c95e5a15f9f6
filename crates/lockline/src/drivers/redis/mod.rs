#![doc = include_str!("GUIDE.md")]

mod bell;
pub(in crate::drivers) mod config;
pub(in crate::drivers) mod connection;
pub(in crate::drivers) mod error;
mod incarnation;
mod scripts;
pub(in crate::drivers) mod verbs;

#[cfg(test)]
pub(in crate::drivers) mod tests;

use std::fmt;

pub use config::{RedisConfig, RestartGuard};

use crate::driver::{Bells, Driver, DriverInfo, Exclusion, Fencing, Guarantees, Query, Verb};
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, LineView, Place, Standing, Ticket};
use crate::name::Name;
use connection::Connection;

/// Locks on one Redis server. See the [module](self).
pub struct Redis {
    info: DriverInfo,
    connection: Connection,
}

impl Redis {
    /// Connects, and refuses a server that locks cannot be trusted to. To be called inside a Tokio runtime with I/O and
    /// time enabled.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if it cannot be reached; [`Denied`](ErrorKind::Denied) for a wrong login
    /// or a missing right, which is named; [`Unsafe`](ErrorKind::Unsafe) for a replica, or a server that removes keys
    /// when its memory is full; [`Unsupported`](ErrorKind::Unsupported) for a version before 6.2, a Sentinel or a
    /// node of a cluster.
    pub async fn connect(config: RedisConfig, bells: Bells) -> Result<Redis> {
        tokio::runtime::Handle::try_current().map_err(|_| {
            Error::new(ErrorKind::Invalid, "connect", "there is no Tokio runtime here")
                .hint("call it inside a runtime, or use the blocking API")
        })?;
        let connection = Connection::open(config, bells).await?;
        let fencing = if connection.keeps_its_data { Fencing::Always } else { Fencing::ClockBounded };
        let info = DriverInfo {
            driver: "redis",
            address: connection.address.clone(),
            guarantees: Guarantees { fencing, exclusion: Exclusion::NoForwardStep },
        };
        Ok(Redis { info, connection })
    }
}

impl Driver for Redis {
    fn info(&self) -> &DriverInfo {
        &self.info
    }

    fn join<'a>(&'a self, claim: &'a Claim, wait: bool) -> Verb<'a, Standing> {
        Box::pin(self.connection.join(claim, wait))
    }

    fn renew<'a>(&'a self, places: &'a [Place]) -> Verb<'a, Vec<Standing>> {
        Box::pin(self.connection.renew(places))
    }

    fn leave<'a>(&'a self, place: &'a Place) -> Verb<'a, ()> {
        Box::pin(self.connection.leave(place))
    }

    fn view<'a>(&'a self, query: &'a Query) -> Verb<'a, Vec<LineView>> {
        Box::pin(self.connection.view(query))
    }

    fn evict<'a>(&'a self, name: &'a Name, ticket: Ticket, at_once: bool) -> Verb<'a, bool> {
        Box::pin(self.connection.evict(name, ticket, at_once))
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("address", &self.info.address).finish_non_exhaustive()
    }
}
