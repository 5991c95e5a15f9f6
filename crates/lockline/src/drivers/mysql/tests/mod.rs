//! The driver against the pure machine, and against a server that kills its sessions, is killed itself, or is closed to us.
//!
//! They run if `LOCKLINE_TEST_ENGINES` names `mysql`, as `cargo xtask test` does, each in a database of its own on that server.

mod against_the_line;
mod durability;
mod faults;
mod refusals;
mod restarts;
mod server;
mod tls;

use std::sync::Arc;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, ConnectOptions};

use super::{Mysql, MysqlConfig};
use crate::drivers::testing::{Heard, address_of, claim, is_in, place};
use crate::line::ClaimId;
use crate::url::EngineUrl;

/// A database of its own on the server of this run, which goes with it; if there is no server, says so.
async fn included() -> Option<Database> {
    let url = address_of("mysql")?;
    let mut config = MysqlConfig::from_url(EngineUrl::parse(&url).unwrap()).unwrap();
    let name = format!("test_{:08x}", ClaimId::random().as_u128() >> 96);
    operate(&config, &format!("CREATE DATABASE {name}")).await;
    config.login.database = name;
    Some(Database { config })
}

struct Database {
    config: MysqlConfig,
}

impl Database {
    async fn run(&self, statement: &str) {
        operate(&self.config, statement).await;
    }

    /// Leaves the server as it was found.
    async fn done(self) {
        self.run(&format!("DROP DATABASE {}", self.config.login.database)).await;
    }
}

/// A session beside the driver's, for what an operator does.
async fn operator(config: &MysqlConfig) -> MySqlConnection {
    let options = sqlx::mysql::MySqlConnectOptions::new()
        .host(&config.host)
        .port(config.port)
        .username("root")
        .database(&config.login.database);
    options.connect().await.unwrap()
}

async fn operate(config: &MysqlConfig, statement: &str) {
    let mut session = operator(config).await;
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut session).await.unwrap();
}

async fn open(config: MysqlConfig) -> (Mysql, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let mysql = Mysql::connect(config, heard.clone()).await.unwrap();
    (mysql, heard)
}
