//! MariaDB: a database for each test.

use std::any::Any;
use std::sync::Arc;

use lockline::EngineUrl;
use lockline::driver::Driver;
use lockline::drivers::mysql::{Mysql, MysqlConfig};
use sqlx_core::connection::Connection;
use sqlx_core::raw_sql::raw_sql;
use sqlx_core::sql_str::AssertSqlSafe;
use sqlx_mysql::MySqlConnection;

use super::{Engine, on_a_thread, server_of};

/// A database of its own on the MariaDB server of this run.
///
/// # Panics
/// If this run includes no such server, or its address makes no sense.
pub fn mysql() -> Engine {
    let server = server_of("mysql");
    let database = format!("test_{:016x}", fastrand::u64(..));
    run_on_mysql(&server, &format!("CREATE DATABASE {database}")).expect("a database is made");
    let (base, _) = server.rsplit_once('/').expect("the address names a database");
    let url = format!("{base}/{database}");
    let config = EngineUrl::parse(&url).and_then(MysqlConfig::from_url).expect("the address makes sense");
    let open = move |bells| {
        let config = config.clone();
        async move { Ok(Arc::new(Mysql::connect(config, bells).await?) as Arc<dyn Driver>) }
    };
    let forget =
        format!("DELETE FROM {database}.lockline_claims; DELETE FROM {database}.lockline_lone_claims");
    let to_forget = (server.clone(), forget);
    let (to_sit, table) = (server.clone(), format!("{database}.lockline_lines"));
    Engine::new("mysql", url, open)
        .forgets(move || run_on_mysql(&to_forget.0, &to_forget.1).expect("the claims are deleted"))
        .sits_on(move |names| sit_on_rows(to_sit.clone(), table.clone(), names))
        .keeps(MysqlDatabase(server, format!("DROP DATABASE {database}")))
}

/// Locks the rows of these names in a transaction that ends with its session.
async fn sit_on_rows(server: String, table: String, names: Vec<String>) -> Box<dyn Any + Send> {
    let lock = |name: &String| {
        format!("SELECT line FROM {table} WHERE line = LEFT(UNHEX(SHA2('{name}', 256)), 16) FOR UPDATE")
    };
    sit(&server, names.iter().map(lock).collect()).await
}

/// Runs statements that lock one row each, in a transaction that ends with its session.
pub(super) async fn sit(server: &str, locks: Vec<String>) -> Box<dyn Any + Send> {
    let mut session = MySqlConnection::connect(server).await.expect("a session");
    let begin = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION";
    raw_sql(begin).execute(&mut session).await.expect("a transaction");
    for lock in locks {
        let rows = raw_sql(AssertSqlSafe(lock)).fetch_all(&mut session).await;
        assert_eq!(rows.expect("the row is locked").len(), 1, "every lock has its row");
    }
    Box::new(session)
}

/// Runs one statement on a session of its own.
pub(super) fn run_on_mysql(server: &str, statement: &str) -> Result<(), sqlx_core::Error> {
    let (server, statement) = (server.to_owned(), statement.to_owned());
    on_a_thread(async move {
        let mut session = MySqlConnection::connect(&server).await?;
        raw_sql(AssertSqlSafe(statement)).execute(&mut session).await?;
        session.close().await
    })
}

/// Leaves the server as it was found; one that is gone needs no cleaning.
pub(super) struct MysqlDatabase(pub(super) String, pub(super) String);

impl Drop for MysqlDatabase {
    fn drop(&mut self) {
        let _ = run_on_mysql(&self.0, &self.1);
    }
}
