//! PostgreSQL: a schema for each test.

use std::any::Any;
use std::sync::Arc;

use lockline::EngineUrl;
use lockline::driver::Driver;
use lockline::drivers::postgres::{Postgres, PostgresConfig};

use tokio::task::JoinHandle;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::{Engine, on_a_thread, server_of, with_option};

/// A schema of its own on the PostgreSQL server that this run calls `name`.
///
/// # Panics
/// If this run includes no such server, or its address makes no sense.
pub fn postgres(name: &'static str) -> Engine {
    let server = server_of(name);
    let schema = format!("test_{:016x}", fastrand::u64(..));
    let url = with_option(&server, &format!("schema={schema}"));
    let config = EngineUrl::parse(&url).and_then(PostgresConfig::from_url).expect("the address makes sense");
    let open = move |bells| {
        let config = config.clone();
        async move { Ok(Arc::new(Postgres::connect(config, bells).await?) as Arc<dyn Driver>) }
    };
    let forget = format!("DELETE FROM {schema}.claims; DELETE FROM {schema}.lone_claims");
    let to_forget = (server.clone(), forget);
    let (to_sit, table) = (server.clone(), format!("{schema}.lines"));
    let clean_up = (server, format!("DROP SCHEMA IF EXISTS {schema} CASCADE"));
    Engine::new(name, url, open)
        .forgets(move || run_on_postgres(&to_forget.0, &to_forget.1).expect("the claims are deleted"))
        .sits_on(move |names| sit_on_rows(to_sit.clone(), table.clone(), names))
        .keeps(PostgresSchema(clean_up))
}

/// A session of its own, and the task that drives it.
async fn session(server: &str) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
    // Its options are ours, and nothing to this client.
    let (address, options) = server.split_once('?').unwrap_or((server, ""));
    let mut config: tokio_postgres::Config = address.parse()?;
    // Behind a pooler the crate's own question would be followed by a statement before it is answered to its end, and
    // PgBouncer 1.18 may then give an answer to somebody else.
    if !options.contains("pooler=") {
        config.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
    }
    let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
    let driving = tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok((client, driving))
}

/// Locks the rows of these names in a transaction that ends with its session.
async fn sit_on_rows(server: String, table: String, names: Vec<String>) -> Box<dyn Any + Send> {
    sit(&server, &table, "name", names).await
}

/// The same, in a table whose key has another name.
pub(super) async fn sit(server: &str, table: &str, key: &str, names: Vec<String>) -> Box<dyn Any + Send> {
    let (client, _) = session(server).await.expect("a session");
    client.batch_execute("BEGIN").await.expect("a transaction");
    let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    let lock = format!("SELECT {key} FROM {table} WHERE {key} IN ({}) FOR UPDATE", names.join(", "));
    let rows = client.simple_query(&lock).await.expect("the rows are locked");
    let locked = rows.iter().filter(|row| matches!(row, SimpleQueryMessage::Row(_))).count();
    assert_eq!(locked, names.len(), "every lock has its row");
    Box::new(client)
}

/// Runs one statement on a session of its own.
pub(super) fn run_on_postgres(server: &str, statement: &str) -> Result<(), tokio_postgres::Error> {
    let (server, statement) = (server.to_owned(), statement.to_owned());
    on_a_thread(async move {
        let (client, driving) = session(&server).await?;
        let done = client.batch_execute(&statement).await;
        drop(client);
        let _ = driving.await;
        done
    })
}

/// Leaves the server as it was found; one that is gone needs no cleaning.
pub(super) struct PostgresSchema(pub(super) (String, String));

impl Drop for PostgresSchema {
    fn drop(&mut self) {
        let _ = run_on_postgres(&self.0.0, &self.0.1);
    }
}
