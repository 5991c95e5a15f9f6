//! Where the server is, and how to treat it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::address::{bad, own_name};
use crate::drivers::relational::shared::Layout;
use crate::drivers::relational::{Login, warn_of_clear_password};
use crate::error::{Error, ErrorKind, Result};

/// Where the server is, and how to treat it.
///
/// ```
/// # use lockline::drivers::postgres::{PostgresConfig, Tls};
/// let config = PostgresConfig::new("db.internal", 5432, "app").login("locks", "secret").tls(Tls::System);
/// ```
#[derive(Clone)]
pub struct PostgresConfig {
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) login: Login,
    pub(super) schema: String,
    pub(super) pooler: Pooler,
    pub(super) tls: Tls,
    pub(super) connections: usize,
    pub(super) failover: Failover,
    pub(super) application_name: String,
    pub(super) connect_within: Duration,
    pub(super) layout: Option<Layout>,
}

/// What stands between the client and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Pooler {
    /// Nothing, or something that gives each client a session of its own.
    #[default]
    None,
    /// A pooler that gives each transaction any session, as PgBouncer does with `pool_mode = transaction`. Other processes
    /// cannot ring then; waiters look again by themselves, at least once a second.
    Transaction,
}

/// How the connection is protected.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Tls {
    /// It is not: for a server on this host, or on a network that is trusted.
    #[default]
    Off,
    /// TLS; the server's certificate must be valid for its host and signed by an authority this system trusts.
    System,
    /// The same, with the authorities in this PEM file alone.
    Authority(PathBuf),
    /// What libpq calls `prefer`: TLS if the server has it, and plain text if not; nobody's certificate is checked. It hides
    /// passwords from whoever only listens, and from nobody who stands in between.
    Prefer,
}

/// What the server fails over to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) enum Failover {
    /// Nothing, or only to a standby that has everything.
    #[default]
    None,
    Synchronous,
    Asynchronous,
}

impl PostgresConfig {
    /// Locks in a database on the server at this host and port.
    pub fn new(host: impl Into<String>, port: u16, database: impl Into<String>) -> PostgresConfig {
        PostgresConfig::on(
            vec![(host.into(), port)],
            Login { user: "postgres".to_owned(), database: database.into(), password: None },
        )
    }

    pub(super) fn on(hosts: Vec<(String, u16)>, login: Login) -> PostgresConfig {
        PostgresConfig {
            hosts,
            login,
            schema: "lockline".to_owned(),
            pooler: Pooler::None,
            tls: Tls::Off,
            connections: 1,
            failover: Failover::None,
            application_name: "lockline".to_owned(),
            connect_within: CONNECT_WITHIN,
            layout: None,
        }
    }

    /// Locks in a database on the server of this machine whose Unix socket is in this folder, as the user of that name in the
    /// operating system: what a stock server allows without a password.
    pub fn unix(folder: impl Into<String>, port: u16, database: impl Into<String>) -> PostgresConfig {
        let user = own_name().unwrap_or_else(|| "postgres".to_owned());
        PostgresConfig::on(
            vec![(folder.into(), port)],
            Login { user, database: database.into(), password: None },
        )
    }

    /// How operators see this client's sessions.
    ///
    /// Default: `lockline`.
    #[must_use]
    pub fn application_name(mut self, name: impl Into<String>) -> PostgresConfig {
        self.application_name = name.into();
        self
    }

    /// How long one attempt to connect may take.
    ///
    /// Default: 5 s.
    #[must_use]
    pub fn connect_timeout(mut self, within: Duration) -> PostgresConfig {
        self.connect_within = within;
        self
    }

    /// Logs in.
    ///
    /// Default: `postgres`, without a password.
    #[must_use]
    pub fn login(mut self, user: impl Into<String>, password: impl Into<String>) -> PostgresConfig {
        self.login.user = user.into();
        self.login.password = Some(password.into()).filter(|password| !password.is_empty());
        self
    }

    /// Adds a server that may take over: of all that are named, the one that takes writes is used.
    ///
    /// Default: none.
    #[must_use]
    pub fn or_host(mut self, host: impl Into<String>, port: u16) -> PostgresConfig {
        self.hosts.push((host.into(), port));
        self
    }

    /// The schema of the tables and functions: 1 to 40 letters, digits and `_`.
    ///
    /// Default: `lockline`. Everybody who is to share locks must say the same.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> PostgresConfig {
        self.schema = schema.into();
        self
    }

    /// What stands between this client and the server.
    ///
    /// Default: [`Pooler::None`].
    #[must_use]
    pub fn pooler(mut self, pooler: Pooler) -> PostgresConfig {
        self.pooler = pooler;
        self
    }

    /// How the connection is protected.
    ///
    /// Default: [`Tls::Off`]; a password sent to another host then makes a warning.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> PostgresConfig {
        self.tls = tls;
        self
    }

    /// How many connections carry verbs, 1 to 8; a lock's verbs always go over the same one.
    ///
    /// Default: 1, which many callers share. More help when each commit has to wait for a disk or a standby.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> PostgresConfig {
        self.connections = connections;
        self
    }

    /// Holds the locks of other programs, in a table that they share: mutexes only, no order, no tokens.
    ///
    /// Default: Lockline's own tables, with order, tokens and every primitive.
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> PostgresConfig {
        self.layout = Some(layout);
        self
    }

    /// Everything that can be refused before a server is touched.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(layout) = &self.layout {
            layout.check()?;
            if self.pooler == Pooler::Transaction {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "url",
                    "a shared table needs sessions of its own, whose settings a pooler does not keep",
                )
                .hint("connect to the server itself, or to a pool with pool_mode = session"));
            }
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if !(1..=40).contains(&self.schema.len()) || !self.schema.bytes().all(plain) {
            return Err(bad("a schema is 1 to 40 letters, digits and _"));
        }
        if !(1..=8).contains(&self.connections) {
            return Err(bad("connections is from 1 to 8"));
        }
        if self.application_name.len() > 63 || self.application_name.contains('\0') {
            return Err(bad("an application_name has at most 63 bytes"));
        }
        if !(CONNECT_AT_LEAST..=CONNECT_AT_MOST).contains(&self.connect_within) {
            return Err(bad("connect_timeout is from 1 to 60 seconds"));
        }
        let has_socket = self.hosts.iter().any(|(host, _)| host.starts_with('/'));
        if has_socket && !matches!(self.tls, Tls::Off | Tls::Prefer) {
            return Err(bad("nobody speaks TLS on a Unix socket").hint("leave out sslmode= and sslrootcert="));
        }
        Ok(())
    }

    /// The address as people see it; says so if a password goes over the network in the clear.
    pub(super) fn greet(&self) -> Arc<str> {
        let address: Arc<str> = self.address().into();
        if matches!(self.tls, Tls::Off | Tls::Prefer) {
            let hosts: Vec<&str> = self.hosts.iter().map(|(host, _)| host.as_str()).collect();
            warn_of_clear_password(&address, &hosts, &self.login, "sslmode=verify-full");
        }
        address
    }
}

/// How long one attempt to connect may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
pub(super) const CONNECT_AT_LEAST: Duration = Duration::from_secs(1);
pub(super) const CONNECT_AT_MOST: Duration = Duration::from_secs(60);
impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("hosts", &self.hosts)
            .field("login", &self.login)
            .field("schema", &self.schema)
            .field("pooler", &self.pooler)
            .field("tls", &self.tls)
            .field("connections", &self.connections)
            .field("failover", &self.failover)
            .field("application_name", &self.application_name)
            .field("connect_within", &self.connect_within)
            .field("layout", &self.layout)
            .finish()
    }
}
