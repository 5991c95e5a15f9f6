//! Many readers or one writer.

use std::time::Duration;

use super::{Asking, options};
use crate::error::Result;
use crate::guard::Guard;
use crate::line::{Mode, Primitive};

/// A lock for many readers or one writer, first come first served: a reader that comes after a waiting writer waits for
/// it, so neither starves.
///
/// Its write side excludes a [`Mutex`](crate::Mutex) of the same name. Asking through one [`Owner`](crate::Owner) for the
/// write side while holding the read side is refused, because two who do so would wait for each other for ever.
#[derive(Clone, Debug)]
pub struct RwLock {
    asking: Asking,
    name: String,
}

impl RwLock {
    pub(crate) fn new(asking: Asking, name: &str) -> RwLock {
        RwLock { asking: asking.of(Primitive::RwLock), name: name.to_owned() }
    }

    options!();

    /// Waits its turn and takes the read side.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// Dropping the future gives the place up, in the background.
    pub async fn read(&self) -> Result<Guard> {
        self.asking.lock(&self.name, Mode::Shared).await
    }

    /// Takes the read side if no writer holds it or waits; `None` means busy.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// Dropping the future leaves in the background whatever had been sent.
    pub async fn try_read(&self) -> Result<Option<Guard>> {
        self.asking.try_lock(&self.name, Mode::Shared).await
    }

    /// Waits its turn for the read side for at most `wait`; `None` means that the time was over first.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// Dropping the future gives the place up, in the background.
    pub async fn try_read_for(&self, wait: Duration) -> Result<Option<Guard>> {
        self.asking.try_lock_for(&self.name, Mode::Shared, wait).await
    }

    /// Waits its turn and takes the write side.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// Dropping the future gives the place up, in the background.
    pub async fn write(&self) -> Result<Guard> {
        self.asking.lock(&self.name, Mode::Exclusive).await
    }

    /// Takes the write side if nobody holds the lock or waits for it; `None` means busy.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// Dropping the future leaves in the background whatever had been sent.
    pub async fn try_write(&self) -> Result<Option<Guard>> {
        self.asking.try_lock(&self.name, Mode::Exclusive).await
    }

    /// Waits its turn for the write side for at most `wait`; `None` means that the time was over first.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// Dropping the future gives the place up, in the background.
    pub async fn try_write_for(&self, wait: Duration) -> Result<Option<Guard>> {
        self.asking.try_lock_for(&self.name, Mode::Exclusive, wait).await
    }
}
