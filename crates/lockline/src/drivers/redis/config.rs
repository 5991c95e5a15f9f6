//! Where the server is, and how to treat it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::url::EngineUrl;

/// Where the server is, and how to treat it.
///
/// ```
/// # use lockline::drivers::redis::RedisConfig;
/// # use std::time::Duration;
/// let config = RedisConfig::new("cache.internal", 6379).login("locks", "secret").max_lease(Duration::from_secs(300));
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    pub(in crate::drivers) server: Server,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(in crate::drivers) database: i64,
    pub(in crate::drivers) space: String,
    pub(in crate::drivers) max_lease: Duration,
    pub(in crate::drivers) restart_guard: RestartGuard,
    pub(super) allow_eviction: bool,
    /// It is a node of a quorum: claims bring their tickets along.
    pub(in crate::drivers) of_a_quorum: bool,
    /// The clock that scripts read instead of the server's.
    #[cfg(test)]
    pub(in crate::drivers) clock: Option<std::sync::Arc<std::sync::atomic::AtomicU64>>,
    /// A restart guard, in microseconds of that clock: its end and its length.
    #[cfg(test)]
    pub(in crate::drivers) guard: Option<(u64, u64)>,
}

/// How to reach a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::drivers) enum Server {
    Tcp(String, u16),
    Unix(PathBuf),
}

/// What to do on a server that may have forgotten locks because it was restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RestartGuard {
    /// Nobody gets in until the longest lease from before the restart must have ended, unless the server keeps its data
    /// in an append-only file.
    #[default]
    On,
    /// The same, whatever the server says about its data: an append-only file may lack the last second after a power
    /// loss.
    Always,
    /// Locks are handed out at once. Two holders are possible after a restart; tokens still rise.
    Off,
}

impl RedisConfig {
    /// Locks on the server at this host and port.
    pub fn new(host: impl Into<String>, port: u16) -> RedisConfig {
        RedisConfig::on(Server::Tcp(host.into(), port))
    }

    /// Locks on the server that listens at this Unix socket.
    pub fn unix(path: impl Into<PathBuf>) -> RedisConfig {
        RedisConfig::on(Server::Unix(path.into()))
    }

    fn on(server: Server) -> RedisConfig {
        RedisConfig {
            server,
            user: None,
            password: None,
            database: 0,
            space: "lockline".to_owned(),
            max_lease: Duration::from_secs(60),
            restart_guard: RestartGuard::On,
            allow_eviction: false,
            of_a_quorum: false,
            #[cfg(test)]
            clock: None,
            #[cfg(test)]
            guard: None,
        }
    }

    /// Logs in. An empty user is the server's default user.
    ///
    /// Default: no login.
    #[must_use]
    pub fn login(mut self, user: impl Into<String>, password: impl Into<String>) -> RedisConfig {
        self.user = Some(user.into()).filter(|user| !user.is_empty());
        self.password = Some(password.into());
        self
    }

    /// The number of the database.
    ///
    /// Default: 0, the only one that every server has.
    #[must_use]
    pub fn database(mut self, number: u32) -> RedisConfig {
        self.database = i64::from(number);
        self
    }

    /// What all keys and channels of Lockline on this server begin with: 1 to 64 letters, digits and `_ . : / -`.
    ///
    /// Default: `lockline`. Everybody who is to share locks must say the same.
    #[must_use]
    pub fn space(mut self, space: impl Into<String>) -> RedisConfig {
        self.space = space.into();
        self
    }

    /// The longest lease that anybody on this server and space uses, and so the length of the restart guard. A longer
    /// lease is refused, unless the guard is off.
    ///
    /// Default: 60 s, six times the default lease. It is also how long everybody waits after a restart: keep it short.
    #[must_use]
    pub fn max_lease(mut self, longest: Duration) -> RedisConfig {
        self.max_lease = longest;
        self
    }

