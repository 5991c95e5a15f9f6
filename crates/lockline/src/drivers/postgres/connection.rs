//! One connection that many callers share, made again for as long as it takes; and the notifications that come over it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinHandle;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::config::{Pooler, PostgresConfig};
use super::error::explain;
use super::{schema, tls};
use crate::driver::Bells;
use crate::drivers::relational::decode_bell;
use crate::error::{Error, ErrorKind, Result};

/// How long one attempt to connect may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Pauses between attempts to connect again: from the first to the longest, for as long as it takes.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// After how long without an acknowledgement a connection is given up.
const SILENT_FOR: Duration = Duration::from_secs(10);

/// Settings of the session. There is no limit for a statement on purpose: one that waits for a synchronous standby would be
/// called done when the limit ends, although the standby does not have it. One row is found by its index: a bitmap, which
/// the planner takes for as good while it knows nothing of the table, is more work.
const SESSION: &str = "-c default_transaction_isolation=read\\ committed -c lock_timeout=5s -c statement_timeout=0 \
     -c idle_in_transaction_session_timeout=10s -c client_min_messages=warning \
     -c enable_seqscan=off -c enable_bitmapscan=off";

/// A value with its type, because a pooler knows no prepared statements; owned, because a statement outlives its caller there.
pub(super) type Param = (Box<dyn ToSql + Send + Sync>, Type);

/// A value as a statement takes it.
pub(super) fn param(value: impl ToSql + Send + Sync + 'static, kind: Type) -> Param {
    (Box::new(value), kind)
}

/// The statements that verbs send.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    JoinAlone,
    Join,
    Renew,
    LeaveAlone,
    Leave,
    Evict,
    Tick,
    Letters,
    Names,
    View,
}

const ASKS: [(Ask, &str); 10] = [
    (Ask::JoinAlone, include_str!("sql/join_alone.sql")),
    (Ask::Join, "SELECT \"lockline\".join($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14)"),
    (Ask::Renew, "SELECT \"lockline\".renew($1,$2,$3,$4,$5,$6)"),
    (Ask::LeaveAlone, include_str!("sql/leave_alone.sql")),
    (Ask::Leave, "SELECT \"lockline\".leave($1,$2,$3,$4,$5)"),
    (Ask::Evict, "SELECT \"lockline\".evict($1,$2,$3,$4,$5)"),
    (Ask::Tick, "SELECT \"lockline\".tick($1,$2)"),
    (Ask::Letters, "SELECT \"lockline\".read_letters($1)"),
    (Ask::Names, include_str!("sql/names.sql")),
    (Ask::View, include_str!("sql/view.sql")),
];

/// A way to the server.
#[derive(Debug)]
pub(super) struct Connection {
    address: Arc<str>,
    live: watch::Receiver<State>,
    _supervisor: Task,
}

/// Where the connection stands.
#[derive(Clone, Debug)]
enum State {
    Up(Arc<Live>),
    /// With what stands in the way for good, if it is known.
    Down(Option<(ErrorKind, String)>),
}

/// A session.
#[derive(Debug)]
struct Live {
    client: Client,
    texts: Vec<String>,
    /// Prepared, unless a pooler may give every statement another session.
    prepared: Vec<Statement>,
    /// Behind a pooler one statement goes at a time. PgBouncer 1.18 gives the session to somebody else as soon as the first of
    /// several is answered, and the other answers with it (pgbouncer#759).
    turn: Option<Arc<Mutex<()>>>,
    /// Ends the session.
    end: Arc<Notify>,
}

