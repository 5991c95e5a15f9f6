//! wip
#[macro_use]
mod mutant;
pub mod driver;
pub mod drivers;
mod error;
mod hold;
pub mod line;
mod name;
pub mod time;
pub use error::{Error, ErrorKind, LossReason, Lost, Result};
pub use name::Name;
