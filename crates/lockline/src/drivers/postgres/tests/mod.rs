//! The driver against the pure machine, and against servers that are killed, promoted, closed to us or behind a pooler.
//!
//! They need PostgreSQL's programs, and run if `LOCKLINE_TEST_ENGINES` names `postgres`, as `cargo xtask test` does. Most use
//! a schema of their own on that server; those that do harm start a server of their own.

mod addresses;
mod against_the_line;
mod durability;
mod faults;
mod killed;
mod refusals;
mod server;
mod shared;
mod standby;
mod tls;

use std::sync::Arc;

use super::{Postgres, PostgresConfig};
use crate::drivers::testing::{Heard, address_of, claim, is_in, place};
use crate::line::ClaimId;
use crate::url::EngineUrl;
pub(super) use server::Server;

/// The server of this run; if there is none, says so.
fn included() -> Option<PostgresConfig> {
    let url = address_of("postgres")?;
    Some(PostgresConfig::from_url(EngineUrl::parse(&url).unwrap()).unwrap().schema(fresh("test")))
}

/// A name that nobody else uses.
fn fresh(what: &str) -> String {
    format!("{what}_{:08x}", ClaimId::random().as_u128() >> 96)
}

async fn open(config: PostgresConfig) -> (Postgres, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let postgres = Postgres::connect(config, heard.clone()).await.unwrap();
    (postgres, heard)
}

/// A session beside the driver's, for what an operator does.
async fn operator(config: &PostgresConfig) -> tokio_postgres::Client {
    let (host, port) = &config.hosts[0];
    let settings = format!("host={host} port={port} user=postgres dbname={}", config.login.database);
    let (client, connection) = tokio_postgres::connect(&settings, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Leaves the server as it was found.
async fn drop_schema(config: &PostgresConfig) {
    let drop = format!("DROP SCHEMA IF EXISTS \"{}\" CASCADE", config.schema);
    operator(config).await.batch_execute(&drop).await.unwrap();
}
