//! Where the server is, and how to treat it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::drivers::relational::shared::Layout;
use crate::drivers::relational::{Login, authorities_of, host_and_port, warn_of_clear_password};
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
    /// A socket of this host, instead of host and port.
    pub(super) socket: Option<PathBuf>,
    pub(super) login: Login,
    pub(super) tls: Tls,
    pub(super) connections: usize,
    pub(super) connect_within: Duration,
    pub(super) layout: Option<Layout>,
    /// Procedures read the time from the session's `@clock`.
    #[cfg(test)]
    pub(super) clock: Option<std::sync::Arc<std::sync::atomic::AtomicU64>>,
}

/// How the connection is protected. On a Unix socket it is anyway.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Tls {
    /// It is not: for a server on this host, or on a network that is trusted. A password is sent so that only the server can read
    /// it, but nothing shows that it is the server who asks for it.
    #[default]
    Off,
    /// TLS; the server's certificate must be valid for its host and signed by an authority of the system's trust store.
    On,
    /// TLS; the certificate must be valid for its host and signed by an authority in this PEM file, and no other.
    Authority(PathBuf),
    /// TLS; the certificate must be signed by an authority in this PEM file, and no other; which host it names does not matter.
    /// For the certificates that MySQL makes for itself, which name none: `ca.pem` in its data folder.
    Chain(PathBuf),
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
            socket: None,
            login,
            tls: Tls::Off,
            connections: 4,
            connect_within: Duration::from_secs(5),
            layout: None,
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

    /// Connects by this socket of this host; host and port do not matter then.
    ///
    /// Default: none, TCP.
    #[must_use]
    pub fn socket(mut self, path: impl Into<PathBuf>) -> MysqlConfig {
        self.socket = Some(path.into());
        self
    }

    /// How long one attempt to connect may take, from 1 ms to 10 minutes.
    ///
    /// Default: 5 s.
    #[must_use]
    pub fn connect_within(mut self, within: Duration) -> MysqlConfig {
        self.connect_within = within;
        self
    }

    /// Holds the locks of other programs, in a table that they share: mutexes only, no order, no tokens.
    ///
    /// Default: Lockline's own tables, with order, tokens and every primitive.
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> MysqlConfig {
        self.layout = Some(layout);
        self
    }

    /// What an address says; `lease=` and `prefix=`, which are the client's, must have been taken out of it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an address that makes no sense.
    pub fn from_url(mut url: EngineUrl) -> Result<MysqlConfig> {
        let socket = url.take("socket").map(PathBuf::from);
        let at = match (url.hosts(), &socket) {
            ([host], _) => host_and_port(host, 3306)?,
            ([], Some(_)) => ("localhost".to_owned(), 3306),
            _ => {
                return Err(bad("it must name one host, or a socket").hint(
                    "write mysql://user:password@host/database, or \
                     mysql://user@/database?socket=/run/mysqld/mysqld.sock",
                ));
            }
        };
        let mut config = MysqlConfig::on(at, Login::of(&url)?);
        config.socket = socket;
        let authority = url.take("ssl-ca").map(PathBuf::from);
        config.tls = tls(url.take("ssl-mode").as_deref(), authority)?;
        // libpq's and MySQL's own spelling.
        for option in ["connect_timeout", "connect-timeout"] {
            if let Some(text) = url.take(option) {
                config.connect_within = timeout(&text)?;
            }
        }
        if let Some(text) = url.take("connections") {
            config.connections = text.parse().map_err(|_| bad("connections is not a number"))?;
        }
        config.layout = Layout::from_url(&mut url)?;
        url.finish()?;
        Ok(config)
    }

    /// Everything that can be refused before a server is touched.
    pub(super) fn check(&self) -> Result<()> {
        self.layout.as_ref().map_or(Ok(()), Layout::check)?;
        if !(1..=4).contains(&self.connections) {
            return Err(bad("connections is from 1 to 4"));
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(600)).contains(&self.connect_within) {
            return Err(bad("connect_timeout is from 1ms to 10m"));
        }
        if self.socket.as_ref().is_some_and(|path| !path.is_absolute()) {
            return Err(bad("socket is a whole path, such as /run/mysqld/mysqld.sock"));
        }
        // A file that is not there is told before a server is looked for, which would be another problem.
        if let Tls::Authority(file) | Tls::Chain(file) = &self.tls {
            authorities_of(file, "ssl-ca")?;
        }
        Ok(())
    }

    /// The address as people see it; says so if a password goes over the network in the clear.
    pub(super) fn greet(&self) -> Arc<str> {
        let address: Arc<str> = self.address().into();
        if self.tls == Tls::Off {
            warn_of_clear_password(&address, &[&self.host], &self.login, "ssl-mode=verify_identity");
        }
        address
    }

    /// As people see it: no secret, no user.
    pub(super) fn address(&self) -> String {
        let MysqlConfig { host, port, socket, login, .. } = self;
        match socket {
            Some(path) => format!("mysql:///{}?socket={}", login.database, path.display()),
            None if host.contains(':') => format!("mysql://[{host}]:{port}/{}", login.database),
            None => format!("mysql://{host}:{port}/{}", login.database),
        }
    }
}

