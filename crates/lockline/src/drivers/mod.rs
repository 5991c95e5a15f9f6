//! The engines. A driver is the engine's six verbs and nothing else: see [`driver`](crate::driver).

#[cfg(test)]
#[cfg(any(feature = "redis", feature = "sqlite"))]
pub(crate) mod against_the_line;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redlock;
#[cfg(feature = "sqlite")]
pub mod sqlite;