/// A task that ends with its owner.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    /// Connects, and goes on connecting. `channel`: what to listen to, if anything.
    pub(super) async fn open(
        config: PostgresConfig,
        address: Arc<str>,
        channel: Option<String>,
        bells: Bells,
    ) -> Result<Connection> {
        let maker =
            Maker { tls: tls::connector(&config.tls)?, config, address: address.clone(), channel, bells };
        let (first, driving) = maker.connect().await?;
        let (tell, live) = watch::channel(State::Up(first));
        let supervisor = Task(tokio::spawn(supervise(maker, driving, tell)));
        Ok(Connection { address, live, _supervisor: supervisor })
    }

    /// The session there is, or the next one. Deadlines come from above.
    async fn live(&self, operation: &'static str) -> Result<Arc<Live>> {
        // The common case without a receiver of its own.
        if let State::Up(live) = &*self.live.borrow() {
            return Ok(live.clone());
        }
        let mut state = self.live.clone();
        loop {
            match &*state.borrow_and_update() {
                State::Up(live) => return Ok(live.clone()),
                State::Down(Some((kind, why))) => {
                    return Err(Error::new(*kind, operation, why.clone()).at(&self.address));
                }
                State::Down(None) => {}
            }
            if state.changed().await.is_err() {
                return Err(gone(operation));
            }
        }
    }

    /// Sends a statement; it is sent when the future is first polled, in one order for all callers.
    pub(super) async fn ask(
        &self,
        operation: &'static str,
        ask: Ask,
        params: Vec<Param>,
    ) -> Result<Vec<Row>> {
        Ok(self.send(operation, ask, params).await?.rows)
    }

    /// Sends a statement that gives no rows. How many it changed.
    pub(super) async fn change(&self, operation: &'static str, ask: Ask, params: Vec<Param>) -> Result<u64> {
        Ok(self.send(operation, ask, params).await?.changed)
    }

    async fn send(&self, operation: &'static str, ask: Ask, params: Vec<Param>) -> Result<Outcome> {
        let live = self.live(operation).await?;
        let answer = match &live.turn {
            None => live.send(ask, &params).await,
            Some(turn) => {
                let (turn, asked) = (turn.clone().lock_owned().await, live.clone());
                // In a task of its own: a caller that goes away must not let the next statement go before the answer. A session
                // that does not answer at all is given up.
                let asking = tokio::spawn(async move {
                    let answer = tokio::time::timeout(SILENT_FOR, asked.send(ask, &params)).await;
                    if answer.is_err() {
                        asked.end.notify_one();
                    }
                    drop(turn);
                    answer
                });
                asking.await.map_err(|_| gone(operation))?.map_err(|_| {
                    Error::new(ErrorKind::Unknown, operation, "the server does not answer").at(&self.address)
                })?
            }
        };
        answer.map_err(|e| {
            let error = explain(operation, &self.address, &e, true);
            // A pooler or a proxy may go on leading to a server that is no longer the primary.
            if e.code().is_some_and(|code| code.code() == "25006") {
                live.end.notify_one();
            }
            error
        })
    }

    /// The one text that a routine answers.
    pub(super) async fn routine(
        &self,
        operation: &'static str,
        ask: Ask,
        params: Vec<Param>,
    ) -> Result<String> {
        let rows = self.ask(operation, ask, params).await?;
        rows.first()
            .and_then(|row| row.try_get::<_, String>(0).ok())
            .ok_or_else(|| crate::drivers::relational::nonsense(operation, &self.address))
    }

    #[cfg(test)]
    pub(super) async fn operator(&self, statement: &str) {
        self.live("test").await.unwrap().client.batch_execute(statement).await.unwrap();
    }
}

/// What a statement gave: rows, or how many it changed.
#[derive(Default)]
struct Outcome {
    rows: Vec<Row>,
    changed: u64,
}

impl Live {
    async fn send(&self, ask: Ask, params: &[Param]) -> Result<Outcome, tokio_postgres::Error> {
        let values = params.iter().map(|(value, _)| value.as_ref() as &(dyn ToSql + Sync));
        let rows = |rows| Outcome { rows, ..Outcome::default() };
        let changed = |changed| Outcome { changed, ..Outcome::default() };
        // Rows that are asked for are kept by the server until the statement has ended, which takes a while.
        let only_changes = matches!(ask, Ask::LeaveAlone);
        match self.prepared.get(ask as usize) {
            Some(statement) => {
                let values = values.collect::<Vec<_>>();
                if only_changes {
                    self.client.execute(statement, &values).await.map(changed)
                } else {
                    self.client.query(statement, &values).await.map(rows)
                }
            }
            None => {
                let text = &self.texts[ask as usize];
                let typed: Vec<_> =
                    values.zip(params).map(|(value, (_, kind))| (value, kind.clone())).collect();
                if only_changes {
                    self.client.execute_typed(text, &typed).await.map(changed)
                } else {
                    self.client.query_typed(text, &typed).await.map(rows)
                }
            }
        }
    }
}

fn gone(operation: &'static str) -> Error {
    Error::new(ErrorKind::Closed, operation, "the runtime of the connection is gone")
}

/// What a connection is made from.
struct Maker {
    config: PostgresConfig,
    address: Arc<str>,
    tls: Option<MakeRustlsConnect>,
    channel: Option<String>,
    bells: Bells,
}

