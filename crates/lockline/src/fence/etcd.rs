//! Writes to etcd that count only while a lock on the same cluster is held.
//!
//! The check is part of the transaction that writes: the place of the holder, created by the revision that is its token,
//! must still be there. A holder that slept through its lease writes nothing, however late it wakes.
//!
//! ```no_run
//! # async fn example() -> lockline::Result<()> {
//! use lockline::Locks;
//! use lockline::fence::etcd::FencedStore;
//! const URL: &str = "etcd://127.0.0.1:2379";
//! let (locks, store) = (Locks::connect(URL).await?, FencedStore::connect(URL).await?);
//! let guard = locks.mutex("orders/42").lock().await?;
//! store.put(&guard, "orders/42/state", "paid").await?;     // refused if the lock is not held any more
//! # Ok(()) }
//! ```
//!
//! Whoever writes with an etcd client of their own asks for the [`Proof`], and puts the comparison into their transaction.

use crate::drivers::etcd::EtcdConfig;
use crate::drivers::etcd::fenced::Store;
use crate::error::Result;
use crate::guard::Guard;
use crate::name::Name;
use crate::url::EngineUrl;

/// A connection for fenced writes.
#[derive(Debug)]
pub struct FencedStore {
    store: Store,
    /// What the client that locks puts before its names.
    prefix: String,
}

/// What must be so while a lock is held: the key `key` has the create revision `create_revision`.
///
/// In Go: `clientv3.Compare(clientv3.CreateRevision(key), "=", revision)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The key of the holder's place.
    pub key: Vec<u8>,
    /// The revision that made it: the token.
    pub create_revision: i64,
}

/// One change of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Writes a value.
    Put {
        /// Where.
        key: Vec<u8>,
        /// What.
        value: Vec<u8>,
    },
    /// Deletes a key.
    Delete {
        /// Which.
        key: Vec<u8>,
    },
}

impl FencedStore {
    /// Connects to the cluster that the locks are on: the same address, with the same `space=` and `prefix=`.
    ///
    /// # Errors
    /// As [`Locks::connect`](crate::Locks::connect).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect(url: &str) -> Result<FencedStore> {
        let mut url = EngineUrl::parse(url)?;
        url.take_lease()?;
        let prefix = url.take("prefix").unwrap_or_default();
        Ok(FencedStore { store: Store::connect(EtcdConfig::from_url(url)?).await?, prefix })
    }

    /// Writes a value, if the lock is still held.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) if it is not: nothing was written. [`Unknown`](crate::ErrorKind::Unknown) if the
    /// answer got lost.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether it was written.
    pub async fn put(&self, guard: &Guard, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<()> {
        self.write(guard, vec![Write::Put { key: key.into(), value: value.into() }]).await
    }

    /// Makes some changes in one transaction, if all locks of the guard are still held. No key twice.
    ///
    /// # Errors
    /// As [`put`](FencedStore::put).
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether they were made.
    pub async fn write(&self, guard: &Guard, changes: Vec<Write>) -> Result<()> {
        let mut proofs = Vec::new();
        for (name, fence) in guard.fences() {
            proofs.push(self.store.proof(&Name::prefixed(&self.prefix, name)?, fence.token()).await?);
        }
        self.store.write(guard.name(), &proofs, changes).await
    }

    /// What must be so while a lock of this guard is held, for a transaction of one's own. It can be used for as long as
    /// the guard lives.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) if the lock is not held any more.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn proof(&self, guard: &Guard) -> Result<Proof> {
        self.store.proof(&Name::prefixed(&self.prefix, guard.name())?, guard.fence().token()).await
    }
}
