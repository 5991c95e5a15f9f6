//! Where the servers are, and how to treat them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::layouts::Layout;
use super::tls::Tls;
use crate::error::{Error, ErrorKind, Result};
use crate::url::EngineUrl;

/// Where the servers are, and how to treat them.
///
/// ```
/// # use lockline::drivers::redis::RedisConfig;
/// # use std::time::Duration;
/// let config = RedisConfig::new("cache.internal", 6379).login("locks", "secret").max_lease(Duration::from_secs(300));
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    pub(in crate::drivers) topology: Topology,
    pub(in crate::drivers) tls: Option<Tls>,
    pub(super) login: Login,
    /// How to log in to the Sentinels, which have users of their own.
    pub(super) sentinel_login: Login,
    pub(in crate::drivers) database: i64,
    pub(in crate::drivers) replicas: Option<Replicas>,
    pub(in crate::drivers) space: String,
    pub(in crate::drivers) max_lease: Duration,
    pub(in crate::drivers) restart_guard: RestartGuard,
    pub(super) allow_eviction: bool,
    pub(in crate::drivers) layout: Layout,
    /// It is a node of a quorum: claims bring their tickets along.
    pub(in crate::drivers) of_a_quorum: bool,
    /// The clock that scripts read instead of the server's.
    #[cfg(test)]
    pub(in crate::drivers) clock: Option<std::sync::Arc<std::sync::atomic::AtomicU64>>,
    /// A restart guard, in microseconds of that clock: its end and its length.
    #[cfg(test)]
    pub(in crate::drivers) guard: Option<(u64, u64)>,
}

/// Which servers there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::drivers) enum Topology {
    One(Address),
    /// Sentinels, and the name of the primary that they watch.
    Sentinel(Vec<Address>, String),
    /// Some nodes of a cluster.
    Cluster(Vec<Address>),
}

/// How to reach a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::drivers) enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Who we are. Without `Debug`: it is a secret.
#[derive(Clone, Default)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

/// How many replicas must have a grant, and each renewal, before it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Replicas {
    /// This many.
    Count(u32),
    /// As many as make a majority of all copies, the primary's included: 1 of 2, 2 of 4.
    Majority,
    /// All that the primary is known to have had. Only this survives every failover: whichever replica is promoted has
    /// the lock. While one of them is down, nobody gets a lock.
    All,
}

impl Replicas {
    /// How many that is of `known` ones; at least one, because a primary without any promises nothing.
    pub(super) fn needed(self, known: u32) -> u32 {
        match self {
            Replicas::Count(count) => count,
            Replicas::Majority => known.div_ceil(2),
            Replicas::All => known,
        }
        .max(1)
    }
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

/// What keys of Lockline's own layout begin with, unless said otherwise.
const SPACE: &str = "lockline";

impl RedisConfig {
    /// Locks on the server at this host and port.
    pub fn new(host: impl Into<String>, port: u16) -> RedisConfig {
        RedisConfig::on(Topology::One(Address::Tcp(host.into(), port)))
    }

    /// Locks on the server that listens at this Unix socket.
    pub fn unix(path: impl Into<PathBuf>) -> RedisConfig {
        RedisConfig::on(Topology::One(Address::Unix(path.into())))
    }

    /// Locks on the primary that these Sentinels watch under this name, whichever server that is at the time.
    pub fn sentinel<H: Into<String>>(
        sentinels: impl IntoIterator<Item = (H, u16)>,
        primary: impl Into<String>,
    ) -> RedisConfig {
        RedisConfig::on(Topology::Sentinel(addresses(sentinels), primary.into()))
    }

    /// Locks on the cluster that these nodes belong to; the others are found by asking them.
    pub fn cluster<H: Into<String>>(nodes: impl IntoIterator<Item = (H, u16)>) -> RedisConfig {
        RedisConfig::on(Topology::Cluster(addresses(nodes)))
    }