    /// What to do on a server that was restarted, and may have forgotten who holds what.
    ///
    /// Default: [`RestartGuard::On`].
    #[must_use]
    pub fn restart_guard(mut self, guard: RestartGuard) -> RedisConfig {
        self.restart_guard = guard;
        self
    }

    /// Accepts a server that removes keys when its memory is full (`maxmemory-policy` other than `noeviction`).
    ///
    /// Default: `false`, because a lock whose key is removed has two holders.
    #[must_use]
    pub fn allow_eviction(mut self, allow: bool) -> RedisConfig {
        self.allow_eviction = allow;
        self
    }

    /// What an address says; `lease=` and `prefix=`, which are the client's, must have been taken out of it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an address that makes no sense, [`Unsupported`](ErrorKind::Unsupported) for
    /// one of several servers.
    pub fn from_url(mut url: EngineUrl) -> Result<RedisConfig> {
        let mut config = RedisConfig::on(server_of(&url)?);
        config.user = url.user().map(str::to_owned);
        config.password = url.password().map(str::to_owned);
        let database = match &config.server {
            Server::Tcp(..) => Some(url.path().trim_matches('/').to_owned()).filter(|db| !db.is_empty()),
            Server::Unix(_) => None,
        };
        if let Some(number) = url.take("db").or(database) {
            config = config.database(number.parse().map_err(|_| bad("its database is not a number"))?);
        }
        config.space = url.take("space").unwrap_or(config.space);
        if let Some(text) = url.take("max_lease") {
            config.max_lease = humantime::parse_duration(&text)
                .map_err(|_| bad("its max_lease is not a duration such as 60s or 5m"))?;
        }
        config.restart_guard = match url.take("restart_guard").as_deref() {
            None | Some("on") => RestartGuard::On,
            Some("always") => RestartGuard::Always,
            Some("off") => RestartGuard::Off,
            Some(_) => return Err(bad("restart_guard is on, always or off")),
        };
        config.allow_eviction = match url.take("eviction").as_deref() {
            None | Some("refuse") => false,
            Some("allow") => true,
            Some(_) => return Err(bad("eviction is either allow or refuse")),
        };
        for later in ["replicas", "layout"] {
            if url.take(later).is_some() {
                return Err(not_yet(format!("the option {later}= is not supported yet")));
            }
        }
        url.finish()?;
        Ok(config)
    }

    /// Everything that can be refused before a server is touched.
    pub(in crate::drivers) fn check(&self) -> Result<()> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:/-".contains(&byte);
        if !(1..=64).contains(&self.space.len()) || !self.space.bytes().all(plain) {
            return Err(bad("a space is 1 to 64 letters, digits and _ . : / -"));
        }
        crate::primitive::check_lease(self.max_lease)
    }

    /// Refuses a lease that the restart guard would not outlast.
    pub(in crate::drivers) fn check_lease(&self, operation: &'static str, lease: Duration) -> Result<()> {
        if self.restart_guard == RestartGuard::Off || lease <= self.max_lease {
            return Ok(());
        }
        let (asked, most) = (humantime::format_duration(lease), humantime::format_duration(self.max_lease));
        let message = format!("a lease of {asked} is longer than max_lease, {most}");
        Err(Error::new(ErrorKind::Invalid, operation, message).hint(
            "ask for less, or raise max_lease= for everybody who uses this server: it is how long the restart guard lasts",
        ))
    }

    /// As people see it: no secret, no user.
    pub(in crate::drivers) fn address(&self) -> String {
        match &self.server {
            Server::Tcp(host, port) if host.contains(':') => {
                format!("redis://[{host}]:{port}/{}", self.database)
            }
            Server::Tcp(host, port) => format!("redis://{host}:{port}/{}", self.database),
            Server::Unix(path) => format!("redis+unix:{}?db={}", path.display(), self.database),
        }
    }
}

