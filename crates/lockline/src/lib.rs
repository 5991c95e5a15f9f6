//! Locks across machines, on the engine you already run: fair, fenced, and honest about what a lock can promise.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockline::Result<()> {
//! use lockline::Locks;
//! use std::time::Duration;
//!
//! let locks = Locks::connect("memory:").await?;                    // or sqlite:/path/to/file
//! let guard = locks.mutex("orders/42").lock().await?;              // waits its turn, first come first served
//! let token = guard.fence();                                       // storage that checks it refuses an older one
//! # let _ = token;
//! guard.release().await?;                                          // fallible; drop releases in the background
//!
//! let Some(guard) = locks.mutex("report").try_lock().await? else { return Ok(()) };   // busy is a value
//! let late = locks.mutex("report").try_lock_for(Duration::from_millis(5)).await?;     // None: the time was over
//! assert!(late.is_none());
//! let rows = guard.run(async { 42 }).await?;                       // Err(Lost) if the lock is lost meanwhile
//! # assert_eq!(rows, 42);
//! # Ok(()) }
//! ```
//!
//! # A lock is a line
//! Claims stand in line; those at the front that fit together hold the lock. Hence order of arrival, always; direct
//! handoff instead of a race; and the place's number is the fencing token. See [`mod@line`].
//!
//! # What a lock can promise
//! A guard is valid until it says it is lost, and it says so in time, without any network. But a process can be stopped
//! between its last look and its write: if a double write would hurt, check [`Guard::fence`] where the write happens
//! (see [`fence`]). What each engine promises beyond that is [`Guarantees`](driver::Guarantees).
//!
//! # Features and engines
//! No feature is on by default; the memory engine is always there. Each engine's page begins with what one writes.
//!
//! | feature | engine | address | shared by | page |
//! |---|---|---|---|---|
//! | – | memory | `memory:` | tasks of one process | [`drivers::memory`] |
//! | `sqlite` | one SQLite file | `sqlite:/path` | processes of one host: Linux, macOS | `drivers::sqlite` |
//! | `redis` | Redis, Valkey: one server, Sentinel, Cluster | `redis://host` | machines | `drivers::redis` |
//! | `redis` | 3, 5 or 7 Redis servers | `redlock://a,b,c` | machines | `drivers::redlock` |
//! | `postgres` | PostgreSQL | `postgres://user@host/database` | machines | `drivers::postgres` |
//! | `mysql` | MariaDB, MySQL | `mysql://user@host/database` | machines | `drivers::mysql` |
//! | `etcd`, `etcd-tls` | etcd | `etcd://a,b,c`, `etcds://…` | machines, and `etcdctl lock` | `drivers::etcd` |
//! | `zookeeper`, `zookeeper-tls` | ZooKeeper | `zookeeper://a,b,c/path`, `zookeepers://…` | machines, Curator and kazoo | `drivers::zookeeper` |
//!
//! # Where things live
//! [`Locks`] and the primitives are for users; [`driver`] and [`mod@line`] are for authors of engines; everything in between
//! (waiting, renewing, losing) is private and written once.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[macro_use]
mod mutant;

pub mod blocking;
mod builder;
#[cfg(test)]
mod document;
pub mod driver;
pub mod drivers;
mod error;
pub mod fence;
mod guard;
mod hold;
#[cfg(test)]
mod hostile;
pub mod line;
mod locks;
#[cfg(test)]
mod model;
mod name;
mod owner;
mod pause;
mod platform;
mod primitive;
#[cfg(test)]
mod simulation;
mod sync;
pub mod time;
mod url;
mod words;

pub use builder::Builder;
pub use error::{Error, ErrorKind, LossReason, Lost, Result};
pub use guard::Guard;
pub use line::Ticket;
pub use locks::Locks;
pub use name::Name;
pub use owner::Owner;
pub use primitive::{All, Election, Mutex, Observer, RwLock, Semaphore};
pub use url::EngineUrl;

/// The samples of the documents are compiled and run like any other.
#[cfg(all(doctest, feature = "sqlite"))]
mod documents {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/fencing.md")]
    mod fencing {}
    #[doc = include_str!("../../../docs/guarantees.md")]
    mod guarantees {}
}
