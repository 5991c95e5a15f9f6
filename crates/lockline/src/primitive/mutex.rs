//! One holder at a time.

use std::time::Duration;

use super::{Asking, options};
use crate::error::Result;
use crate::guard::Guard;
use crate::line::Mode;

/// A lock with one holder at a time, first come first served.
///
/// Made by [`Locks::mutex`](crate::Locks::mutex); costs nothing until it is locked, and can be locked many times.
#[derive(Clone, Debug)]
pub struct Mutex {
    asking: Asking,
    name: String,
}

impl Mutex {
    pub(crate) fn new(asking: Asking, name: &str) -> Mutex {
        Mutex { asking, name: name.to_owned() }
    }

    options!();

    /// Waits its turn and takes the lock.
    ///
    /// # Errors
    /// Bad input before anything is sent; the engine out of reach for a whole lease; eviction while waiting.
    /// Other holders are not an error: it waits.
    ///
    /// # Cancel safety
    /// Dropping the future gives the place up: it leaves in the background, and stands at most one lease.
    pub async fn lock(&self) -> Result<Guard> {
        self.asking.lock(&self.name, Mode::Exclusive).await
    }

    /// Takes the lock if nobody holds it or waits for it; `None` means busy.
    ///
    /// # Errors
    /// As [`lock`](Mutex::lock).
    ///
    /// # Cancel safety
    /// Dropping the future leaves in the background whatever had been sent.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        self.asking.try_lock(&self.name, Mode::Exclusive).await
    }

    /// Waits its turn for at most `wait`; `None` means that the time was over first.
    ///
    /// # Errors
    /// As [`lock`](Mutex::lock).
    ///
    /// # Cancel safety
    /// Dropping the future gives the place up, in the background.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>> {
        self.asking.try_lock_for(&self.name, Mode::Exclusive, wait).await
    }
}
