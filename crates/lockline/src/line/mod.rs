//! What a lock *is*: the pure machine.
//!
//! A lock is a line of claims. The claims at the front that fit together hold it, the others wait in order. This
//! module has no I/O, no clock and no chance: time and ids come in as arguments, bells come out as values. The memory
//! engine is this machine behind a mutex, SQLite walks its rows with the same [`Front`], and what other engines do in
//! Lua or SQL is compared with it step by step.

mod claim;
#[allow(clippy::module_inception)]
mod line;
mod mode;
mod shut;
mod view;

pub use claim::{Bell, Claim, ClaimId, News, Place, Primitive, Refusal, Standing, Step, Ticket, Who};
#[cfg(test)]
pub(crate) use line::inspect::Seen;
pub use line::{Line, Now, Proposed, look_again};
pub use mode::{Front, Mode};
pub use shut::{Shut, ShutReason};
pub use view::{ClaimView, LineView};
