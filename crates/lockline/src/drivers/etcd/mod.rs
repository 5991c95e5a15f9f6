#![doc = include_str!("GUIDE.md")]

mod bell;
mod books;
mod config;
mod error;
pub(crate) mod fenced;
mod lease;
mod place;
mod proto;
mod reap;
mod renew;
mod shared;
mod standing;
mod store;
mod verbs;
mod view;
mod wire;

use std::fmt;
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tokio::sync::Notify;

pub use config::{EtcdConfig, EtcdTls};

use crate::driver::{Bells, Driver, DriverInfo, Exclusion, Fencing, Guarantees, Query, Verb};
use crate::drivers::quiet::QuietLines;
use crate::drivers::turns::Turns;
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, ClaimId, LineView, Place, Standing, Ticket};
use crate::name::Name;
use bell::Watches;
use books::Books;
use lease::KeepAlives;
use place::Layout;
use wire::Wire;

/// Locks on an etcd cluster. See the [module](self).
pub struct Etcd {
    info: DriverInfo,
    inner: Arc<Inner>,
}

/// What the driver's verbs and its background tasks share.
struct Inner {
    wire: Arc<Wire>,
    keep_alives: KeepAlives,
    layout: Layout,
    /// What this process's mailbox ends with.
    process: String,
    board: Bells,
    books: Mutex<Books>,
    turns: Turns,
    /// Where a place may be made without reading the line.
    quiet: QuietLines,
    bells: Watches,
    /// Wakes the task that takes lapsed places away.
    reaper: Arc<Notify>,
    runtime: Handle,
}

impl Etcd {
    /// Connects. To be called inside a Tokio runtime with I/O and time enabled.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if no member can be reached; [`Denied`](ErrorKind::Denied) for a wrong login;
    /// [`Invalid`](ErrorKind::Invalid) for an option or a certificate that makes no sense.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect(config: EtcdConfig, bells: Bells) -> Result<Etcd> {
        let runtime = Handle::try_current().map_err(|_| {
            Error::new(ErrorKind::Invalid, "connect", "there is no Tokio runtime here")
                .hint("call it inside a runtime, or use the blocking API")
        })?;
        let layout = Layout { space: config.space.clone() };
        let wire = Arc::new(Wire::open(config).await?);
        let info = DriverInfo { driver: "etcd", address: wire.address.clone() };
        let inner = Arc::new(Inner {
            keep_alives: KeepAlives::new(wire.clone()),
            wire,
            layout,
            process: format!("{:032x}", ClaimId::random().as_u128()),
            board: bells,
            books: Mutex::default(),
            turns: Turns::default(),
            quiet: QuietLines::new(),
            bells: Watches::default(),
            reaper: Arc::default(),
            runtime,
        });
        inner.runtime.spawn(bell::listen(Arc::downgrade(&inner)));
        inner.runtime.spawn(reap::reap_for_ever(Arc::downgrade(&inner)));
        Ok(Etcd { info, inner })
    }
}

impl Driver for Etcd {
    fn info(&self) -> &DriverInfo {
        &self.info
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees { fencing: Fencing::Always, exclusion: Exclusion::BoundedRates }
    }

    fn join<'a>(&'a self, claim: &'a Claim, wait: bool) -> Verb<'a, Standing> {
        Box::pin(self.inner.join(claim, wait))
    }

    fn renew<'a>(&'a self, places: &'a [Place]) -> Verb<'a, Vec<Standing>> {
        Box::pin(self.inner.renew(places))
    }

    fn leave<'a>(&'a self, place: &'a Place) -> Verb<'a, ()> {
        Box::pin(self.inner.leave(place))
    }

    fn view<'a>(&'a self, query: &'a Query) -> Verb<'a, Vec<LineView>> {
        Box::pin(self.inner.view(query))
    }

    fn evict<'a>(&'a self, name: &'a Name, ticket: Ticket, at_once: bool) -> Verb<'a, bool> {
        Box::pin(self.inner.evict(name, ticket, at_once))
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("address", &self.info.address).finish_non_exhaustive()
    }
}
