//! One connection that many callers share, made again for as long as it takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use super::config::PostgresConfig;
use super::dial::Maker;
use super::durability::Durability;
use super::error::explain;
use super::tls;
use crate::driver::Bells;
use crate::error::{Error, ErrorKind, Result};
use crate::pause;

/// After how long without an acknowledgement a connection is given up.
pub(super) const SILENT_FOR: Duration = Duration::from_secs(10);

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
    JoinWaits,
    Renew,
    RenewWaits,
    LeaveAlone,
    Leave,
    LeaveWaits,
    Evict,
    EvictWaits,
    Tick,
    Letters,
    Names,
    View,
}

/// Which of a session's statements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nth {
    pub(super) index: usize,
    /// Rows that are asked for are kept by the server until the statement has ended, which takes a while.
    pub(super) only_changes: bool,
}

impl From<Ask> for Nth {
    fn from(ask: Ask) -> Nth {
        Nth { index: ask as usize, only_changes: matches!(ask, Ask::LeaveAlone) }
    }
}

/// Those that wait for the row of their line do so for a moment, and give no row if they do not get it.
pub(super) const ASKS: [(Ask, &str); 14] = [
    (Ask::JoinAlone, include_str!("sql/join_alone.sql")),
    (Ask::Join, "SELECT \"lockline\".join($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14), {durability}"),
    (
        Ask::JoinWaits,
        "SELECT \"lockline\".join($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14), {durability} \
         FROM \"lockline\".wait_for($1) has_it WHERE has_it",
    ),
    (Ask::Renew, "SELECT \"lockline\".renew($1,$2,$3,$4,$5,$6), {durability}"),
    (
        Ask::RenewWaits,
        "SELECT \"lockline\".renew($1,$2,$3,$4,$5,$6), {durability} \
         FROM \"lockline\".wait_for(($1::uuid[])[1]) has_it WHERE has_it",
    ),
    (Ask::LeaveAlone, include_str!("sql/leave_alone.sql")),
    (Ask::Leave, "SELECT \"lockline\".leave($1,$2,$3,$4,$5)"),
    (
        Ask::LeaveWaits,
        "SELECT \"lockline\".leave($1,$2,$3,$4,$5) FROM \"lockline\".wait_for($1) has_it WHERE has_it",
    ),
    (Ask::Evict, "SELECT \"lockline\".evict($1,$2,$3,$4,$5)"),
    (
        Ask::EvictWaits,
        "SELECT \"lockline\".evict($1,$2,$3,$4,$5) FROM \"lockline\".wait_for($1) has_it WHERE has_it",
    ),
    (Ask::Tick, "SELECT \"lockline\".tick(\"lockline\".lock_lines($1),$2)"),
    (Ask::Letters, "SELECT \"lockline\".read_letters($1)"),
    (Ask::Names, include_str!("sql/names.sql")),
    (Ask::View, include_str!("sql/view.sql")),
];

