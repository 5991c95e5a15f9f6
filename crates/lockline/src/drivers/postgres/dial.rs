//! How a session is made: which server it leads to, what is set in it, and the task that drives it and hears its notifications.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::config::{Pooler, PostgresConfig, Tls};
use super::connection::{ASKS, Live, SILENT_FOR, Task};
use super::durability::Durability;
use super::error::{explain, read_only};
use super::{schema, shared};
use crate::driver::Bells;
use crate::drivers::relational::decode_bell;
use crate::error::{Error, ErrorKind, Result};

/// Settings of the session. There is no limit for a statement on purpose: one that waits for a synchronous standby would be
/// called done when the limit ends, although the standby does not have it. A row that somebody else has locked is hardly waited for:
/// whoever is behind in the same session would wait, too (relational/busy.rs). One row is found by its index: a bitmap, which
/// the planner takes for as good while it knows nothing of the table, is more work.
const SESSION: &str = "-c default_transaction_isolation=read\\ committed -c lock_timeout=20ms -c statement_timeout=0 \
     -c idle_in_transaction_session_timeout=10s -c client_min_messages=warning \
     -c enable_seqscan=off -c enable_bitmapscan=off";

/// A session, the task that drives it, and what ends that.
type Dialled = (Client, Task, Arc<Notify>);

async fn takes_writes(client: &Client, address: &Arc<str>) -> Result<()> {
    let answers = client.simple_query("SHOW transaction_read_only").await;
    let answers = answers.map_err(|e| explain("connect", address, &e, false))?;
    let is_on = |message: &SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("on"));
    if answers.iter().any(is_on) { Err(read_only(address)) } else { Ok(()) }
}

/// What a connection is made from.
pub(super) struct Maker {
    pub(super) config: PostgresConfig,
    pub(super) address: Arc<str>,
    pub(super) tls: Option<MakeRustlsConnect>,
    pub(super) channel: Option<String>,
    pub(super) durability: Arc<Durability>,
    pub(super) bells: Bells,
}

impl Maker {
    /// A session that is ready for verbs and hears its channel, and the task that drives it.
    pub(super) async fn connect(&self) -> Result<(Arc<Live>, Task)> {
        let all = async {
            let (client, driving, end) = self.dial().await?;
            let live = self.set_up(client, end).await?;
            Ok((Arc::new(live), driving))
        };
        tokio::time::timeout(self.config.connect_within, all).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unavailable, "connect", "the server does not answer")
                .hint("check the address and the network; connect_timeout= allows it more seconds")
                .at(&self.address))
        })
    }

    /// The first server that takes writes.
    async fn dial(&self) -> Result<Dialled> {
        let hosts = &self.config.hosts;
        if self.config.pooler == Pooler::None {
            return self.dial_one_of(hosts, TargetSessionAttrs::ReadWrite).await;
        }
        // The crate asks for that, too, but goes on before the answer has ended: the next statement would be sent beside it (see
        // `turn`), and one of the two answers go to somebody else.
        let mut outcome = Err(Error::new(ErrorKind::Invalid, "connect", "no server is named"));
        for host in hosts {
            outcome = match self.dial_one_of(std::slice::from_ref(host), TargetSessionAttrs::Any).await {
                Ok(dialled) => takes_writes(&dialled.0, &self.address).await.map(|()| dialled),
                Err(error) => Err(error),
            };
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    async fn dial_one_of(&self, hosts: &[(String, u16)], wanted: TargetSessionAttrs) -> Result<Dialled> {
        let config = self.settings(hosts, wanted);
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

    fn settings(&self, hosts: &[(String, u16)], wanted: TargetSessionAttrs) -> Config {
        let PostgresConfig { login, pooler, connect_within, application_name, .. } = &self.config;
        let mut settings = Config::new();
        for (host, port) in hosts {
            settings.host(host).port(*port);
        }
        settings.user(&login.user).dbname(&login.database).application_name(application_name);
        if let Some(password) = &login.password {
            settings.password(password);
        }
        if *pooler == Pooler::None {
            settings.options(SESSION);
        }
        settings.ssl_mode(match self.config.tls {
            Tls::Off => SslMode::Disable,
            Tls::Prefer => SslMode::Prefer,
            Tls::System | Tls::Authority(_) => SslMode::Require,
        });
        settings.target_session_attrs(wanted);
        settings.connect_timeout(*connect_within).tcp_user_timeout(SILENT_FOR);
        settings.keepalives_idle(SILENT_FOR).keepalives_interval(SILENT_FOR / 5).keepalives_retries(3);
        settings
    }

    /// The statements of Lockline's own tables, which are made if there are none.
    async fn own_texts(&self, client: &Client) -> Result<Vec<String>> {
        let schema = &self.config.schema;
        schema::prepare(client, schema, &self.address).await?;
        Ok(ASKS.iter().map(|(_, text)| schema::in_schema(text, schema)).collect())
    }

    async fn set_up(&self, client: Client, end: Arc<Notify>) -> Result<Live> {
        let fail = |e: tokio_postgres::Error| explain("connect", &self.address, &e, false);
        let is_ours = self.config.pooler == Pooler::None;
        let settings = if is_ours { "" } else { include_str!("sql/settings.sql") };
        let durability = include_str!("sql/durability.sql");
        let texts = match &self.config.layout {
            Some(layout) => shared::texts(&client, layout, &self.address).await?,
            None => self.own_texts(&client).await?,
        };
        let fill = |text: &String| text.replace("{settings}", settings).replace("{durability}", durability);
        let texts: Vec<String> = texts.iter().map(fill).collect();
        let mut prepared = Vec::new();
        if is_ours {
            for text in &texts {
                prepared.push(client.prepare(text).await.map_err(fail)?);
            }
            // For this session, whatever the server is told later: a grant that a crash takes back gives two holders.
            // One that only this server keeps, or that a synchronous standby has not on its disk, gives them after a failover.
            let keep = "SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') \
                 WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)";
            client.batch_execute(keep).await.map_err(fail)?;
        }
        let kept = client.query_typed_one(&format!("SELECT {durability}"), &[]).await.map_err(fail)?;
        self.durability.note(&kept.try_get::<_, String>(0).map_err(fail)?);
        if let Some(channel) = &self.channel {
            client.batch_execute(&format!("LISTEN \"{channel}\"")).await.map_err(fail)?;
        }
        let turn = (self.config.pooler == Pooler::Transaction).then(Arc::default);
        Ok(Live { client, texts, prepared, turn, end, is_over: AtomicBool::new(false) })
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
