//! MariaDB: `SELECT 1`, and `GET_LOCK` with `RELEASE_LOCK`, the engine's own fair queue.

use anyhow::{Context, Result};
use sqlx::mysql::MySqlConnection;
use sqlx::{Connection, Executor};
use tokio::sync::Mutex;

use super::{Server, Soon};
use crate::engine::Site;

/// A few connections, as the driver has them: each carries one statement at a time.
pub(super) struct Bare {
    connections: Vec<Mutex<MySqlConnection>>,
}

/// As many as the driver has for verbs.
const CONNECTIONS: usize = 4;

impl Bare {
    pub(super) async fn connect(site: &Site) -> Result<Bare> {
        // Its options are ours, and nothing to this client.
        let server = site.url.split('?').next().context("no address")?;
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Mutex::new(MySqlConnection::connect(server).await?));
        }
        Ok(Bare { connections })
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
            let mut connection = self.connections[0].lock().await;
            connection.fetch_one(sqlx::query("SELECT 1")).await?;
            Ok(())
        })
    }

    fn pair_is(&self) -> &'static str {
        "GET_LOCK + RELEASE_LOCK, as many workers"
    }

    fn pair(&self, worker: usize) -> Soon<'_, ()> {
        Box::pin(async move {
            let name = format!("lockline floor {worker}");
            let mut connection = self.connections[worker % CONNECTIONS].lock().await;
            connection.fetch_one(sqlx::query("SELECT GET_LOCK(?, 10)").bind(name.clone())).await?;
            connection.fetch_one(sqlx::query("SELECT RELEASE_LOCK(?)").bind(name)).await?;
            Ok(())
        })
    }
}
