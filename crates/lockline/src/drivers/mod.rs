//! The engines. A driver is the engine's six verbs and nothing else: see [`driver`](crate::driver).

pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
