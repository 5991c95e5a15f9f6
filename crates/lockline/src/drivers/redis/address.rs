//! What an address says, and how a configuration is shown as one.

use std::fmt;
use std::path::PathBuf;

use super::config::{Login, RedisConfig, Replicas, RestartGuard, bad};
use super::layouts::Layout;
use super::tls::Tls;
use crate::error::{Error, ErrorKind, Result};
use crate::url::EngineUrl;

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

impl RedisConfig {
    /// What an address says; `lease=` and `prefix=`, which are the client's, must have been taken out of it.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for an address that makes no sense.
    pub fn from_url(mut url: EngineUrl) -> Result<RedisConfig> {
        let (topology, database) = topology_of(&url)?;
        let mut config = RedisConfig::on(topology);
        let login =
            Login { user: url.user().map(str::to_owned), password: url.password().map(str::to_owned) };
        config.login = login;
        config.sentinel_login =
            Login { user: url.take("sentinel_user"), password: url.take("sentinel_password") };
        let option = url.take("db");
        if option.is_some() && database.is_some() {
            return Err(bad("it names a database twice").hint("write /N, or db=N"));
        }
        if let Some(number) = option.or(database) {
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
        let (max_lease, guard) = (url.take("max_lease"), url.take("restart_guard"));
        if config.layout != Layout::Line
            && (max_lease.is_some() || guard.as_deref().is_some_and(|guard| guard != "off"))
        {
            return Err(no_guard_there());
        }
        if let Some(text) = max_lease {
            config.max_lease = humantime::parse_duration(&text)
                .map_err(|_| bad("its max_lease is not a duration such as 60s or 5m"))?;
        }
        config.restart_guard = match guard.as_deref() {
            None | Some("on") => RestartGuard::On,
            Some("always") => RestartGuard::Always,
            Some("off") => RestartGuard::Off,
            Some(text) => RestartGuard::For(
                humantime::parse_duration(text)
                    .map_err(|_| bad("restart_guard is on, always, off, or a duration such as 20s"))?,
            ),
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

/// One server, its login and its database. Certificates are the system's; [`tls`](RedisConfig::tls) names others.
impl TryFrom<redis::ConnectionInfo> for RedisConfig {
    type Error = Error;

    fn try_from(theirs: redis::ConnectionInfo) -> Result<RedisConfig> {
        use redis::ConnectionAddr;
        let (address, tls) = match theirs.addr() {
            ConnectionAddr::Tcp(host, port) => (Address::Tcp(host.clone(), *port), None),
            ConnectionAddr::TcpTls { host, port, insecure: false, .. } => {
                (Address::Tcp(host.clone(), *port), Some(Tls::new()))
            }
            ConnectionAddr::Unix(path) => (Address::Unix(path.clone()), None),
            _ => {
                let message = "a connection whose certificate nobody checks is not taken over";
                return Err(Error::new(ErrorKind::Unsupported, "config", message)
                    .hint("make it a RedisConfig, and name the authority: Tls::new().ca(…)"));
            }
        };
        let mut config = RedisConfig::on(Topology::One(address));
        let settings = theirs.redis_settings();
        config.tls = tls;
        config.database = settings.db();
        config.login = Login {
            user: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
        };
        config.check()?;
        Ok(config)
    }
}

/// What is accepted and does nothing is taken for granted.
fn no_guard_there() -> Error {
    let message = "locks in the layouts of other clients have no restart guard";
    Error::new(ErrorKind::Unsupported, "url", message)
        .hint("leave out max_lease= and restart_guard=, or use Lockline's own layout")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<RedisConfig> {
        RedisConfig::from_url(EngineUrl::parse(text)?)
    }

    #[test]
    fn the_client_crates_own_settings_are_taken() {
        use redis::IntoConnectionInfo;
        let of = |text: &str| RedisConfig::try_from(text.into_connection_info().unwrap());
        let ours = of("rediss://me:c4nary@h:7/3").unwrap();
        assert_eq!(ours.address(), "rediss://h:7/3");
        assert_eq!(
            (ours.login.user.as_deref(), ours.login.password.as_deref()),
            (Some("me"), Some("c4nary"))
        );
        assert_eq!(
            of("redis+unix:///run/redis.sock?db=2").unwrap().address(),
            "redis+unix:/run/redis.sock?db=2"
        );
        assert_eq!(of("rediss://h/#insecure").unwrap_err().kind(), ErrorKind::Unsupported);
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
    fn layouts_of_others_have_no_space_unless_they_say_so() {
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
            ("redis://h?restart_guard=5s", ErrorKind::Invalid),
            ("redis://h?sentinel_password=x", ErrorKind::Invalid),
            ("rediss://h?sentinel_user=x", ErrorKind::Invalid),
            ("redis+unix:/x?sentinel_password=x", ErrorKind::Invalid),
            ("redis-cluster://a?sentinel_user=x&sentinel_password=y", ErrorKind::Invalid),
            ("redis-sentinel://a/m?sentinel_user=x", ErrorKind::Invalid),
            ("redis://me@h", ErrorKind::Invalid),
            ("redis-sentinel://me@a/m", ErrorKind::Invalid),
            ("redis://h/2?db=3", ErrorKind::Invalid),
            ("redis-sentinel://a/m/2?db=2", ErrorKind::Invalid),
            ("redis://h?layout=plain&max_lease=5s", ErrorKind::Unsupported),
            ("redis://h?layout=redisson&restart_guard=on", ErrorKind::Unsupported),
            ("redis-cluster://a?layout=plain", ErrorKind::Unsupported),
            ("redis://h?layout=plain&replicas=all", ErrorKind::Unsupported),
        ] {
            assert_eq!(config(text).unwrap_err().kind(), kind, "{text}");
        }
    }

    #[test]
    fn broken_addresses_show_no_secret() {
        let examples = [
            "redis://me:c4nary@h:1/2?space=s&restart_guard=20s&max_lease=5m",
            "redis-sentinel://me:c4nary@a:1,b:2/main?replicas=majority",
            "rediss://:c4nary@[::1]:7?eviction=allow",
            "redis+unix:/run/redis.sock?db=2",
            "redis-cluster://a,b:3?replicas=1",
        ];
        crate::hostile::addresses(&examples, config);
    }
}
