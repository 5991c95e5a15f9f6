//! One connection, which carries one statement at a time, made again for as long as it takes. Callers wait in line for it, so that
//! a leave never overtakes its join, and one who goes away disturbs nobody.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::{
    MySqlArguments, MySqlConnectOptions, MySqlConnection, MySqlQueryResult, MySqlRow, MySqlSslMode,
};
use sqlx::{Arguments, AssertSqlSafe, ConnectOptions, Executor, Row};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

use super::config::{MysqlConfig, Tls};
use super::durability::Durability;
use super::error::{explain, is_conflict, is_locked, number_of};
use super::schema;
use crate::driver::Bells;
use crate::drivers::under_way::UnderWay;
use crate::error::{Error, ErrorKind, Result};
use crate::pause;

/// How long one attempt to connect may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// After this a session that does not answer is given up. Whoever asked has given up before.
const SILENT_FOR: Duration = Duration::from_secs(10);
/// How often a statement is sent that the server takes back because of others. It has the same claim id each time.
const TRIES: usize = 4;

/// Settings of the session. With a snapshot a verb would decide by what was before it got the line's row, and locks between rows
/// make deadlocks: read committed. An assignment of an update sees those before it, unless a mode says otherwise: what the mode of
/// the server is does not matter, and none of its values changes what a statement of ours means. A row that somebody else has locked is not
/// waited for, because whoever is behind in the same session would wait, too (relational/busy.rs); MySQL waits for a second at least.
const SESSION: &str = "SET SESSION group_concat_max_len = 1000000, autocommit = 1, \
     innodb_lock_wait_timeout = IF(VERSION() LIKE '%MariaDB%', 0, 1), \
     sql_mode = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'; \
     SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// A value of a statement.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Bits(u128),
    Bytes(Vec<u8>),
    Int(i64),
    Null,
}

/// What a statement gives back.
#[derive(Debug)]
enum Reply {
    Rows(Vec<MySqlRow>),
    Changed(MySqlQueryResult),
}

/// A way to the server: one session, which whoever asks has to himself until it is answered.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    session: Arc<Mutex<Session>>,
    runtime: Handle,
    _open: Arc<oneshot::Sender<()>>,
}

impl Lane {
    /// A lane that connects when it is first used, unless it is given a session.
    pub(super) fn new(
        config: MysqlConfig,
        address: Arc<str>,
        durability: Arc<Durability>,
        bells: Bells,
        connection: Option<MySqlConnection>,
    ) -> Lane {
        let lost = connection.is_some();
        let session = Session { config, address, durability, connection, is_under_way: false, lost, bells };
        let session = Arc::new(Mutex::new(session));
        let (open, closed) = oneshot::channel();
        // A task has it, too, for as long as there is a lane. A fork of this process has no tasks that run; if its copy of the lane
        // were all there is, dropping that would take the connection off the list of events that it shares with this process.
        let kept = session.clone();
        let runtime = Handle::current();
        runtime.spawn(async move {
            let _ = closed.await;
            drop(kept);
        });
        Lane { session, runtime, _open: Arc::new(open) }
    }

    /// Sends a statement that reads, behind those that were asked for before. No rows if somebody else has locked one that it needs.
    pub(super) async fn ask(
        &self,
        operation: &'static str,
        text: impl Into<Cow<'static, str>>,
        values: Vec<Value>,
    ) -> Result<Vec<MySqlRow>> {
        match self.send(operation, text.into(), values, false).await? {
            Reply::Rows(rows) => Ok(rows),
            Reply::Changed(_) => Ok(Vec::new()),
        }
    }

    /// Sends a statement that changes a row, if there is such a row and nobody else has locked it; answers the number that it
    /// made, or 1.
    pub(super) async fn change(
        &self,
        operation: &'static str,
        text: impl Into<Cow<'static, str>>,
        values: Vec<Value>,
    ) -> Result<Option<u64>> {
        self.turn().await?.change(operation, text, values).await
    }

    async fn send(
        &self,
        operation: &'static str,
        text: Cow<'static, str>,
        values: Vec<Value>,
        changes: bool,
    ) -> Result<Reply> {
        self.turn().await?.send(operation, text, values, changes).await
    }

