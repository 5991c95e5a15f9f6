//! ZooKeeper: `exists`, and an ephemeral znode that is made and deleted; the peer is the client library's own lock.

use anyhow::{Context, Result};
use zookeeper_client::{Acls, Client, CreateMode, LockPrefix};

use super::{Server, Soon};
use crate::engine::Site;

/// One session, as the driver has it for claims with one length of lease.
#[derive(Debug)]
pub(super) struct Bare {
    client: Client,
    /// A folder of its own.
    folder: String,
}

impl Bare {
    pub(super) async fn connect(site: &Site) -> Result<Bare> {
        let servers = site.url.strip_prefix("zookeeper://").context("no address")?;
        let servers = servers.split(['/', '?']).next().context("no servers")?;
        let timeout = std::time::Duration::from_secs(15);
        let client = Client::connector().with_session_timeout(timeout).connect(servers).await?;
        let name = site.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let folder = format!("/floor-{name}");
        client.mkdir(&folder, &CreateMode::Container.with_acls(Acls::anyone_all())).await?;
        // Containers vanish when they are empty.
        let stays = format!("{folder}/stays");
        let stay = client.create(&stays, b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await;
        // Another floor of this run may have made it.
        if !matches!(stay, Err(zookeeper_client::Error::NodeExists)) {
            stay?;
        }
        Ok(Bare { client, folder })
    }

    async fn make_and_delete(&self, worker: usize) -> Result<()> {
        let path = format!("{}/{worker}", self.folder);
        self.client.create(&path, b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await?;
        Ok(self.client.delete(&path, None).await?)
    }

    /// Its guard deletes in the background; here it is awaited, as ours is.
    async fn lock_and_delete(&self, name: &str, inside: Soon<'_, ()>) -> Result<()> {
        let folder = format!("{}/peer-{name}", self.folder);
        let options = zookeeper_client::LockOptions::new(Acls::anyone_all())
            .with_ancestor_options(CreateMode::Container.with_acls(Acls::anyone_all()))?;
        let lock = self.client.lock(LockPrefix::new_curator(&folder, "lock-")?, b"", options).await?;
        inside.await?;
        self.client.delete(lock.lock_path(), None).await?;
        std::mem::forget(lock);
        Ok(())
    }
}

impl Server for Bare {
    fn round_trip_is(&self) -> &'static str {
        "exists"
    }

    fn round_trip(&self) -> Soon<'_, ()> {
        Box::pin(async {
            self.client.check_stat("/").await?;
            Ok(())
        })
    }

    fn pair_is(&self) -> &'static str {
        "create + delete of an ephemeral znode, as many workers"
    }

    fn pair(&self, worker: usize) -> Soon<'_, ()> {
        Box::pin(self.make_and_delete(worker))
    }

    fn peer(&self) -> Option<&'static str> {
        Some("zookeeper_client_lock")
    }

    fn peer_turn<'a>(&'a self, _worker: usize, name: &'a str, inside: Soon<'a, ()>) -> Soon<'a, ()> {
        Box::pin(self.lock_and_delete(name, inside))
    }
}
