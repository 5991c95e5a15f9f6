//! What the engine promises now, beside what the client demanded when it was made.
//!
//! An operator may weaken an engine while it runs (a database that no longer waits for its disk). A driver notices it with
//! what it sends anyway; here it is told to people, and to whoever relied on it.

use std::sync::Mutex;

use crate::driver::Guarantees;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::locked;

/// The row that was demanded, and the one that was seen last.
#[derive(Debug)]
pub(crate) struct Promises {
    demanded: Option<Guarantees>,
    seen: Mutex<Guarantees>,
}

impl Promises {
    pub(crate) fn new(demanded: Option<Guarantees>, offered: Guarantees) -> Promises {
        Promises { demanded, seen: Mutex::new(offered) }
    }

    /// Whether what the engine offers now is what was demanded.
    pub(crate) fn are_kept(&self, offered: Guarantees) -> bool {
        self.demanded.is_none_or(|demanded| offered.meets(demanded))
    }

    /// Refuses an operation on an engine that offers less than was demanded.
    pub(crate) fn check(&self, operation: &'static str, offered: Guarantees) -> Result<()> {
        let Some(demanded) = self.demanded.filter(|_| !self.are_kept(offered)) else { return Ok(()) };
        let message = format!("this engine promises: {offered}; demanded: {demanded}");
        Err(Error::new(ErrorKind::Unsupported, operation, message)
            .hint("choose an engine whose row on the guarantees page is at least as strong, or demand less"))
    }

    /// Tells people when the row has changed since it was last looked at.
    pub(crate) fn note(&self, offered: Guarantees, engine: &str) {
        let before = std::mem::replace(&mut *locked(&self.seen), offered);
        if before == offered {
            return;
        }
        if offered.meets(before) {
            tracing::info!(engine, "the engine now promises more: {offered}");
        } else {
            tracing::warn!(
                engine,
                "the engine's settings were changed: it promised {before}, and now {offered}"
            );
        }
    }
}
