//! Where the server is, and how to treat it.

use std::fmt;
use std::path::PathBuf;

use crate::drivers::relational::{Login, host_and_port};
use crate::error::{Error, ErrorKind, Result};
use crate::url::EngineUrl;

/// Where the server is, and how to treat it.
///
/// ```
/// # use lockline::drivers::mysql::{MysqlConfig, Tls};
/// let config = MysqlConfig::new("db.internal", 3306, "app").login("locks", "secret").tls(Tls::On);
/// ```
#[derive(Clone)]
pub struct MysqlConfig {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) login: Login,
    pub(super) tls: Tls,
    pub(super) connections: usize,
    /// Procedures read the time from the session's `@clock`.
    #[cfg(test)]
    pub(super) clock: Option<std::sync::Arc<std::sync::atomic::AtomicU64>>,
}

/// How the connection is protected.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Tls {
    /// It is not: for a server on this host, or on a network that is trusted.
    #[default]
    Off,
    /// TLS; the server's certificate must be valid for its host and signed by an authority that browsers trust. Their list is
    /// built in; this system's own is not looked at.
    On,
    /// The same, or signed by an authority in this PEM file.
    Authority(PathBuf),
}

impl MysqlConfig {
    /// Locks in a database on the server at this host and port.
    pub fn new(host: impl Into<String>, port: u16, database: impl Into<String>) -> MysqlConfig {
        let login = Login { user: "root".to_owned(), password: None, database: database.into() };
        MysqlConfig::on((host.into(), port), login)
    }

    fn on((host, port): (String, u16), login: Login) -> MysqlConfig {
        MysqlConfig {
            host,
            port,
            login,
            tls: Tls::Off,
            connections: 4,
            #[cfg(test)]
            clock: None,
        }
    }

    /// Logs in.
    ///
    /// Default: `root`, without a password.
    #[must_use]
    pub fn login(mut self, user: impl Into<String>, password: impl Into<String>) -> MysqlConfig {
        self.login.user = user.into();
        self.login.password = Some(password.into()).filter(|password| !password.is_empty());
        self
    }

    /// How the connection is protected.
    ///
    /// Default: [`Tls::Off`]; a password sent to another host then makes a warning.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> MysqlConfig {
        self.tls = tls;
        self
    }

    /// How many connections carry verbs, 1 to 4; a lock's verbs always go over the same one. They are made when they are
    /// first needed. Up to 8 more wait for other processes' locks.
    ///
    /// Default: 4, because this protocol carries one statement at a time.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> MysqlConfig {
        self.connections = connections;
        self
    }

    /// What an address says; `lease=` and `prefix=`, which are the client's, must have been taken out of it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an address that makes no sense.
    pub fn from_url(mut url: EngineUrl) -> Result<MysqlConfig> {
        let [host] = url.hosts() else {
            return Err(bad("it must name one host").hint("write mysql://user:password@host/database"));
        };
        let mut config = MysqlConfig::on(host_and_port(host, 3306)?, Login::of(&url)?);
        let authority = url.take("ssl-ca").map(PathBuf::from);
        config.tls = match (url.take("ssl-mode").as_deref(), authority) {
            (None | Some("disabled"), None) => Tls::Off,
            (Some("required" | "verify_identity"), None) => Tls::On,
            (None | Some("required" | "verify_identity"), Some(file)) => Tls::Authority(file),
            (Some("disabled"), Some(_)) => return Err(bad("it has ssl-ca= and ssl-mode=disabled")),
            (Some(_), _) => {
                return Err(bad("ssl-mode is disabled, required or verify_identity")
                    .hint("required checks the certificate here, too: nothing falls back in silence"));
            }
        };
        if let Some(text) = url.take("connections") {
            config.connections = text.parse().map_err(|_| bad("connections is not a number"))?;
        }
        url.finish()?;
        Ok(config)
    }

    /// Everything that can be refused before a server is touched.
    pub(super) fn check(&self) -> Result<()> {
        if (1..=4).contains(&self.connections) { Ok(()) } else { Err(bad("connections is from 1 to 4")) }
    }

    /// As people see it: no secret, no user.
    pub(super) fn address(&self) -> String {
        let MysqlConfig { host, port, login, .. } = self;
        if host.contains(':') {
            format!("mysql://[{host}]:{port}/{}", login.database)
        } else {
            format!("mysql://{host}:{port}/{}", login.database)
        }
    }
}

fn bad(problem: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "url", problem)
}

impl fmt::Debug for MysqlConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlConfig")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("login", &self.login)
            .field("tls", &self.tls)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<MysqlConfig> {
        MysqlConfig::from_url(EngineUrl::parse(text)?)
    }

    #[test]
    fn addresses() {
        let all =
            config("mysql://me:c4nary@[::1]:7/db?ssl-mode=verify_identity&ssl-ca=/ca&connections=3").unwrap();
        assert_eq!((all.host.as_str(), all.port, all.connections), ("::1", 7, 3));
        assert_eq!(all.tls, Tls::Authority("/ca".into()));
        assert_eq!(all.address(), "mysql://[::1]:7/db");
        assert!(!format!("{all:?} {}", all.address()).contains("c4nary"));
        assert_eq!(config("mysql://me@h/db").unwrap().port, 3306);
    }

    #[test]
    fn what_is_refused() {
        for text in [
            "mysql:///db",
            "mysql://a,b/db",
            "mysql://h/db",
            "mysql://me@h",
            "mysql://me@h/db?ssl-mode=preferred",
            "mysql://me@h/db?ssl-mode=disabled&ssl-ca=/ca",
            "mysql://me@h/db?connections=some",
            "mysql://me@h/db?speed=fast",
        ] {
            assert_eq!(config(text).unwrap_err().kind(), ErrorKind::Invalid, "{text}");
        }
        assert!(config("mysql://me@h/db?connections=5").unwrap().check().is_err());
    }

    #[test]
    fn broken_addresses_show_no_secret() {
        let examples = [
            "mysql://me:c4nary@[::1]:7/db?ssl-mode=verify_identity&ssl-ca=/ca&connections=3",
            "mysql://me:c4nary@h/db",
        ];
        crate::hostile::addresses(&examples, config);
    }
}