/// A way to the server.
#[derive(Debug)]
pub(super) struct Connection {
    address: Arc<str>,
    durability: Arc<Durability>,
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
pub(super) struct Live {
    pub(super) client: Client,
    pub(super) texts: Vec<String>,
    /// Prepared, unless a pooler may give every statement another session.
    pub(super) prepared: Vec<Statement>,
    /// Behind a pooler one statement goes at a time. PgBouncer 1.18 gives the session to somebody else as soon as the first of
    /// several is answered, and the other answers with it (pgbouncer#759).
    pub(super) turn: Option<Arc<Mutex<()>>>,
    /// Ends the session.
    pub(super) end: Arc<Notify>,
    /// It was told to end, and nothing more is to be sent over it.
    pub(super) is_over: AtomicBool,
}

/// A task that ends with its owner.
#[derive(Debug)]
pub(super) struct Task(pub(super) JoinHandle<()>);

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
        durability: Arc<Durability>,
        bells: Bells,
    ) -> Result<Connection> {
        let tls = tls::connector(&config.tls)?;
        let (address_of, durability_of) = (address.clone(), durability.clone());
        let maker = Maker { tls, config, address: address_of, channel, durability: durability_of, bells };
        let (first, driving) = maker.connect().await?;
        let (tell, live) = watch::channel(State::Up(first));
        let supervisor = Task(tokio::spawn(supervise(maker, driving, tell)));
        Ok(Connection { address, durability, live, _supervisor: supervisor })
    }

    /// The session there is, or the next one. Deadlines come from above.
    async fn live(&self, operation: &'static str) -> Result<Arc<Live>> {
        // The common case without a receiver of its own.
        if let State::Up(live) = &*self.live.borrow()
            && !live.is_over()
        {
            return Ok(live.clone());
        }
        let mut state = self.live.clone();
        loop {
            match &*state.borrow_and_update() {
                State::Up(live) if live.is_over() => {}
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
        ask: impl Into<Nth>,
        params: Vec<Param>,
    ) -> Result<Vec<Row>> {
        Ok(self.send(operation, ask.into(), params).await?.rows)
    }

    /// Sends a statement that gives no rows. How many it changed.
    pub(super) async fn change(&self, operation: &'static str, ask: Ask, params: Vec<Param>) -> Result<u64> {
        Ok(self.send(operation, ask.into(), params).await?.changed)
    }

    async fn send(&self, operation: &'static str, ask: Nth, params: Vec<Param>) -> Result<Outcome> {
        let (live, turn) = loop {
            let live = self.live(operation).await?;
            let Some(turn) = &live.turn else { break (live, None) };
            let turn = turn.clone().lock_owned().await;
            // Whoever had it before may have ended the session.
            if !live.is_over() {
                break (live, Some(turn));
            }
        };
        let answer = match turn {
            None => live.send(ask, &params).await,
            Some(turn) => {
                let asked = live.clone();
                // In a task of its own: a caller that goes away must not let the next statement go before the answer. A session
                // that does not answer at all is given up.
                let asking = tokio::spawn(async move {
                    let answer = tokio::time::timeout(SILENT_FOR, asked.send(ask, &params)).await;
                    // An error is told before the server is ready again: the next statement would be sent too early (see
                    // `turn`).
                    if !matches!(answer, Ok(Ok(_))) {
                        asked.end();
                    }
                    drop(turn);
                    answer
                });
                asking.await.map_err(|_| gone(operation))?.map_err(|_| {
                    Error::new(ErrorKind::Unknown, operation, "the server does not answer").at(&self.address)
                })?
            }
        };
        match answer {
            // Somebody else has locked a row, and the whole statement was taken back.
            Err(e) if e.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Ok(Outcome::default()),
            Err(e) => {
                // A pooler or a proxy may go on leading to a server that is no longer the primary.
                if e.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) {
                    live.end();
                }
                Err(explain(operation, &self.address, &e, true))
            }
            Ok(outcome) => {
                let second = |row: &Row| (row.len() == 2).then(|| row.try_get::<_, String>(1).ok()).flatten();
                if let Some(text) = outcome.rows.first().and_then(second) {
                    self.durability.note(&text);
                }
                Ok(outcome)
            }
        }
    }

    /// The one text that a routine answers; `None` if somebody else has locked the row that it needs, and nothing was done.
    pub(super) async fn routine(
        &self,
        operation: &'static str,
        ask: Ask,
        params: Vec<Param>,
    ) -> Result<Option<String>> {
        let rows = self.ask(operation, ask, params).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let text: String = row
            .try_get(0)
            .map_err(|e| crate::drivers::relational::nonsense(operation, &self.address).caused_by(e))?;
        Ok(Some(text).filter(|text| text != "B"))
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
    /// Ends the session: nothing more is sent over it.
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.end.notify_one();
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    async fn send(&self, ask: Nth, params: &[Param]) -> Result<Outcome, tokio_postgres::Error> {
        let values = params.iter().map(|(value, _)| value.as_ref() as &(dyn ToSql + Sync));
        let rows = |rows| Outcome { rows, ..Outcome::default() };
        let changed = |changed| Outcome { changed, ..Outcome::default() };
        match self.prepared.get(ask.index) {
            Some(statement) => {
                let values = values.collect::<Vec<_>>();
                if ask.only_changes {
                    self.client.execute(statement, &values).await.map(changed)
                } else {
                    self.client.query(statement, &values).await.map(rows)
                }
            }
            None => {
                let text = &self.texts[ask.index];
                let typed: Vec<_> =
                    values.zip(params).map(|(value, (_, kind))| (value, kind.clone())).collect();
                if ask.only_changes {
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

/// Keeps a connection up for as long as its owner lives.
async fn supervise(maker: Maker, mut driving: Task, tell: watch::Sender<State>) {
    loop {
        // Ends with the session.
        let _ = (&mut driving.0).await;
        tracing::debug!(engine = %maker.address, "the connection to the server was lost");
        let _ = tell.send(State::Down(None));
        pause::before_reconnecting().await;
        let mut pauses = pause::RECONNECT;
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
            tokio::time::sleep(pauses.next()).await;
        };
        let _ = tell.send(State::Up(live));
        // Bells were lost while nobody listened; from now on they come again, so whoever looks now misses none.
        maker.bells.look_at_all();
    }
}
