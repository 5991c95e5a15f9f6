//! One connection, which carries one statement at a time, made again for as long as it takes. Statements wait in line for it,
//! so that a leave never overtakes its join, and a caller who goes away disturbs nobody.

use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::{MySqlArguments, MySqlConnectOptions, MySqlConnection, MySqlRow, MySqlSslMode};
use sqlx::{Arguments, AssertSqlSafe, ConnectOptions, Executor, Row};
use tokio::sync::{mpsc, oneshot};

use super::config::{MysqlConfig, Tls};
use super::error::{explain, is_conflict};
use super::schema;
use crate::driver::Bells;
use crate::error::{Error, ErrorKind, Result};

/// How long one attempt to connect may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Pauses between attempts to connect again: from the first to the longest, for as long as anybody waits.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// After this a session that does not answer is given up. Whoever asked has given up before.
const SILENT_FOR: Duration = Duration::from_secs(10);
/// How often a statement is sent that the server takes back because of others. It has the same claim id each time.
const TRIES: usize = 5;

/// A value of a statement.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Bits(u128),
    Bytes(Vec<u8>),
    Int(i64),
    Null,
}

/// A statement on its way.
struct Request {
    operation: &'static str,
    text: Arc<str>,
    values: Vec<Value>,
    reply: oneshot::Sender<Result<Vec<MySqlRow>>>,
}

/// A way to the server.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    requests: mpsc::UnboundedSender<Request>,
}

impl Lane {
    /// A lane that connects when it is first used. Its task ends with it.
    pub(super) fn new(config: MysqlConfig, address: Arc<str>, bells: Bells) -> Lane {
        let (requests, queue) = mpsc::unbounded_channel();
        tokio::spawn(carry(Session { config, address, connection: None, lost: false, bells }, queue));
        Lane { requests }
    }

    /// Sends a statement behind those that were sent before.
    pub(super) fn ask(
        &self,
        operation: &'static str,
        text: Arc<str>,
        values: Vec<Value>,
    ) -> impl Future<Output = Result<Vec<MySqlRow>>> + Send + 'static {
        let (reply, answer) = oneshot::channel();
        let sent = self.requests.send(Request { operation, text, values, reply });
        async move {
            let gone = || Error::new(ErrorKind::Closed, operation, "the runtime of the connection is gone");
            sent.map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        }
    }
}

/// The one text that a procedure answers.
pub(super) fn text_of(rows: &[MySqlRow]) -> Option<String> {
    let row = rows.first()?;
    row.try_get::<String, _>(0).ok().or_else(|| String::from_utf8(row.try_get::<Vec<u8>, _>(0).ok()?).ok())
}

async fn carry(mut session: Session, mut queue: mpsc::UnboundedReceiver<Request>) {
    while let Some(request) = queue.recv().await {
        // Nobody waits for it, and it was never sent.
        if request.reply.is_closed() {
            continue;
        }
        let answer = session.run(&request).await;
        let _ = request.reply.send(answer);
    }
}

struct Session {
    config: MysqlConfig,
    address: Arc<str>,
    connection: Option<MySqlConnection>,
    /// There was a session before: bells may have been lost with it.
    lost: bool,
    bells: Bells,
}

impl Session {
    async fn run(&mut self, request: &Request) -> Result<Vec<MySqlRow>> {
        for n in 1.. {
            self.connect(request).await?;
            let Some(connection) = self.connection.as_mut() else { continue };
            let statement = send(connection, &self.config, request);
            let error = match tokio::time::timeout(SILENT_FOR, statement).await {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(e)) if is_conflict(&e) && n < TRIES => continue,
                Ok(Err(e)) => {
                    if e.as_database_error().is_none() {
                        self.connection = None;
                    }
                    explain(request.operation, &self.address, &e, true)
                }
                Err(_) => {
                    self.connection = None;
                    Error::new(ErrorKind::Unknown, request.operation, "the server does not answer")
                        .at(&self.address)
                }
            };
            // A server that became read-only is left: the address may lead to another one by now.
            if error.kind() == ErrorKind::Unavailable && error.message().contains("read-only") {
                self.connection = None;
            }
            return Err(error);
        }
        Err(Error::new(ErrorKind::Unavailable, request.operation, "the server could not do it now")
            .at(&self.address))
    }

    /// Connects if there is no connection, for as long as somebody waits for it.
    async fn connect(&mut self, request: &Request) -> Result<()> {
        let mut pause = PAUSES.0;
        while self.connection.is_none() {
            match connect(&self.config, &self.address).await {
                Ok(connection) => {
                    self.connection = Some(connection);
                    if std::mem::replace(&mut self.lost, true) {
                        self.bells.look_at_all();
                    }
                }
                Err(error) if error.kind() != ErrorKind::Unavailable || request.reply.is_closed() => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot connect again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                    if request.reply.is_closed() {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

async fn send(
    connection: &mut MySqlConnection,
    config: &MysqlConfig,
    request: &Request,
) -> Result<Vec<MySqlRow>, sqlx::Error> {
    #[cfg(test)]
    if let Some(clock) = &config.clock {
        let now = clock.load(std::sync::atomic::Ordering::SeqCst);
        sqlx::raw_sql(AssertSqlSafe(format!("SET @clock = {now}"))).execute(&mut *connection).await?;
    }
    let _ = config;
    let mut values = MySqlArguments::default();
    for value in &request.values {
        match value {
            Value::Bits(bits) => values.add(bits.to_be_bytes().as_slice()),
            Value::Bytes(bytes) => values.add(bytes.as_slice()),
            Value::Int(number) => values.add(number),
            Value::Null => values.add(None::<Vec<u8>>),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    connection.fetch_all(sqlx::query_with(AssertSqlSafe(request.text.to_string()), values)).await
}

/// A session that is ready for verbs.
pub(super) async fn connect(config: &MysqlConfig, address: &Arc<str>) -> Result<MySqlConnection> {
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
        let set = "SET SESSION group_concat_max_len = 1000000, innodb_lock_wait_timeout = 5, autocommit = 1";
        connection.execute(set).await.map_err(fail)?;
        let row = connection.fetch_one("SELECT @@global.read_only").await.map_err(fail)?;
        if row.try_get::<i64, _>(0).is_ok_and(|read_only| read_only != 0) {
            let message = "the server is read-only: a replica, or an old primary after a failover";
            return Err(Error::new(ErrorKind::Unavailable, "connect", message)
                .hint("name the primary")
                .at(address));
        }
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
