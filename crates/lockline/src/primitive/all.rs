//! Several locks at once.

use std::sync::Arc;
use std::time::Duration;

use super::{Asking, options};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::hold::acquire::{Patience, Request};
use crate::hold::grip::{Grip, any_lost};
use crate::line::Mode;

/// Several mutexes, all or nothing, without deadlock.
///
/// They are taken one by one in the order of their names, whatever order they were given in; duplicates count once. The
/// ones already taken are kept alive while waiting for the next; if one is lost meanwhile, all are left and it starts
/// again.
///
/// Taken through an [`Owner`](crate::Owner) that holds a later name already, but not an earlier one, it is refused: two
/// who do so in different order would wait for each other for ever.
#[derive(Clone, Debug)]
pub struct All {
    asking: Asking,
    names: Vec<String>,
}

impl All {
    pub(crate) fn new(asking: Asking, names: impl IntoIterator<Item = impl AsRef<str>>) -> All {
        All { asking, names: names.into_iter().map(|name| name.as_ref().to_owned()).collect() }
    }

    options!();

    /// Waits its turn for each and takes them all.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); an empty list; an order that could deadlock.
    ///
    /// # Cancel safety
    /// Dropping the future leaves all of them, in the background.
    pub async fn lock(&self) -> Result<Guard> {
        loop {
            if let Some(guard) = self.get(Patience::Forever).await? {
                return Ok(guard);
            }
        }
    }

    /// Takes them all if all are free; `None` means that one of them is busy.
    ///
    /// # Errors
    /// As [`lock`](All::lock).
    ///
    /// # Cancel safety
    /// Dropping the future leaves all of them, in the background.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        self.get(Patience::Try).await
    }

    /// Waits for at most `wait` in all; `None` means that the time was over first.
    ///
    /// # Errors
    /// As [`lock`](All::lock).
    ///
    /// # Cancel safety
    /// Dropping the future leaves all of them, in the background.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>> {
        self.get(self.asking.patience(wait)).await
    }

    async fn get(&self, patience: Patience) -> Result<Option<Guard>> {
        let requests = self.requests()?;
        loop {
            match self.get_once(&requests, patience).await? {
                Attempt::Got(grips) => return Ok(Guard::many(grips)),
                Attempt::Busy => return Ok(None),
                Attempt::LostOne if patience.is_over(self.asking.client.now()) => return Ok(None),
                Attempt::LostOne => {}
            }
        }
    }

    /// One request per name, sorted: everybody takes them in the same order, so nobody waits in a circle.
    fn requests(&self) -> Result<Vec<Request>> {
        let mut requests = Vec::with_capacity(self.names.len());
        for name in &self.names {
            requests.push(self.asking.request(name, Mode::Exclusive)?);
        }
        if requests.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "all", "no names were given; name at least one lock"));
        }
        if !mutant!(AllUnsorted) {
            requests.sort_by(|a, b| a.name.cmp(&b.name));
        }
        requests.dedup_by(|a, b| a.name == b.name);
        self.refuse_wrong_order(&requests)?;
        Ok(requests)
    }

    fn refuse_wrong_order(&self, requests: &[Request]) -> Result<()> {
        let Some(owner) = &self.asking.owner else { return Ok(()) };
        for request in requests.iter().filter(|request| owner.holds(&request.name).is_none()) {
            if let Some(later) = owner.holds_after(&request.name) {
                let message =
                    format!("this owner already holds {later:?}, which sorts after it: it could deadlock");
                return Err(Error::new(ErrorKind::Deadlock, "all", message)
                    .about(&request.name)
                    .hint("take all of them with one call to `all`, or release the later one first"));
            }
        }
        Ok(())
    }

    /// Joins the next line only when in at the one before: a place in several lines at once can deadlock.
    async fn get_once(&self, requests: &[Request], patience: Patience) -> Result<Attempt> {
        let mut got: Vec<Arc<Grip>> = Vec::with_capacity(requests.len());
        for request in requests {
            let next = if got.is_empty() {
                self.asking.grip(request, patience).await?
            } else {
                tokio::select! {
                    biased;
                    next = self.asking.grip(request, patience) => next?,
                    _ = any_lost(got.iter()), if !mutant!(AllKeepsLost) => return Ok(Attempt::LostOne),
                }
            };
            match next {
                Some(grip) => got.push(grip),
                None => return Ok(Attempt::Busy),
            }
        }
        let lost = got.iter().any(|grip| grip.loss().is_some()) && !mutant!(AllKeepsLost);
        Ok(if lost { Attempt::LostOne } else { Attempt::Got(got) })
    }
}

enum Attempt {
    Got(Vec<Arc<Grip>>),
    Busy,
    LostOne,
}
