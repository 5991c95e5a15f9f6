//! The engines. A driver is the engine's six verbs and nothing else: see [`driver`](crate::driver).

#[cfg(test)]
#[cfg(any(feature = "redis", feature = "sqlite", feature = "zookeeper"))]
// Where tickets are the engine's own, only its board of bells is of use.
#[cfg_attr(not(any(feature = "redis", feature = "sqlite")), allow(dead_code))]
pub(crate) mod against_the_line;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;
