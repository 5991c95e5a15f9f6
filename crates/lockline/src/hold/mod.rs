//! Waiting, renewing, losing: written once, for every engine.
//!
//! | file | what it does |
//! |---|---|
//! | `validity` | what a client may believe about its place (pure) |
//! | `spot` | one claim of ours and the belief about it |
//! | `bells` | the board where all claims hang |
//! | `acquire` | join, wait, leave nothing behind |
//! | `keeper` | renewal in batches |
//! | `grip` | a held lock, its loss, its release |
//! | `client` | the driver, deadlines, departures, shutdown |
//! | `promises` | what the engine promises now, beside what was demanded |
//! | `meters` | metrics |

pub(crate) mod acquire;
pub(crate) mod bells;
pub(crate) mod client;
pub(crate) mod grip;
pub(crate) mod keeper;
pub(crate) mod meters;
pub(crate) mod promises;
pub(crate) mod spot;
pub(crate) mod validity;

#[cfg(test)]
mod tests;
