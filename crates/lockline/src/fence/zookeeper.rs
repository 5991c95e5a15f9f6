//! Writes to ZooKeeper that count only while their lock is held, because the check is part of the write.
//!
//! A lock on ZooKeeper is a znode, and ZooKeeper can write several znodes at once or none. So whoever keeps its data in the
//! same ensemble as its locks needs no token in the data: each write also checks that the holder's znode is still there,
//! and a holder that slept through its lease is refused by the ensemble itself.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use lockline::Locks;
//! use lockline::fence::zookeeper::{Held, zookeeper_client::Client};
//! let locks = Locks::connect("zookeeper://zk1,zk2,zk3/locks").await?;
//! let client = Client::connect("zk1,zk2,zk3").await?;
//! let guard = locks.mutex("orders/42").lock().await?;
//! let held = Held::find(&client, "/locks", "orders/42", guard.fence()).await?;
//! held.write(&client, |write| write.add_set_data("/orders/42", b"paid", None)).await?;
//! # Ok(()) }
//! ```

use zookeeper_client::{CheckWriteError, CheckWriter, Client, Error as ZkError, MultiWriteResult};

use super::Fence;
use crate::drivers::zookeeper::{ZookeeperConfig, znode_of};
use crate::error::{Error, ErrorKind, Result};
use crate::line::Ticket;
use crate::name::Name;

/// The client that writes are made with: the same version that this crate uses.
pub use zookeeper_client;

/// The znode of a hold. For as long as it is there, nobody else is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    path: String,
}

impl Held {
    /// Finds the znode of a hold: `base` is the path of the locks' address, `name` the lock's whole name, `prefix=` included.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) if it is gone, [`Invalid`](ErrorKind::Invalid) for a bad name,
    /// [`Unavailable`](ErrorKind::Unavailable) if the ensemble cannot be asked.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn find(client: &Client, base: &str, name: &str, fence: Fence) -> Result<Held> {
        let name = Name::new(name)?;
        // As the driver reads the path of an address.
        let base = ZookeeperConfig::new([""; 0]).base(base);
        let found = znode_of(client, &base, &name, Ticket::new(fence.token())).await;
        match found.map_err(|error| unavailable("find", &error).about(&name))? {
            Some(path) => Ok(Held { path }),
            None => Err(lost("find").about(&name)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Does everything that `fill` asks for, at once and only if the lock is still held when it is done.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) if the lock is no longer held: nothing was written.
    /// [`Invalid`](ErrorKind::Invalid) if one of the writes is refused: nothing was written; the cause says which.
    /// [`Unknown`](ErrorKind::Unknown) if the answer got lost: everything was written, or nothing.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether everything was written, or nothing.
    pub async fn write(
        &self,
        client: &Client,
        fill: impl FnOnce(&mut CheckWriter<'_>) -> std::result::Result<(), ZkError>,
    ) -> Result<Vec<MultiWriteResult>> {
        let refused = |error: ZkError| {
            Error::new(ErrorKind::Invalid, "write", "the ensemble does not take this write").caused_by(error)
        };
        let mut writer = client.new_check_writer(&self.path, None).map_err(refused)?;
        fill(&mut writer).map_err(refused)?;
        writer.commit().await.map_err(|error| match error {
            CheckWriteError::CheckFailed { source: ZkError::NoNode | ZkError::BadVersion } => lost("write"),
            CheckWriteError::CheckFailed { source } => refused(source),
            CheckWriteError::OperationFailed { .. } => {
                Error::new(ErrorKind::Invalid, "write", "the ensemble refused one of the writes")
                    .caused_by(error)
            }
            CheckWriteError::RequestFailed { source } => {
                Error::new(ErrorKind::Unknown, "write", "the answer got lost").caused_by(source)
            }
        })
    }
}

fn lost(operation: &'static str) -> Error {
    Error::new(ErrorKind::Lost, operation, "the lock is no longer held: its znode is gone")
}

fn unavailable(operation: &'static str, error: &ZkError) -> Error {
    Error::new(ErrorKind::Unavailable, operation, "the ensemble cannot be asked").caused_by(error.clone())
}
