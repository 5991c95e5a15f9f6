//! The engines. A driver is the engine's six verbs and nothing else: see [`driver`](crate::driver).

#[cfg(test)]
#[cfg(any(feature = "redis", feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub(crate) mod against_the_line;
mod built_in;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
mod foreign;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(any(feature = "mysql", feature = "redis"))]
mod partners;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "postgres", feature = "redis"))]
mod quiet;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redlock;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod relational;
#[cfg(all(feature = "sqlite", any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
pub mod sqlite;
#[cfg(all(
    feature = "sqlite",
    not(any(target_os = "linux", target_os = "android", target_vendor = "apple"))
))]
#[path = "sqlite/absent.rs"]
pub mod sqlite;
#[cfg(test)]
#[cfg(any(
    feature = "redis",
    feature = "sqlite",
    feature = "postgres",
    feature = "mysql",
    feature = "zookeeper"
))]
pub(crate) mod testing;
#[cfg(any(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
mod turns;
#[cfg(any(feature = "etcd", feature = "mysql", feature = "zookeeper"))]
mod under_way;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

pub(crate) use built_in::manifest_line;
pub use built_in::{built_in, missing_feature};