    /// Waits for those who asked before, for whoever can say what to send only then.
    ///
    /// # Cancel safety
    /// Whoever goes away while there is no connection has asked for nothing. A join that is sent when the server is back, long
    /// after its caller gave up, would stand in line for nobody.
    pub(super) async fn turn(&self) -> Result<LaneTurn> {
        let mut session = self.session.clone().lock_owned().await;
        session.connect().await?;
        Ok(LaneTurn { session, runtime: self.runtime.clone() })
    }
}

/// A session that is there, and nobody else's.
#[derive(Debug)]
pub(super) struct LaneTurn {
    session: OwnedMutexGuard<Session>,
    runtime: Handle,
}

impl LaneTurn {
    /// As [`Lane::change`].
    pub(super) async fn change(
        self,
        operation: &'static str,
        text: impl Into<Cow<'static, str>>,
        values: Vec<Value>,
    ) -> Result<Option<u64>> {
        match self.send(operation, text.into(), values, true).await? {
            Reply::Changed(done) if done.rows_affected() > 0 => Ok(Some(done.last_insert_id().max(1))),
            _ => Ok(None),
        }
    }

    /// To its end, whoever waits for it: half of an answer would be read by the next one who asks.
    async fn send(
        self,
        operation: &'static str,
        text: Cow<'static, str>,
        values: Vec<Value>,
        changes: bool,
    ) -> Result<Reply> {
        let LaneTurn { mut session, runtime } = self;
        UnderWay::new(&runtime, async move { session.run(operation, &text, &values, changes).await }).await
    }
}

/// The one text that a procedure answers.
pub(super) fn text_of(rows: &[MySqlRow]) -> Option<String> {
    let row = rows.first()?;
    row.try_get::<String, _>(0).ok().or_else(|| String::from_utf8(row.try_get::<Vec<u8>, _>(0).ok()?).ok())
}

#[derive(Debug)]
struct Session {
    config: MysqlConfig,
    address: Arc<str>,
    durability: Arc<Durability>,
    connection: Option<MySqlConnection>,
    /// Set while a statement has not been answered. Found set, its runtime ended in the middle of it.
    is_under_way: bool,
    /// There was a session before: bells may have been lost with it.
    lost: bool,
    bells: Bells,
}

impl Session {
    async fn run(
        &mut self,
        operation: &'static str,
        text: &str,
        values: &[Value],
        changes: bool,
    ) -> Result<Reply> {
        for n in 1.. {
            let Some(connection) = self.connection.as_mut() else { break };
            self.is_under_way = true;
            let statement = send(connection, &self.config, text, values, changes);
            let answered = tokio::time::timeout(SILENT_FOR, statement).await;
            self.is_under_way = false;
            let error = match answered {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(e)) if is_conflict(&e) && n < TRIES => continue,
                Ok(Err(e)) if is_locked(&e) => return Ok(Reply::Rows(Vec::new())),
                // The claim that was to come stands there already: nothing was changed, and the procedures see to it.
                Ok(Err(e)) if changes && number_of(&e) == Some(1062) => return Ok(Reply::Rows(Vec::new())),
                Ok(Err(e)) => {
                    if e.as_database_error().is_none() {
                        self.connection = None;
                    }
                    explain(operation, &self.address, &e, true)
                }
                Err(_) => {
                    self.connection = None;
                    Error::new(ErrorKind::Unknown, operation, "the server does not answer").at(&self.address)
                }
            };
            // A server that became read-only is left: the address may lead to another one by now.
            if error.kind() == ErrorKind::Unavailable && error.message().contains("read-only") {
                self.connection = None;
            }
            return Err(error);
        }
        Err(Error::new(ErrorKind::Unavailable, operation, "the server could not do it now").at(&self.address))
    }

    /// Connects if there is no connection, for as long as its caller waits for it.
    async fn connect(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_under_way, false) {
            self.connection = None;
        }
        let mut pauses = pause::RECONNECT;
        if self.lost && self.connection.is_none() {
            pause::before_reconnecting().await;
        }
        while self.connection.is_none() {
            match connect(&self.config, &self.address, &self.durability).await {
                Ok(connection) => {
                    self.connection = Some(connection);
                    if std::mem::replace(&mut self.lost, true) {
                        self.bells.look_at_all();
                    }
                }
                Err(error) if error.kind() != ErrorKind::Unavailable => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "cannot connect again");
                    tokio::time::sleep(pauses.next()).await;
                }
            }
        }
        Ok(())
    }
}

