//! wip
#[macro_use]
mod mutant;
pub mod driver;
mod error;
mod hold;
pub mod line;
#[cfg(test)]
mod model;
mod name;
pub mod time;
pub use error::{Error, ErrorKind, LossReason, Lost, Result};
pub use name::Name;
