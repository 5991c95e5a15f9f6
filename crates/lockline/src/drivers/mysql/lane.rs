//! One connection, which carries one statement at a time, made again for as long as it takes. Callers wait in line for it, so that
//! a leave never overtakes its join, and one who goes away disturbs nobody.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

use super::config::MysqlConfig;
use super::durability::Durability;
use super::error::{explain, is_conflict, is_locked};
use super::schema;
use super::wire::{Connection, Done, Failure, Row, Value};
use crate::driver::Bells;
use crate::drivers::under_way::UnderWay;
use crate::error::{Error, ErrorKind, Result};
use crate::pause;

/// After this a session that does not answer is given up. Whoever asked has given up before.
const SILENT_FOR: Duration = Duration::from_secs(10);
/// How long making the tables and procedures may take, once: thirty statements, each of which a server with a binary log syncs several
/// times. Where they are there already, it is one short look.
const PREPARED_WITHIN: Duration = Duration::from_secs(30);
/// How often a statement is sent that the server takes back because of others. It has the same claim id each time.
const TRIES: usize = 4;

/// Settings of the session. Times are read in its zone, whatever the server's own is. With a snapshot a verb would decide by what was
/// before it got the line's row, and locks between rows make deadlocks: read committed. What the mode of the server is does not
/// matter: an assignment of an update sees those before it, and no value of it changes what a statement of ours means. A row that
/// somebody else has locked is not waited for, because whoever is behind in the same session would wait, too
/// (relational/busy.rs). MySQL cannot be told so for a session: its statements skip such rows, or say NOWAIT.
const SESSION: &str = "SET NAMES utf8mb4; SET SESSION time_zone = '+00:00', group_concat_max_len = 1000000, autocommit = 1, \
     innodb_lock_wait_timeout = IF(VERSION() LIKE '%MariaDB%', 0, 1), \
     sql_mode = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'; \
     SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

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
        connection: Option<Connection>,
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

    /// Whether there is a session, and nobody uses it at this moment.
    pub(super) fn is_ready(&self) -> bool {
        self.session.try_lock().is_ok_and(|session| session.connection.is_some())
    }

    /// Sends a statement that reads, behind those that were asked for before. No rows if somebody else has locked one that it needs.
    pub(super) async fn ask(
        &self,
        operation: &'static str,
        text: impl Into<Cow<'static, str>>,
        values: Vec<Value>,
    ) -> Result<Vec<Row>> {
        Ok(self.turn().await?.send(operation, text.into(), values, false).await?.rows)
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
        let done = self.send(operation, text.into(), values, true).await?;
        Ok((done.changed > 0).then(|| done.made.max(1)))
    }

    /// To its end, whoever waits for it: half of an answer would be read by the next one who asks.
    async fn send(
        self,
        operation: &'static str,
        text: Cow<'static, str>,
        values: Vec<Value>,
        changes: bool,
    ) -> Result<Done> {
        let LaneTurn { mut session, runtime } = self;
        UnderWay::new(&runtime, async move { session.run(operation, &text, &values, changes).await }).await
    }
}

/// The one text that a procedure answers.
pub(super) fn text_of(rows: &[Row]) -> Option<String> {
    let row = rows.first()?;
    row.try_get(0).ok()
}

/// The text that is the first column of each row.
pub(super) fn texts_of(rows: &[Row]) -> Option<Vec<String>> {
    rows.iter().map(|row| text_of(std::slice::from_ref(row))).collect()
}

#[derive(Debug)]
struct Session {
    config: MysqlConfig,
    address: Arc<str>,
    durability: Arc<Durability>,
    connection: Option<Connection>,
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
    ) -> Result<Done> {
        for n in 1.. {
            let Some(connection) = self.connection.as_mut() else { break };
            self.is_under_way = true;
            let statement = send(connection, &self.config, text, values);
            let answered = tokio::time::timeout(SILENT_FOR, statement).await;
            self.is_under_way = false;
            let error = match answered {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(e)) if is_conflict(&e) && n < TRIES => continue,
                Ok(Err(e)) if is_locked(&e) => return Ok(Done::default()),
                // The claim that was to come stands there already: nothing was changed, and the procedures see to it.
                Ok(Err(e)) if changes && e.number() == Some(1062) => return Ok(Done::default()),
                Ok(Err(e)) => {
                    if e.number().is_none() {
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
                Err(error) if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Limit) => {
                    return Err(error);
                }
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
    connection: &mut Connection,
    config: &MysqlConfig,
    text: &str,
    values: &[Value],
) -> Result<Done, Failure> {
    #[cfg(test)]
    if let Some(clock) = &config.clock {
        let now = clock.load(std::sync::atomic::Ordering::SeqCst);
        connection.query(&format!("SET @clock = {now}")).await?;
    }
    let _ = config;
    connection.run(text, values).await
}

/// A session that is ready for verbs, with what they need in the database.
pub(super) async fn connect(
    config: &MysqlConfig,
    address: &Arc<str>,
    durability: &Durability,
) -> Result<Connection> {
    let fail = |e: Failure| explain("connect", address, &e, false);
    let silent = || Error::new(ErrorKind::Unavailable, "connect", "the server does not answer").at(address);
    let ready = async {
        let mut connection = Connection::open(config).await.map_err(fail)?;
        connection.query(SESSION).await.map_err(fail)?;
        check(&mut connection, address, durability).await?;
        if config.layout.is_some() {
            // In a table of others the digits of a time mean what the sessions of others take them for: those of the server's zone.
            connection.query("SET SESSION time_zone = DEFAULT").await.map_err(fail)?;
        }
        Ok(connection)
    };
    let ready = tokio::time::timeout(config.connect_within, ready).await;
    let mut connection = ready.unwrap_or_else(|_| Err(silent()))?;
    if config.layout.is_some() {
        return Ok(connection);
    }
    #[cfg(test)]
    let clock = config.clock.is_some();
    #[cfg(not(test))]
    let clock = false;
    let prepared =
        tokio::time::timeout(PREPARED_WITHIN, schema::prepare(&mut connection, address, clock)).await;
    prepared.unwrap_or_else(|_| Err(silent()))?;
    Ok(connection)
}

/// Refuses a server that locks cannot be trusted to, and notes what it keeps. Not every server has all of these settings.
async fn check(connection: &mut Connection, address: &Arc<str>, durability: &Durability) -> Result<()> {
    let fail = |e: Failure| explain("connect", address, &e, false);
    let text = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'log_bin', 'binlog_format', 'sync_binlog', \
                'innodb_flush_log_at_trx_commit', 'innodb_flush_method', 'innodb_doublewrite', 'wsrep_on', 'version')";
    let found = connection.query(text).await.map_err(fail)?;
    let setting = |row: &Row| Ok((row.try_get::<String>(0)?.to_lowercase(), row.try_get(1)?));
    let settings: HashMap<String, String> =
        found.rows.iter().map(setting).collect::<Result<_, Failure>>().map_err(fail)?;
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