    fn on(topology: Topology) -> RedisConfig {
        RedisConfig {
            topology,
            tls: None,
            login: Login::default(),
            sentinel_login: Login::default(),
            database: 0,
            replicas: None,
            space: SPACE.to_owned(),
            max_lease: Duration::from_secs(60),
            restart_guard: RestartGuard::On,
            allow_eviction: false,
            layout: Layout::Line,
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
        self.login = Login {
            user: Some(user.into()).filter(|user| !user.is_empty()),
            password: Some(password.into()),
        };
        self
    }

    /// Logs in to the Sentinels, which know nothing of the users of the servers they watch.
    ///
    /// Default: no login.
    #[must_use]
    pub fn sentinel_login(mut self, user: impl Into<String>, password: impl Into<String>) -> RedisConfig {
        self.sentinel_login = Login {
            user: Some(user.into()).filter(|user| !user.is_empty()),
            password: Some(password.into()),
        };
        self
    }

    /// Speaks TLS, to Sentinels and cluster nodes as well. There is no way back to plain text.
    ///
    /// Default: plain text, as Redis itself.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> RedisConfig {
        self.tls = Some(tls);
        self
    }

    /// How many replicas must have a grant, and each renewal, before it counts. With too few the claim leaves, and the
    /// caller is told how many there were.
    ///
    /// Default: none is waited for, so that a failover may forget a lock.
    #[must_use]
    pub fn replicas(mut self, replicas: Replicas) -> RedisConfig {
        self.replicas = Some(replicas);
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
    /// Default: `lockline`. Everybody who is to share locks must say the same. In the [layouts](Layout) of other clients
    /// it stands right before the name, and is nothing by default: the key is the name, as they have it.
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

    /// Stores locks as other clients do, to share them. Call it before [`space`](RedisConfig::space).
    ///
    /// Default: [`Layout::Line`], the only one with order, every primitive, and tokens that survive a restart.
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> RedisConfig {
        self.layout = layout;
        self.space = if layout == Layout::Line { SPACE.to_owned() } else { String::new() };
        self
    }

    /// What an address says; `lease=` and `prefix=`, which are the client's, must have been taken out of it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an address that makes no sense.
    pub fn from_url(mut url: EngineUrl) -> Result<RedisConfig> {
        let (topology, database) = topology_of(&url)?;
        let mut config = RedisConfig::on(topology);
        let login =
            Login { user: url.user().map(str::to_owned), password: url.password().map(str::to_owned) };
        config.login = login;
        config.sentinel_login =
            Login { user: url.take("sentinel_user"), password: url.take("sentinel_password") };
        if let Some(number) = url.take("db").or(database) {
            config = config.database(number.parse().map_err(|_| bad("its database is not a number"))?);
        }
        config.tls = tls_of(&mut url)?;
        config.replicas = match url.take("replicas").as_deref() {
            None => None,
            Some("all") => Some(Replicas::All),
            Some("majority") => Some(Replicas::Majority),
            Some(count) => Some(Replicas::Count(
                count.parse().map_err(|_| bad("replicas is all, majority or a number"))?,
            )),
        };
        config = config.layout(match url.take("layout").as_deref() {
            None | Some("line") => Layout::Line,
            Some("plain") => Layout::Plain,
            Some("redisson") => Layout::Redisson,
            Some("redisson-fenced") => Layout::RedissonFenced,
            Some(_) => return Err(bad("layout is line, plain, redisson or redisson-fenced")),
        });
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
        url.finish()?;
        config.check()?;
        Ok(config)
    }

    /// Everything that can be refused before a server is touched.
    pub(in crate::drivers) fn check(&self) -> Result<()> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:/-".contains(&byte);
        let shortest = usize::from(self.layout == Layout::Line);
        if !(shortest..=64).contains(&self.space.len()) || !self.space.bytes().all(plain) {
            return Err(bad("a space is 1 to 64 letters, digits and _ . : / -"));
        }
        match &self.topology {
            Topology::Sentinel(sentinels, primary) if sentinels.is_empty() || primary.is_empty() => {
                return Err(bad("it names no Sentinel, or not the primary that they watch")
                    .hint("write redis-sentinel://host:26379,host:26379/NAME"));
            }
            Topology::Cluster(nodes) if nodes.is_empty() => {
                return Err(bad("it names no node").hint("write redis-cluster://host:6379,host:6379"));
            }
            Topology::Cluster(_) if self.database != 0 => {
                return Err(bad("a cluster has no database but 0"));
            }
            Topology::One(Address::Unix(_)) if self.tls.is_some() => {
                return Err(bad("nobody speaks TLS on a Unix socket"));
            }
            _ => {}
        }
        let alone = matches!(self.topology, Topology::One(_)) && self.replicas.is_none();
        if self.layout != Layout::Line && !alone {
            let message =
                "locks in the layouts of other clients are kept on one server, without waiting for replicas";
            return Err(Error::new(ErrorKind::Unsupported, "url", message)
                .hint("name one server, or use Lockline's own layout"));
        }
        if self.replicas == Some(Replicas::Count(0)) {
            return Err(bad("replicas=0 waits for nobody: leave it out"));
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
        let list = |all: &[Address]| all.iter().map(Address::to_string).collect::<Vec<_>>().join(",");
        let s = if self.tls.is_some() { "s" } else { "" };
        match &self.topology {
            Topology::One(Address::Unix(path)) => {
                format!("redis+unix:{}?db={}", path.display(), self.database)
            }
            Topology::One(server) => format!("redis{s}://{server}/{}", self.database),
            Topology::Sentinel(sentinels, primary) => {
                format!("redis{s}-sentinel://{}/{primary}/{}", list(sentinels), self.database)
            }
            Topology::Cluster(nodes) => format!("redis{s}-cluster://{}", list(nodes)),
        }
    }
}

fn addresses<H: Into<String>>(all: impl IntoIterator<Item = (H, u16)>) -> Vec<Address> {
    all.into_iter().map(|(host, port)| Address::Tcp(host.into(), port)).collect()
}

/// The servers of an address, and the database in its path.
fn topology_of(url: &EngineUrl) -> Result<(Topology, Option<String>)> {
    let all = |port| url.hosts().iter().map(|host| host_and_port(host, port)).collect::<Result<Vec<_>>>();
    let path = url.path().trim_matches('/');
    let named = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    // `rediss-sentinel` and `rediss-cluster` are what we print; `tls=on` says the same.
    match url.scheme() {
        "redis+unix" if url.hosts().is_empty() && url.path().len() > 1 => {
            Ok((Topology::One(Address::Unix(url.path().into())), None))
        }
        "redis+unix" => Err(bad("a Unix socket is written redis+unix:/path/to/socket")),
        "redis-sentinel" | "rediss-sentinel" => {
            let (primary, database) = path.split_once('/').unwrap_or((path, ""));
            Ok((Topology::Sentinel(all(26379)?, primary.to_owned()), named(database)))
        }
        "redis-cluster" | "rediss-cluster" => Ok((Topology::Cluster(all(6379)?), named(path))),
        _ => match all(6379)?.as_slice() {
            [] => Err(bad("it names no host").hint("write redis://host:6379")),
            [host] => Ok((Topology::One(host.clone()), named(path))),
            _ => Err(bad("redis:// names one server")
                .hint("several are redis-sentinel://, redis-cluster:// or redlock://")),
        },
    }
}

fn host_and_port(text: &str, default: u16) -> Result<Address> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        None => default,
        Some(port) => port.parse().map_err(|_| bad("its port is not a number from 1 to 65535"))?,
    };
    Ok(Address::Tcp(if host.is_empty() { "127.0.0.1" } else { host }.to_owned(), port))
}

