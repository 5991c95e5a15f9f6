//! The engines.

#[cfg(feature = "sqlite")]
pub mod sqlite;
