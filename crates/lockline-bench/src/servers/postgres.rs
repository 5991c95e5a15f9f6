//! PostgreSQL: `SELECT 1`, a row that is inserted and deleted, and the server's own fair queue (`pg_advisory_lock`).

use std::hash::{DefaultHasher, Hash, Hasher};

use anyhow::{Context, Result, ensure};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls, Statement};

use super::{MOST_WORKERS, Server, Soon};
use crate::engine::Site;

/// What the driver sends, as the server counts it.
const COUNTED: &str = "SELECT sum(calls)::bigint FROM pg_stat_statements \
     WHERE query LIKE 'SELECT \"lockline\".%' OR query LIKE '%UPDATE \"lockline\".lines SET%'";

const SETTINGS: &str = "SELECT 'PostgreSQL ' || current_setting('server_version') || ': fsync = ' || current_setting('fsync') \
     || ', synchronous_commit = ' || current_setting('synchronous_commit')";

/// One pipelined connection with prepared statements, as the driver has it; and for advisory locks, which belong to a session,
/// one for each worker.
#[derive(Debug)]
pub(super) struct Bare {
    address: String,
    space: String,
    client: Client,
    one: Statement,
    take: Statement,
    give_back: Statement,
    sessions: Vec<OnceCell<Session>>,
}

#[derive(Debug)]
struct Session {
    client: Client,
    lock: Statement,
    unlock: Statement,
}

impl Bare {
    pub(super) async fn connect(site: &Site) -> Result<Bare> {
        // Its options are ours, and nothing to this client.
        let address = site.url.split('?').next().context("no address")?.to_owned();
        let client = connect(&address).await?;
        client
            .batch_execute(
                "CREATE TABLE IF NOT EXISTS floor_locks (name text PRIMARY KEY, owner text NOT NULL)",
            )
            .await?;
        // Where the server was started without it, it counts nothing.
        let _ = client.batch_execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await;
        let one = client.prepare("SELECT 1").await?;
        let take = client.prepare("INSERT INTO floor_locks VALUES ($1, 'me') ON CONFLICT DO NOTHING").await?;
        let give_back = client.prepare("DELETE FROM floor_locks WHERE name = $1 AND owner = 'me'").await?;
        let space = site.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let sessions = (0..MOST_WORKERS).map(|_| OnceCell::new()).collect();
        Ok(Bare { address, space, client, one, take, give_back, sessions })
    }

    async fn session(&self, worker: usize) -> Result<&Session> {
        let make = async || -> Result<Session> {
            let client = connect(&self.address).await?;
            let lock = client.prepare("SELECT pg_advisory_lock($1)").await?;
            let unlock = client.prepare("SELECT pg_advisory_unlock($1)").await?;
            Ok(Session { client, lock, unlock })
        };
        self.sessions.get(worker).context("too many workers")?.get_or_try_init(make).await
    }
}

async fn connect(address: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
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
        "INSERT + DELETE of a row, as many workers"
    }

    fn pair(&self, worker: usize) -> Soon<'_, ()> {
        Box::pin(async move {
            let name = format!("{}/{worker}", self.space);
            let taken = self.client.execute(&self.take, &[&name]).await?;
            ensure!(taken == 1, "the floor's own lock is taken");
            self.client.execute(&self.give_back, &[&name]).await?;
            Ok(())
        })
    }

    fn peer(&self) -> Option<&'static str> {
        Some("pg_advisory_lock")
    }

    /// Each worker has a session of its own: a thousand of them that log in at once run into the server's limit of a minute.
    fn peer_up_to(&self) -> usize {
        200
    }

    fn peer_turn<'a>(&'a self, worker: usize, name: &'a str, inside: Soon<'a, ()>) -> Soon<'a, ()> {
        Box::pin(async move {
            let mut hash = DefaultHasher::new();
            (&self.space, name).hash(&mut hash);
            let key = hash.finish().cast_signed();
            let Session { client, lock, unlock } = self.session(worker).await?;
            client.query_one(lock, &[&key]).await?;
            inside.await?;
            client.query_one(unlock, &[&key]).await?;
            Ok(())
        })
    }

    fn settings(&self) -> Soon<'_, Option<String>> {
        Box::pin(async { Ok(Some(self.client.query_one(SETTINGS, &[]).await?.try_get(0)?)) })
    }

    fn commands(&self) -> Soon<'_, Option<u64>> {
        Box::pin(async {
            let Ok(row) = self.client.query_one(COUNTED, &[]).await else { return Ok(None) };
            Ok(row.try_get::<_, Option<i64>>(0)?.map(i64::cast_unsigned).or(Some(0)))
        })
    }

    fn sessions(&self) -> Soon<'_, Option<u64>> {
        Box::pin(async {
            let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lockline'";
            Ok(Some(self.client.query_one(count, &[]).await?.try_get::<_, i64>(0)?.cast_unsigned()))
        })
    }
}