/// What MySQL's own words for TLS mean here. They are not case-sensitive there.
fn tls(mode: Option<&str>, authority: Option<PathBuf>) -> Result<Tls> {
    let mode = mode.map(|mode| mode.to_ascii_lowercase().replace('-', "_"));
    Ok(match (mode.as_deref(), authority) {
        (None | Some("disabled"), None) => Tls::Off,
        (Some("required" | "verify_identity"), None) => Tls::On,
        (None | Some("required" | "verify_identity"), Some(file)) => Tls::Authority(file),
        (Some("verify_ca"), Some(file)) => Tls::Chain(file),
        (Some("verify_ca"), None) => {
            return Err(bad("ssl-mode=verify_ca needs ssl-ca=")
                .hint("an authority of the web signs for everybody: name the file of your own"));
        }
        (Some("disabled"), Some(_)) => return Err(bad("it has ssl-ca= and ssl-mode=disabled")),
        (Some("preferred"), _) => {
            return Err(bad("ssl-mode=preferred would go on without TLS in silence")
                .hint("say disabled, required, verify_ca or verify_identity"));
        }
        (Some(_), _) => {
            return Err(bad("ssl-mode is disabled, required, verify_ca or verify_identity")
                .hint("required checks the certificate here, too: nothing falls back in silence"));
        }
    })
}

/// A number of seconds, as others write it, or a duration.
fn timeout(text: &str) -> Result<Duration> {
    let seconds = text.parse().map(Duration::from_secs);
    seconds
        .or_else(|_| humantime::parse_duration(text))
        .map_err(|_| bad("connect_timeout is a number of seconds, or a duration such as 500ms"))
}

fn bad(problem: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "url", problem)
}

impl fmt::Debug for MysqlConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlConfig")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("socket", &self.socket)
            .field("login", &self.login)
            .field("tls", &self.tls)
            .field("connections", &self.connections)
            .field("layout", &self.layout)
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
        assert_eq!(config("mariadb://me@h/db").unwrap().address(), "mysql://h:3306/db");
    }

    #[test]
    fn words_of_other_clients() {
        let tls = |options: &str| config(&format!("mysql://me@h/db?{options}")).unwrap().tls;
        assert_eq!(tls("ssl-mode=DISABLED"), Tls::Off);
        assert_eq!(tls("ssl-mode=Required"), Tls::On);
        assert_eq!(tls("ssl-mode=VERIFY_CA&ssl-ca=/ca"), Tls::Chain("/ca".into()));
        assert_eq!(tls("ssl-mode=VERIFY_IDENTITY&ssl-ca=/ca"), Tls::Authority("/ca".into()));
        for (option, within) in [("connect_timeout=7", 7_000), ("connect-timeout=250ms", 250)] {
            let config = config(&format!("mysql://me@h/db?{option}")).unwrap();
            assert_eq!(config.connect_within, Duration::from_millis(within));
        }
        for text in ["mysql://me@/db?socket=/run/s", "mysql://me@localhost/db?socket=/run/s"] {
            let config = config(text).unwrap();
            assert_eq!(config.socket.as_deref(), Some("/run/s".as_ref()), "{text}");
            assert_eq!(config.address(), "mysql:///db?socket=/run/s");
            assert!(config.check().is_ok());
        }
        assert!(config("mysql://me@/db?socket=here").unwrap().check().is_err());
        assert!(config("mysql://me@h/db?connect_timeout=0").unwrap().check().is_err());
    }

    #[test]
    fn what_is_refused() {
        for text in [
            "mysql:///db",
            "mysql://a,b/db",
            "mysql://h/db",
            "mysql://me@h",
            "mysql://me@h/db?ssl-mode=preferred",
            "mysql://me@h/db?ssl-mode=verify_ca",
            "mysql://me@h/db?connect_timeout=soon",
            "mysql://me@[half/db",
            "mysql://me@host name/db",
            "mysql://me@%zz/db",
            "mysql://me@h:0/db",
            "mysql://me@h/db?ssl-mode=disabled&ssl-ca=/ca",
            "mysql://me@h/db?connections=some",
            "mysql://me@h/db?speed=fast",
            "mysql://me@h/db?layout=other",
            "mysql://me@h/db?table=locks",
        ] {
            assert_eq!(config(text).unwrap_err().kind(), ErrorKind::Invalid, "{text}");
        }
        assert!(config("mysql://me@h/db?layout=table&table=a%60b").unwrap().check().is_err());
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