fn server_of(url: &EngineUrl) -> Result<Server> {
    match url.scheme() {
        "redis+unix" if url.hosts().is_empty() && url.path().len() > 1 => Ok(Server::Unix(url.path().into())),
        "redis+unix" => Err(bad("a Unix socket is written redis+unix:/path/to/socket")),
        "redis" => match url.hosts() {
            [] => Err(bad("it names no host").hint("write redis://host:6379")),
            [host] => host_and_port(host),
            _ => Err(not_yet("several hosts are not supported yet: name one server".to_owned())),
        },
        other => Err(not_yet(format!("{other}: is not supported yet"))),
    }
}

fn host_and_port(text: &str) -> Result<Server> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':').unwrap_or("6379")),
        None => text.rsplit_once(':').unwrap_or((text, "6379")),
    };
    let port = port.parse().map_err(|_| bad("its port is not a number from 1 to 65535"))?;
    Ok(Server::Tcp(if host.is_empty() { "127.0.0.1" } else { host }.to_owned(), port))
}

fn bad(problem: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "url", problem)
}

fn not_yet(problem: String) -> Error {
    Error::new(ErrorKind::Unsupported, "url", problem)
        .hint("this version knows one server: redis://[user:password@]host[:port][/db] and redis+unix:/path")
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("server", &self.server)
            .field("database", &self.database)
            .field("space", &self.space)
            .field("max_lease", &self.max_lease)
            .field("restart_guard", &self.restart_guard)
            .field("allow_eviction", &self.allow_eviction)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<RedisConfig> {
        RedisConfig::from_url(EngineUrl::parse(text)?)
    }

    #[test]
    fn addresses() {
        let all =
            config("redis://me:c4nary@h:1/3?space=a&max_lease=5m&restart_guard=off&eviction=allow").unwrap();
        assert_eq!(all.server, Server::Tcp("h".into(), 1));
        assert_eq!((all.user.as_deref(), all.password.as_deref()), (Some("me"), Some("c4nary")));
        assert_eq!((all.database, all.space.as_str(), all.max_lease.as_secs()), (3, "a", 300));
        assert_eq!((all.restart_guard, all.allow_eviction), (RestartGuard::Off, true));
        assert!(!format!("{all:?} {}", all.address()).contains("c4nary"));
        assert_eq!(config("redis://h").unwrap().server, Server::Tcp("h".into(), 6379));
        assert_eq!(config("redis://[::1]:7").unwrap().server, Server::Tcp("::1".into(), 7));
        assert_eq!(config("redis+unix:/run/r.sock?db=2").unwrap().server, Server::Unix("/run/r.sock".into()));
    }

    #[test]
    fn what_is_refused() {
        for (text, kind) in [
            ("redis://", ErrorKind::Invalid),
            ("redis://h:x", ErrorKind::Invalid),
            ("redis://h/x", ErrorKind::Invalid),
            ("redis://h?restart_guard=maybe", ErrorKind::Invalid),
            ("redis://h?eviction=some", ErrorKind::Invalid),
            ("redis://h?speed=fast", ErrorKind::Invalid),
            ("redis://a,b", ErrorKind::Unsupported),
            ("rediss://a", ErrorKind::Unsupported),
            ("redis-sentinel://a,b/m", ErrorKind::Unsupported),
            ("redis-cluster://a,b", ErrorKind::Unsupported),
            ("redis://h?replicas=all", ErrorKind::Unsupported),
            ("redis://h?layout=redisson", ErrorKind::Unsupported),
        ] {
            assert_eq!(config(text).unwrap_err().kind(), kind, "{text}");
        }
        assert!(RedisConfig::new("h", 1).space("a{b").check().is_err());
        let minute = RedisConfig::new("h", 1);
        assert!(minute.check_lease("join", Duration::from_secs(60)).is_ok());
        assert!(minute.check_lease("join", Duration::from_secs(61)).is_err());
        let unguarded = minute.restart_guard(RestartGuard::Off);
        assert!(unguarded.check_lease("join", Duration::from_secs(61)).is_ok());
    }
}