impl Maker {
    /// A session that is ready for verbs and hears its channel, and the task that drives it.
    async fn connect(&self) -> Result<(Arc<Live>, Task)> {
        let all = async {
            let (client, driving, end) = self.dial().await?;
            let live = self.set_up(client, end).await?;
            Ok((Arc::new(live), driving))
        };
        tokio::time::timeout(CONNECT_WITHIN, all).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unavailable, "connect", "the server does not answer").at(&self.address))
        })
    }

    async fn dial(&self) -> Result<(Client, Task, Arc<Notify>)> {
        let config = self.settings();
        let fail = |e: tokio_postgres::Error| explain("connect", &self.address, &e, false);
        let end = Arc::new(Notify::new());
        // Two types of connection, and no other difference.
        let (client, driving) = match &self.tls {
            Some(tls) => {
                let (client, connection) = config.connect(tls.clone()).await.map_err(fail)?;
                (client, tokio::spawn(drive(connection, self.bells.clone(), end.clone())))
            }
            None => {
                let (client, connection) = config.connect(NoTls).await.map_err(fail)?;
                (client, tokio::spawn(drive(connection, self.bells.clone(), end.clone())))
            }
        };
        Ok((client, Task(driving), end))
    }

    fn settings(&self) -> Config {
        let PostgresConfig { hosts, login, pooler, .. } = &self.config;
        let mut settings = Config::new();
        for (host, port) in hosts {
            settings.host(host).port(*port);
        }
        settings.user(&login.user).dbname(&login.database).application_name("lockline");
        if let Some(password) = &login.password {
            settings.password(password);
        }
        if *pooler == Pooler::None {
            settings.options(SESSION);
        }
        settings.ssl_mode(if self.tls.is_some() { SslMode::Require } else { SslMode::Disable });
        settings.target_session_attrs(TargetSessionAttrs::ReadWrite);
        settings.connect_timeout(CONNECT_WITHIN).tcp_user_timeout(SILENT_FOR);
        settings.keepalives_idle(SILENT_FOR).keepalives_interval(SILENT_FOR / 5).keepalives_retries(3);
        settings
    }

    async fn set_up(&self, client: Client, end: Arc<Notify>) -> Result<Live> {
        let schema = &self.config.schema;
        schema::prepare(&client, schema, &self.address).await?;
        let fail = |e: tokio_postgres::Error| explain("connect", &self.address, &e, false);
        let is_ours = self.config.pooler == Pooler::None;
        let settings = if is_ours { "" } else { include_str!("sql/settings.sql") };
        let text = |text: &str| schema::in_schema(text, schema).replace("{settings}", settings);
        let texts: Vec<String> = ASKS.iter().map(|(_, one)| text(one)).collect();
        let mut prepared = Vec::new();
        if is_ours {
            for text in &texts {
                prepared.push(client.prepare(text).await.map_err(fail)?);
            }
            // For this session, whatever the server is told later: a grant that a crash takes back gives two holders.
            let keep = "SELECT set_config('synchronous_commit', \
                 coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), false)";
            client.batch_execute(keep).await.map_err(fail)?;
        }
        if let Some(channel) = &self.channel {
            client.batch_execute(&format!("LISTEN \"{channel}\"")).await.map_err(fail)?;
        }
        let turn = (self.config.pooler == Pooler::Transaction).then(Arc::default);
        Ok(Live { client, texts, prepared, turn, end })
    }
}

/// Keeps a connection up for as long as its owner lives.
async fn supervise(maker: Maker, mut driving: Task, tell: watch::Sender<State>) {
    loop {
        // Ends with the session.
        let _ = (&mut driving.0).await;
        tracing::debug!(engine = %maker.address, "the connection to the server was lost");
        let _ = tell.send(State::Down(None));
        let mut pause = PAUSES.0;
        let live = loop {
            match maker.connect().await {
                Ok((live, task)) => {
                    driving = task;
                    break live;
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot connect again");
                    let for_good =
                        (!error.kind().is_transient()).then(|| (error.kind(), error.message().to_owned()));
                    let _ = tell.send(State::Down(for_good));
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        };
        let _ = tell.send(State::Up(live));
        // Bells were lost while nobody listened; from now on they come again, so whoever looks now misses none.
        maker.bells.look_at_all();
    }
}

/// Drives a session and rings its bells, until it ends.
async fn drive<S, T>(mut connection: tokio_postgres::Connection<S, T>, bells: Bells, end: Arc<Notify>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let message = {
            let next = pin!(poll_fn(|context| connection.poll_message(context)));
            tokio::select! {
                message = next => message,
                () = end.notified() => return,
            }
        };
        match message {
            Some(Ok(AsyncMessage::Notification(notice))) => match decode_bell(notice.payload()) {
                Some((name, bell)) => bells.ring(&name, &bell),
                None => tracing::debug!("a notification on our channel is no bell"),
            },
            // Our statements give no warnings. What does is a commit that was told to wait no longer for its synchronous
            // standby: its answer, which follows, would say that it was done.
            Some(Ok(AsyncMessage::Notice(notice))) if notice.severity() == "WARNING" => {
                tracing::warn!(warning = notice.message(), "the server warns; its answers are not believed");
                return;
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::debug!(%error, "the connection to the server failed");
                return;
            }
            None => return,
        }
    }
}
