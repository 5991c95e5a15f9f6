//! A limited number of permits.

use std::time::Duration;

use super::{Asking, options};
use crate::error::Result;
use crate::guard::Guard;
use crate::line::{Mode, Primitive};

/// A number of permits, given out first come first served: who asks for many is not passed by those who ask for few.
///
/// The limit is part of the claim. If claimants disagree (during a change of configuration), the smallest limit among
/// those at the front rules.
#[derive(Clone, Debug)]
pub struct Semaphore {
    asking: Asking,
    name: String,
    limit: u32,
}

impl Semaphore {
    pub(crate) fn new(asking: Asking, name: &str, limit: u32) -> Semaphore {
        Semaphore { asking: asking.of(Primitive::Semaphore), name: name.to_owned(), limit }
    }

    options!();

    fn mode(&self, count: u32) -> Mode {
        Mode::Permits { count, limit: self.limit }
    }

    /// Waits its turn and takes one permit.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// Dropping the future gives the place up, in the background.
    pub async fn acquire(&self) -> Result<Guard> {
        self.acquire_many(1).await
    }

    /// Waits its turn and takes `count` permits at once: all or none.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); a count of 0 or above the limit is refused before anything is sent.
    ///
    /// # Cancel safety
    /// Dropping the future gives the place up, in the background.
    pub async fn acquire_many(&self, count: u32) -> Result<Guard> {
        self.asking.lock(&self.name, self.mode(count)).await
    }

    /// Takes one permit if one is free and nobody waits; `None` means busy.
    ///
    /// # Errors
    /// As [`acquire_many`](Semaphore::acquire_many).
    ///
    /// # Cancel safety
    /// Dropping the future leaves in the background whatever had been sent.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.try_acquire_many(1).await
    }

    /// Takes `count` permits if they are free and nobody waits; `None` means busy.
    ///
    /// # Errors
    /// As [`acquire_many`](Semaphore::acquire_many).
    ///
    /// # Cancel safety
    /// Dropping the future leaves in the background whatever had been sent.
    pub async fn try_acquire_many(&self, count: u32) -> Result<Option<Guard>> {
        self.asking.try_lock(&self.name, self.mode(count)).await
    }

    /// Waits its turn for `count` permits for at most `wait`; `None` means that the time was over first.
    ///
    /// # Errors
    /// As [`acquire_many`](Semaphore::acquire_many).
    ///
    /// # Cancel safety
    /// Dropping the future gives the place up, in the background.
    pub async fn try_acquire_many_for(&self, count: u32, wait: Duration) -> Result<Option<Guard>> {
        self.asking.try_lock_for(&self.name, self.mode(count), wait).await
    }
}
