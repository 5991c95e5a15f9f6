//! The primitives: options and verbs over one way of asking.

mod all;
mod election;
mod mutex;
mod rwlock;
mod semaphore;

pub use all::All;
pub use election::{Election, Observer};
pub use mutex::Mutex;
pub use rwlock::RwLock;
pub use semaphore::Semaphore;

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::hold::acquire::{Patience, Request, acquire};
use crate::hold::client::Client;
use crate::hold::grip::Grip;
use crate::line::{Mode, Primitive, Who};
use crate::name::Name;
use crate::owner::{Owner, check_label, labelled};

/// The shortest and the longest lease.
pub(crate) const LEASES: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(24 * 60 * 60));

/// Who asks, and how the lock is to be held.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) client: Arc<Client>,
    owner: Option<Owner>,
    who: Arc<Who>,
    lease: Option<Duration>,
    fixed: bool,
    max_hold: Option<Duration>,
    primitive: Primitive,
}

impl Asking {
    pub(crate) fn anonymous(client: &Arc<Client>) -> Asking {
        let who = client.settings.who.clone();
        Asking {
            client: client.clone(),
            owner: None,
            who,
            lease: None,
            fixed: false,
            max_hold: None,
            primitive: Primitive::Mutex,
        }
    }

    pub(crate) fn by(owner: &Owner) -> Asking {
        let who = owner.who().clone();
        Asking {
            client: owner.client().clone(),
            owner: Some(owner.clone()),
            who,
            lease: None,
            fixed: false,
            max_hold: None,
            primitive: Primitive::Mutex,
        }
    }

    /// The same, for another kind of lock.
    fn of(self, primitive: Primitive) -> Asking {
        Asking { primitive, ..self }
    }

    fn labelled(&self, label: &str) -> Asking {
        Asking { who: labelled(&self.who, label), ..self.clone() }
    }

    /// Checks everything that can be checked before anything is sent.
    fn request(&self, name: &str, mode: Mode) -> Result<Request> {
        let name = Name::prefixed(&self.client.settings.prefix, name)?;
        self.checked(name.clone(), mode).map_err(|e| e.about(&name))
    }

    fn checked(&self, name: Name, mode: Mode) -> Result<Request> {
        check_label("owner", &self.who.owner)?;
        let identity = self.owner.as_ref().and_then(Owner::identity).cloned();
        identity.as_ref().map_or(Ok(()), |identity| check_label("identity", identity))?;
        let default = self.client.settings.lease;
        let lease = self.lease.unwrap_or(default);
        check_lease(lease)?;
        if self.max_hold.is_some_and(|cap| cap.is_zero()) {
            let message = "a hold of zero length could never be used";
            return Err(Error::new(ErrorKind::Invalid, "max_hold", message)
                .hint("leave max_hold out for no limit, or give it the time that the work may take"));
        }
        if let Mode::Permits { count, limit } = mode {
            check_permits(count, limit)?;
        }
        Ok(Request {
            name,
            mode,
            // A fixed lease is for holding; one waits on the ordinary lease.
            lease: if self.fixed { default } else { lease },
            fixed: self.fixed.then_some(lease),
            max_hold: self.max_hold,
            who: self.who.clone(),
            identity,
            primitive: self.primitive,
        })
    }

    async fn grip(&self, request: &Request, patience: Patience) -> Result<Option<Arc<Grip>>> {
        match &self.owner {
            Some(owner) => owner.acquire(request, patience).await,
            None => Ok(acquire(&self.client, request, patience).await?.map(Arc::new)),
        }
    }

    async fn lock(&self, name: &str, mode: Mode) -> Result<Guard> {
        let request = self.request(name, mode)?;
        loop {
            // Without an end to patience there is no `None`.
            if let Some(grip) = self.grip(&request, Patience::Forever).await? {
                return Ok(Guard::one(grip));
            }
        }
    }

    async fn try_lock(&self, name: &str, mode: Mode) -> Result<Option<Guard>> {
        let request = self.request(name, mode)?;
        Ok(self.grip(&request, Patience::Try).await?.map(Guard::one))
    }

    async fn try_lock_for(&self, name: &str, mode: Mode, wait: Duration) -> Result<Option<Guard>> {
        let request = self.request(name, mode)?;
        Ok(self.grip(&request, self.patience(wait)).await?.map(Guard::one))
    }

    /// Waiting for no time at all is not to stand in line at all.
    fn patience(&self, wait: Duration) -> Patience {
        if wait.is_zero() { Patience::Try } else { Patience::Until(self.client.now() + wait) }
    }
}

pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    let (shortest, longest) = LEASES;
    if (shortest..=longest).contains(&lease) {
        return Ok(());
    }
    let message = format!("{} is not a lease; it must be from 100ms to 24h", crate::words::told(lease));
    Err(Error::new(ErrorKind::Invalid, "lease", message)
        .hint("it decides how soon others go on after a crash, and is renewed all the time: 10s suits most"))
}

fn check_permits(count: u32, limit: u32) -> Result<()> {
    if (1..=limit).contains(&count) {
        return Ok(());
    }
    let message = format!("{count} of {limit} permits can never be had; ask for 1 to {limit}");
    Err(Error::new(ErrorKind::Invalid, "permits", message)
        .hint("everybody who uses the semaphore says the same limit"))
}

/// The options that every primitive has.
macro_rules! options {
    () => {
        /// How long a place lives without being renewed. It is renewed at a third of it for as long as the guard lives, so
        /// it decides only how soon others go on after a crash.
        ///
        /// Default: the client's lease, 10 s: long enough for a pause of the garbage-collected neighbour, the swap or the
        /// network, short enough that nobody is called at night because a crashed holder keeps a lock.
        #[must_use]
        pub fn lease(mut self, lease: std::time::Duration) -> Self {
            self.asking.lease = Some(lease);
            self
        }

        /// No renewal: the hold ends when its lease does, counted from when it was got, whatever happens.
        ///
        /// Default: off, because work that takes longer than foreseen would lose its lock half-way.
        #[must_use]
        pub fn fixed(mut self) -> Self {
            self.asking.fixed = true;
            self
        }

        /// Renewal stops after this time, and the lock is lost then: a hung job cannot hold it for ever.
        ///
        /// Default: no cap, because only you know how long the work may take.
        #[must_use]
        pub fn max_hold(mut self, cap: std::time::Duration) -> Self {
            self.asking.max_hold = Some(cap);
            self
        }
    };
}
pub(crate) use options;
