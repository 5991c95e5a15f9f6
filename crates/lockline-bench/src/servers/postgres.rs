//! PostgreSQL: `SELECT 1`, and `pg_advisory_lock` with `pg_advisory_unlock`, the engine's own fair queue.

use anyhow::{Context, Result};
use tokio_postgres::{Client, NoTls, Statement};

use super::{Server, Soon};
use crate::engine::Site;

/// One pipelined connection, as the driver has it.
pub(super) struct Bare {
    client: Client,
    one: Statement,
    lock: Statement,
    unlock: Statement,
}

impl Bare {
    pub(super) async fn connect(site: &Site) -> Result<Bare> {
        // Its options are ours, and nothing to this client.
        let server = site.url.split('?').next().context("no address")?;
        let (client, connection) = tokio_postgres::connect(server, NoTls).await?;
        tokio::spawn(connection);
        let one = client.prepare("SELECT 1").await?;
        let lock = client.prepare("SELECT pg_advisory_lock($1)").await?;
        let unlock = client.prepare("SELECT pg_advisory_unlock($1)").await?;
        Ok(Bare { client, one, lock, unlock })
    }
}

impl std::fmt::Debug for Bare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bare").finish_non_exhaustive()
    }
}

impl Server for Bare {
    fn round_trip_is(&self) -> &'static str {
        "SELECT 1"
    }

    fn round_trip(&self) -> Soon<'_, ()> {
        Box::pin(async {
            self.client.query_one(&self.one, &[]).await?;
            Ok(())
        })
    }

    fn pair_is(&self) -> &'static str {
        "pg_advisory_lock + pg_advisory_unlock, as many workers"
    }

    fn pair(&self, worker: usize) -> Soon<'_, ()> {
        Box::pin(async move {
            let key = i64::try_from(worker)?;
            self.client.query_one(&self.lock, &[&key]).await?;
            self.client.query_one(&self.unlock, &[&key]).await?;
            Ok(())
        })
    }
}
