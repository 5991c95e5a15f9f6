//! The driver against the pure machine, and against a server that kills its sessions, is killed itself, or is closed to us.
//!
//! They run if `LOCKLINE_TEST_ENGINES` names `mysql`, as `cargo xtask test` does, each in a database of its own on that server.

mod against_the_line;
mod durability;
mod faults;
mod killed;
mod lineage;
mod logins;
mod refusals;
mod restarts;
mod server;
mod sessions;
mod settings;
mod shared;
mod tls;

use std::sync::Arc;

use super::wire::{Connection, Done, Row};
use super::{Mysql, MysqlConfig, Tls};
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

    /// The sessions in it, the asking one left out. Not from information_schema: MySQL fails to list there what runs with binary values
    /// (3854).
    async fn sessions(&self) -> Vec<i64> {
        let mut session = operator(&self.config).await;
        let own: i64 = session.query("SELECT CONNECTION_ID()").await.unwrap().rows[0].try_get(0).unwrap();
        let all = session.query("SHOW PROCESSLIST").await.unwrap();
        let is_here = |row: &&Row| {
            row.try_get::<Option<String>>("db").unwrap().as_ref() == Some(&self.config.login.database)
        };
        let ids = all.rows.iter().filter(is_here).map(|row| row.try_get("Id").unwrap());
        ids.filter(|id| *id != own).collect()
    }

    /// Leaves the server as it was found.
    async fn done(self) {
        self.run(&format!("DROP DATABASE {}", self.config.login.database)).await;
    }
}

/// A session beside the driver's, for what an operator does.
async fn operator(config: &MysqlConfig) -> Connection {
    let config = config.clone().login("root", "").tls(Tls::Off);
    Connection::open(&config).await.unwrap()
}

async fn operate(config: &MysqlConfig, statement: &str) -> Done {
    operator(config).await.query(statement).await.unwrap_or_else(|e| panic!("{statement}: {e}"))
}

async fn open(config: MysqlConfig) -> (Mysql, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let mysql = Mysql::connect(config, heard.clone()).await.unwrap();
    (mysql, heard)
}