async fn send(
    connection: &mut MySqlConnection,
    config: &MysqlConfig,
    text: &str,
    values: &[Value],
    changes: bool,
) -> Result<Reply, sqlx::Error> {
    #[cfg(test)]
    if let Some(clock) = &config.clock {
        let now = clock.load(std::sync::atomic::Ordering::SeqCst);
        sqlx::raw_sql(AssertSqlSafe(format!("SET @clock = {now}"))).execute(&mut *connection).await?;
    }
    let _ = config;
    let mut arguments = MySqlArguments::default();
    for value in values {
        match value {
            Value::Bits(bits) => arguments.add(bits.to_be_bytes().as_slice()),
            Value::Bytes(bytes) => arguments.add(bytes.as_slice()),
            Value::Int(number) => arguments.add(number),
            Value::Null => arguments.add(None::<Vec<u8>>),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    let statement = sqlx::query_with(AssertSqlSafe(text.to_owned()), arguments);
    if changes {
        return connection.execute(statement).await.map(Reply::Changed);
    }
    connection.fetch_all(statement).await.map(Reply::Rows)
}

/// A session that is ready for verbs, with what they need in the database.
pub(super) async fn connect(
    config: &MysqlConfig,
    address: &Arc<str>,
    durability: &Durability,
) -> Result<MySqlConnection> {
    let fail = |e: sqlx::Error| explain("connect", address, &e, false);
    let mut options = MySqlConnectOptions::new()
        .host(&config.host)
        .port(config.port)
        .username(&config.login.user)
        .database(&config.login.database)
        .ssl_mode(if config.tls == Tls::Off { MySqlSslMode::Disabled } else { MySqlSslMode::VerifyIdentity });
    if let Some(password) = &config.login.password {
        options = options.password(password);
    }
    if let Tls::Authority(file) = &config.tls {
        options = options.ssl_ca(file);
    }
    // Its own log lines would show every statement.
    let options = options.disable_statement_logging();
    let all = async {
        let mut connection = options.connect().await.map_err(fail)?;
        connection.execute(sqlx::raw_sql(SESSION)).await.map_err(fail)?;
        check(&mut connection, address, durability).await?;
        #[cfg(test)]
        let clock = config.clock.is_some();
        #[cfg(not(test))]
        let clock = false;
        schema::prepare(&mut connection, address, clock).await?;
        Ok(connection)
    };
    tokio::time::timeout(CONNECT_WITHIN, all).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unavailable, "connect", "the server does not answer").at(address))
    })
}

/// Refuses a server that locks cannot be trusted to, and notes what it keeps. Not every server has all of these settings.
async fn check(connection: &mut MySqlConnection, address: &Arc<str>, durability: &Durability) -> Result<()> {
    let fail = |e: sqlx::Error| explain("connect", address, &e, false);
    let text = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'log_bin', 'binlog_format', 'sync_binlog', \
                'innodb_flush_log_at_trx_commit', 'innodb_flush_method', 'innodb_doublewrite', 'wsrep_on')";
    let rows = connection.fetch_all(text).await.map_err(fail)?;
    let setting = |row: &MySqlRow| Ok((row.try_get::<String, _>(0)?.to_lowercase(), row.try_get(1)?));
    let settings: HashMap<String, String> =
        rows.iter().map(setting).collect::<Result<_, sqlx::Error>>().map_err(fail)?;
    let is = |name: &str, value: &str| settings.get(name).is_some_and(|set| set.eq_ignore_ascii_case(value));
    let refuse = |kind, message: &'static str, hint: &'static str| {
        Err(Error::new(kind, "connect", message).hint(hint).at(address))
    };
    if is("read_only", "ON") {
        let message = "the server is read-only: a replica, or an old primary after a failover";
        return refuse(ErrorKind::Unavailable, message, "name the primary");
    }
    // The session keeps the format that it began with.
    if is("log_bin", "ON") && is("binlog_format", "STATEMENT") {
        let message = "the server's binary log repeats statements: on a replica, which has another clock, they would \
                       make other locks";
        return refuse(ErrorKind::Unsafe, message, "set binlog_format to MIXED or ROW");
    }
    durability.read(&settings);
    Ok(())
}
