//! Where the server is, and how to treat it.

use std::fmt;
use std::path::PathBuf;

use crate::drivers::relational::{Login, host_and_port};
use crate::error::{Error, ErrorKind, Result};
use crate::url::EngineUrl;

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

    fn on(hosts: Vec<(String, u16)>, login: Login) -> PostgresConfig {
        PostgresConfig {
            hosts,
            login,
            schema: "lockline".to_owned(),
            pooler: Pooler::None,
            tls: Tls::Off,
            connections: 1,
            failover: Failover::None,
        }
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

    /// What an address says; `lease=` and `prefix=`, which are the client's, must have been taken out of it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an address that makes no sense.
    pub fn from_url(mut url: EngineUrl) -> Result<PostgresConfig> {
        if url.hosts().is_empty() {
            return Err(bad("it names no host").hint("write postgres://user:password@host/database"));
        }
        let hosts = url.hosts().iter().map(|host| host_and_port(host, 5432)).collect::<Result<_>>()?;
        let mut config = PostgresConfig::on(hosts, Login::of(&url)?);
        config.schema = url.take("schema").unwrap_or(config.schema);
        config.pooler = match url.take("pooler").as_deref() {
            None | Some("none" | "session") => Pooler::None,
            Some("transaction") => Pooler::Transaction,
            Some(_) => return Err(bad("pooler is none, session or transaction")),
        };
        let authority = url.take("sslrootcert").map(PathBuf::from);
        config.tls = match (url.take("sslmode").as_deref(), authority) {
            (None | Some("disable"), None) => Tls::Off,
            (Some("require" | "verify-full"), None) => Tls::System,
            (None | Some("require" | "verify-full"), Some(file)) => Tls::Authority(file),
            (Some("disable"), Some(_)) => return Err(bad("it has sslrootcert= and sslmode=disable")),
            (Some(_), _) => {
                return Err(bad("sslmode is disable, require or verify-full")
                    .hint("require checks the certificate here, too: nothing falls back in silence"));
            }
        };
        if let Some(text) = url.take("connections") {
            config.connections = text.parse().map_err(|_| bad("connections is not a number"))?;
        }
        config.failover = match url.take("failover").as_deref() {
            None => Failover::None,
            Some("sync") => Failover::Synchronous,
            Some("async") => Failover::Asynchronous,
            Some(_) => return Err(bad("failover is sync or async")),
        };
        url.finish()?;
        Ok(config)
    }

    /// Everything that can be refused before a server is touched.
    pub(super) fn check(&self) -> Result<()> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if !(1..=40).contains(&self.schema.len()) || !self.schema.bytes().all(plain) {
            return Err(bad("a schema is 1 to 40 letters, digits and _"));
        }
        if !(1..=8).contains(&self.connections) {
            return Err(bad("connections is from 1 to 8"));
        }
        Ok(())
    }

    /// As people see it: no secret, no user.
    pub(super) fn address(&self) -> String {
        let host = |(host, port): &(String, u16)| {
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
        };
        let hosts: Vec<String> = self.hosts.iter().map(host).collect();
        format!("postgres://{}/{}", hosts.join(","), self.login.database)
    }
}

fn bad(problem: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "url", problem)
}

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
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<PostgresConfig> {
        PostgresConfig::from_url(EngineUrl::parse(text)?)
    }

    #[test]
    fn addresses() {
        let all = config(
            "postgres://me:c4nary@h:1,[::1]/db?schema=a&pooler=transaction&sslmode=verify-full&sslrootcert=/ca&connections=3&failover=sync",
        )
        .unwrap();
        assert_eq!(all.hosts, [("h".to_owned(), 1), ("::1".to_owned(), 5432)]);
        assert_eq!((all.schema.as_str(), all.pooler, all.connections), ("a", Pooler::Transaction, 3));
        assert_eq!(all.tls, Tls::Authority("/ca".into()));
        assert_eq!(all.address(), "postgres://h:1,[::1]:5432/db");
        assert!(!format!("{all:?} {}", all.address()).contains("c4nary"));
        assert_eq!(config("postgres://me@h/db?sslmode=require").unwrap().tls, Tls::System);
    }

    #[test]
    fn what_is_said_of_a_failover() {
        let failover = |text: &str| config(text).unwrap().failover();
        assert_eq!(failover("postgres://me@h/db"), (Failover::None, 1));
        assert_eq!(failover("postgres://me@a,b/db"), (Failover::None, 2));
        assert_eq!(failover("postgres://me@a,b/db?failover=async"), (Failover::Asynchronous, 2));
        assert_eq!(failover("postgres://me@a/db?failover=sync"), (Failover::Synchronous, 1));
    }

    #[test]
    fn what_is_refused() {
        for text in [
            "postgres:///db",
            "postgres://h/db",
            "postgres://me@h",
            "postgres://me@h:x/db",
            "postgres://me@h/db?pooler=statement",
            "postgres://me@h/db?sslmode=prefer",
            "postgres://me@h/db?sslmode=disable&sslrootcert=/ca",
            "postgres://me@h/db?connections=many",
            "postgres://me@h/db?failover=maybe",
            "postgres://me@h/db?speed=fast",
        ] {
            assert_eq!(config(text).unwrap_err().kind(), ErrorKind::Invalid, "{text}");
        }
        for text in ["postgres://me@h/db?schema=a%22b", "postgres://me@h/db?connections=9"] {
            assert_eq!(config(text).unwrap().check().unwrap_err().kind(), ErrorKind::Invalid, "{text}");
        }
    }

    #[test]
    fn broken_addresses_show_no_secret() {
        let examples = [
            "postgres://me:c4nary@h:1,[::1]/db?schema=a&pooler=transaction&sslmode=verify-full&sslrootcert=/ca&connections=3&failover=sync",
        ];
        crate::hostile::addresses(&examples, config);
    }
}
