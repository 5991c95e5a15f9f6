//! MariaDB and MySQL: `SELECT 1`, a row that is inserted and deleted, and the server's own fair queue (`GET_LOCK`).

use anyhow::{Context, Result, ensure};
use sqlx_core::connection::Connection;
use sqlx_core::executor::Executor;
use sqlx_core::raw_sql::raw_sql;
use sqlx_core::row::Row;
use sqlx_core::sql_str::AssertSqlSafe;
use sqlx_mysql::MySqlConnection;
use tokio::sync::Mutex;

use super::{MOST_WORKERS, Server, Soon};
use crate::engine::Site;

/// One connection, which carries one statement at a time, as the driver's do; and for named locks, which belong to a session, one
/// for each worker. Statements are sent as text, which the server counts apart from the driver's, and which takes it no longer.
#[derive(Debug)]
pub(super) struct Bare {
    address: String,
    space: String,
    connection: Mutex<MySqlConnection>,
    sessions: Vec<Mutex<Option<MySqlConnection>>>,
}

impl Bare {
    pub(super) async fn connect(site: &Site) -> Result<Bare> {
        // Its options are ours, and nothing to this client.
        let address = site.url.split('?').next().context("no address")?.to_owned();
        let mut connection = MySqlConnection::connect(&address).await?;
        connection
            .execute(
                "CREATE TABLE IF NOT EXISTS floor_locks (name VARCHAR(100) PRIMARY KEY, owner VARCHAR(9)) ENGINE = InnoDB",
            )
            .await?;
        let space = site.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let sessions = (0..MOST_WORKERS).map(|_| Mutex::new(None)).collect();
        Ok(Bare { address, space, connection: Mutex::new(connection), sessions })
    }

    async fn text(&self, statement: &'static str, column: usize) -> Result<String> {
        let row = raw_sql(statement).fetch_one(&mut *self.connection.lock().await).await?;
        Ok(row.try_get(column)?)
    }

    async fn number(&self, statement: &'static str, column: usize) -> Result<Option<u64>> {
        Ok(Some(self.text(statement, column).await?.parse()?))
    }
}

const SETTINGS: &str = "SELECT CONCAT(@@version_comment, ' ', VERSION(), \
     ': innodb_flush_log_at_trx_commit = ', @@innodb_flush_log_at_trx_commit, ', innodb_flush_method = ', @@innodb_flush_method, \
     ', log_bin = ', @@log_bin, ', sync_binlog = ', @@sync_binlog)";

async fn run(connection: &mut MySqlConnection, statement: String) -> Result<u64> {
    Ok(raw_sql(AssertSqlSafe(statement)).execute(connection).await?.rows_affected())
}

impl Server for Bare {
    fn round_trip_is(&self) -> &'static str {
        "SELECT 1"
    }

    fn round_trip(&self) -> Soon<'_, ()> {
        Box::pin(async {
            self.connection.lock().await.execute("SELECT 1").await?;
            Ok(())
        })
    }

    fn pair_is(&self) -> &'static str {
        "INSERT + DELETE of a row, as many workers"
    }

    fn pair(&self, worker: usize) -> Soon<'_, ()> {
        Box::pin(async move {
            let name = format!("{}/{worker}", self.space);
            let mut connection = self.connection.lock().await;
            let taken =
                run(&mut connection, format!("INSERT IGNORE INTO floor_locks VALUES ('{name}', 'me')"))
                    .await?;
            ensure!(taken == 1, "the floor's own lock is taken");
            run(&mut connection, format!("DELETE FROM floor_locks WHERE name = '{name}' AND owner = 'me'"))
                .await?;
            Ok(())
        })
    }

    fn peer(&self) -> Option<&'static str> {
        Some("get_lock")
    }

    fn peer_turn<'a>(&'a self, worker: usize, name: &'a str, inside: Soon<'a, ()>) -> Soon<'a, ()> {
        Box::pin(async move {
            let mut session = self.sessions.get(worker).context("too many workers")?.lock().await;
            if session.is_none() {
                *session = Some(MySqlConnection::connect(&self.address).await?);
            }
            let session = session.as_mut().context("there is a session")?;
            run(session, format!("DO GET_LOCK('{}/{name}', 600)", self.space)).await?;
            inside.await?;
            run(session, format!("DO RELEASE_LOCK('{}/{name}')", self.space)).await?;
            Ok(())
        })
    }

    fn settings(&self) -> Soon<'_, Option<String>> {
        Box::pin(async { self.text(SETTINGS, 0).await.map(Some) })
    }

    /// The driver's statements are prepared, and nobody else's.
    fn commands(&self) -> Soon<'_, Option<u64>> {
        Box::pin(self.number("SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'", 1))
    }

    /// All but this one: in this row nobody else is connected.
    fn sessions(&self) -> Soon<'_, Option<u64>> {
        Box::pin(async {
            let all = self.number("SHOW GLOBAL STATUS LIKE 'Threads_connected'", 1).await?;
            Ok(all.map(|all| all.saturating_sub(1)))
        })
    }
}