fn tls_of(url: &mut EngineUrl) -> Result<Option<Tls>> {
    let asked = match url.take("tls").as_deref() {
        None => url.scheme().starts_with("rediss"),
        Some("on") => true,
        Some(_) => return Err(bad("tls is on, or left out")),
    };
    let (ca, cert, key) = (url.take("ca"), url.take("cert"), url.take("key"));
    if !asked {
        return match (ca, cert, key) {
            (None, None, None) => Ok(None),
            _ => Err(bad("ca, cert and key are for TLS").hint("write rediss://, or add tls=on")),
        };
    }
    let mut tls = Tls::new();
    if let Some(ca) = ca {
        tls = tls.ca(ca);
    }
    match (cert, key) {
        (None, None) => {}
        (Some(cert), Some(key)) => tls = tls.client(cert, key),
        _ => return Err(bad("cert and key belong together")),
    }
    Ok(Some(tls))
}

fn bad(problem: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "url", problem)
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("topology", &self.topology)
            .field("tls", &self.tls)
            .field("replicas", &self.replicas)
            .field("database", &self.database)
            .field("space", &self.space)
            .field("max_lease", &self.max_lease)
            .field("restart_guard", &self.restart_guard)
            .field("allow_eviction", &self.allow_eviction)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<RedisConfig> {
        RedisConfig::from_url(EngineUrl::parse(text)?)
    }

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp(host.into(), port)
    }

    #[test]
    fn addresses_of_one_server() {
        let all =
            config("redis://me:c4nary@h:1/3?space=a&max_lease=5m&restart_guard=off&eviction=allow").unwrap();
        assert_eq!(all.topology, Topology::One(tcp("h", 1)));
        assert_eq!((all.login.user.as_deref(), all.login.password.as_deref()), (Some("me"), Some("c4nary")));
        assert_eq!((all.database, all.space.as_str(), all.max_lease.as_secs()), (3, "a", 300));
        assert_eq!((all.restart_guard, all.allow_eviction), (RestartGuard::Off, true));
        assert!(!format!("{all:?} {}", all.address()).contains("c4nary"));
        assert_eq!(config("redis://h").unwrap().topology, Topology::One(tcp("h", 6379)));
        assert_eq!(config("redis://[::1]:7").unwrap().topology, Topology::One(tcp("::1", 7)));
        let unix = config("redis+unix:/run/r.sock?db=2").unwrap();
        assert_eq!((unix.topology, unix.database), (Topology::One(Address::Unix("/run/r.sock".into())), 2));
    }

    #[test]
    fn addresses_of_several_servers() {
        let watched = config(
            "redis-sentinel://me:pw@a,b:1/main/2?sentinel_user=s&sentinel_password=c4nary&replicas=majority",
        )
        .unwrap();
        assert_eq!(watched.topology, Topology::Sentinel(vec![tcp("a", 26379), tcp("b", 1)], "main".into()));
        assert_eq!((watched.database, watched.replicas), (2, Some(Replicas::Majority)));
        assert_eq!(watched.sentinel_login.password.as_deref(), Some("c4nary"));
        assert_eq!(watched.address(), "redis-sentinel://a:26379,b:1/main/2");
        assert!(!format!("{watched:?}").contains("c4nary"));
        let cluster = config("redis-cluster://a,b:1?tls=on&replicas=2").unwrap();
        assert_eq!(cluster.topology, Topology::Cluster(vec![tcp("a", 6379), tcp("b", 1)]));
        assert_eq!(cluster.replicas, Some(Replicas::Count(2)));
        assert_eq!(cluster.address(), "rediss-cluster://a:6379,b:1");
        assert!(config(&cluster.address()).unwrap().tls.is_some());
    }

    #[test]
    fn how_many_replicas_are_needed() {
        let needed = |replicas: Replicas| [0, 1, 2, 3, 4].map(|known| replicas.needed(known));
        assert_eq!(needed(Replicas::All), [1, 1, 2, 3, 4]);
        assert_eq!(needed(Replicas::Majority), [1, 1, 1, 2, 2]);
        assert_eq!(needed(Replicas::Count(3)), [3; 5]);
        let shared = config("redis://h?layout=redisson-fenced").unwrap();
        assert_eq!((shared.layout, shared.space.as_str()), (Layout::RedissonFenced, ""));
        assert_eq!(config("redis://h?space=jobs:&layout=plain").unwrap().space, "jobs:");
        assert!(shared.check().is_ok());
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
            ("redis://a,b", ErrorKind::Invalid),
            ("redis://a?ca=/x", ErrorKind::Invalid),
            ("redis://a?tls=maybe", ErrorKind::Invalid),
            ("rediss://a?cert=/x", ErrorKind::Invalid),
            ("redis+unix:/x?tls=on", ErrorKind::Invalid),
            ("redis-sentinel://a,b", ErrorKind::Invalid),
            ("redis-sentinel:///m", ErrorKind::Invalid),
            ("redis-cluster://", ErrorKind::Invalid),
            ("redis-cluster://a/1", ErrorKind::Invalid),
            ("redis://h?replicas=0", ErrorKind::Invalid),
            ("redis://h?replicas=some", ErrorKind::Invalid),
            ("redis://h?layout=sherlock", ErrorKind::Invalid),
            ("redis-cluster://a?layout=plain", ErrorKind::Unsupported),
            ("redis://h?layout=plain&replicas=all", ErrorKind::Unsupported),
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
