//! PostgreSQL: a schema for each test.

use std::sync::Arc;

use lockline::EngineUrl;
use lockline::driver::Driver;
use lockline::drivers::postgres::{Postgres, PostgresConfig};

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
    let clean_up = (server, format!("DROP SCHEMA IF EXISTS {schema} CASCADE"));
    Engine::new(name, url, open)
        .forgets(move || run_on_postgres(&to_forget.0, &to_forget.1).expect("the claims are deleted"))
        .keeps(PostgresSchema(clean_up))
}

/// Runs one statement on a session of its own.
fn run_on_postgres(server: &str, statement: &str) -> Result<(), tokio_postgres::Error> {
    // Its options are ours, and nothing to this client.
    let server = server.split('?').next().unwrap_or_default().to_owned();
    let statement = statement.to_owned();
    on_a_thread(async move {
        let mut config: tokio_postgres::Config = server.parse()?;
        config.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
        let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
        let driving = tokio::spawn(connection);
        let done = client.batch_execute(&statement).await;
        drop(client);
        let _ = driving.await;
        done
    })
}

/// Leaves the server as it was found; one that is gone needs no cleaning.
struct PostgresSchema((String, String));

impl Drop for PostgresSchema {
    fn drop(&mut self) {
        let _ = run_on_postgres(&self.0.0, &self.0.1);
    }
}
