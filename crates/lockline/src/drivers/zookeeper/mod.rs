#![doc = include_str!("GUIDE.md")]

mod bell;
mod claims;
mod config;
mod error;
mod lists;
mod node;
mod path;
mod recipe;
mod renew;
mod session;
mod share;
mod verbs;
mod view;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

pub use config::{Access, ZookeeperConfig};

use crate::driver::{Bells, Driver, DriverInfo, Exclusion, Fencing, Guarantees, Query, Verb};
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, LineView, Place, Standing, Ticket};
use crate::name::Name;
use claims::Inner;
use session::Sessions;
pub(crate) use view::znode_of;

/// Locks on a ZooKeeper ensemble. See the [module](self).
pub struct Zookeeper {
    info: DriverInfo,
    inner: Arc<Inner>,
}

impl Zookeeper {
    /// Connects. To be called inside a Tokio runtime with time enabled.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if no server can be reached, or none has a quorum;
    /// [`Denied`](ErrorKind::Denied) for a login that the ensemble refuses; [`Invalid`](ErrorKind::Invalid) for a
    /// configuration that makes no sense.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind but a session that ends by itself.
    pub async fn connect(config: ZookeeperConfig, bells: Bells) -> Result<Zookeeper> {
        tokio::runtime::Handle::try_current().map_err(|_| {
            Error::new(ErrorKind::Invalid, "connect", "there is no Tokio runtime here")
                .hint("call it inside a runtime, or use the blocking API")
        })?;
        config.check()?;
        let inner = Inner::new(Sessions::new(config), bells);
        inner.session("connect", view::USUAL_LEASE).await?;
        let info = DriverInfo { driver: "zookeeper", address: inner.sessions.address.clone() };
        Ok(Zookeeper { info, inner })
    }
}

impl Driver for Zookeeper {
    fn info(&self) -> &DriverInfo {
        &self.info
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees { fencing: Fencing::Always, exclusion: Exclusion::BoundedRates }
    }

    fn join<'a>(&'a self, claim: &'a Claim, wait: bool) -> Verb<'a, Standing> {
        Box::pin(async move {
            let asked = claim.clone();
            let join = async move |inner: Arc<Inner>, entry| inner.join(entry, asked, wait).await;
            self.inner.in_turn(&claim.name, claim.id, join).await
        })
    }

    fn renew<'a>(&'a self, places: &'a [Place]) -> Verb<'a, Vec<Standing>> {
        Box::pin(self.inner.renew(places))
    }

    fn leave<'a>(&'a self, place: &'a Place) -> Verb<'a, ()> {
        Box::pin(async move {
            // Nobody else can have made a place for one of our ids.
            if self.inner.entry(&place.name, place.id).is_none() {
                return Ok(());
            }
            let leave = async |inner: Arc<Inner>, entry| inner.leave(entry).await;
            self.inner.in_turn(&place.name, place.id, leave).await
        })
    }

    fn view<'a>(&'a self, query: &'a Query) -> Verb<'a, Vec<LineView>> {
        Box::pin(self.inner.view(query))
    }

    fn evict<'a>(&'a self, name: &'a Name, ticket: Ticket, at_once: bool) -> Verb<'a, bool> {
        Box::pin(self.inner.evict(name, ticket, at_once))
    }
}

impl Drop for Zookeeper {
    fn drop(&mut self) {
        self.inner.close();
    }
}

impl fmt::Debug for Zookeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zookeeper").field("address", &self.info.address).finish_non_exhaustive()
    }
}
