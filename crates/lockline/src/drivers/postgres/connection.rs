//! One connection that many callers share, made again for as long as it takes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use super::config::PostgresConfig;
use super::dial::Maker;
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
    Renew,
    LeaveAlone,
    Leave,
    Evict,
    Tick,
    Letters,
    Names,
    View,
}

pub(super) const ASKS: [(Ask, &str); 10] = [
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
