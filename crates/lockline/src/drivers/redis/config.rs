//! Where the servers are, and how to treat them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::address::{Address, Topology};
use super::layouts::Layout;
use super::tls::Tls;
use crate::error::{Error, ErrorKind, Result};
use crate::words::told;

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

/// Who we are. Without `Debug`: it is a secret.
#[derive(Clone, Default)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

impl Login {
    /// An empty user is the server's default user.
    fn new(user: impl Into<String>, password: impl Into<String>) -> Login {
        Login { user: Some(user.into()).filter(|user| !user.is_empty()), password: Some(password.into()) }
    }
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
    /// Nobody gets in until the longest lease from before the restart must have ended, unless the server writes
    /// everything to an append-only file before it answers (`appendfsync always`), and did so before the restart.
    #[default]
    On,
    /// The same, whatever the server says about its data: a disk may lose what it said it had written.
    Always,
    /// As [`On`](RestartGuard::On), and for this long only, or longer: at least as long as
    /// [`max_lease`](RedisConfig::max_lease). A promise that nobody on this server and space has a longer lease; who guards for
    /// another time is refused while the server has a record of the others.
    For(Duration),
    /// Locks are handed out at once. Two holders are possible after a restart; tokens still rise.
    Off,
}

/// What keys of Lockline's own layout begin with, unless said otherwise.
const SPACE: &str = "lockline";

/// The longest lease, unless said otherwise; and for how long everybody guards who does not say that less is enough. It is the
/// default lease: whoever meets a server that was just started waits no longer than that for a first lock.
pub(super) const MAX_LEASE: Duration = crate::builder::DEFAULT_LEASE;

/// What it was before: somebody may still hold a lock on a lease as long as that.
pub(super) const UNSAID_BEFORE: Duration = Duration::from_secs(60);

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

    pub(super) fn on(topology: Topology) -> RedisConfig {
        RedisConfig {
            topology,
            tls: None,
            login: Login::default(),
            sentinel_login: Login::default(),
            database: 0,
            replicas: None,
            space: SPACE.to_owned(),
            max_lease: MAX_LEASE,
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
        self.login = Login::new(user, password);
        self
    }

    /// Logs in to the Sentinels, which know nothing of the users of the servers they watch.
    ///
    /// Default: no login.
    #[must_use]
    pub fn sentinel_login(mut self, user: impl Into<String>, password: impl Into<String>) -> RedisConfig {
        self.sentinel_login = Login::new(user, password);
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

    /// The longest lease that this client asks for. A longer lease is refused, unless the guard is off. The restart guard lasts
    /// as long, and at least 10 s, because others may have longer leases than this client; see [`RestartGuard::For`].
    ///
    /// Default: 10 s, the default lease, so that nobody waits longer than that for a first lock on a server that was just
    /// started. Whoever says more must say so everywhere: those who guard for another time than the others on this server
    /// and space are refused.
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
        // Nobody is asked for a name without a password: the server would take us for somebody else.
        for login in [&self.login, &self.sentinel_login] {
            if login.user.is_some() && login.password.is_none() {
                return Err(bad("it names a user without a password").hint("write user:password@host"));
            }
        }
        if self.sentinel_login.password.is_some() && !matches!(self.topology, Topology::Sentinel(..)) {
            return Err(bad("sentinel_user and sentinel_password are for Sentinels")
                .hint("write redis-sentinel://host,host/NAME; for one server user:password@host"));
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
        if self.guard_length() < self.max_lease {
            return Err(bad("its restart_guard is shorter than max_lease").hint("lower max_lease= as well"));
        }
        crate::primitive::check_lease(self.max_lease)
    }

    /// How long the restart guard lasts. A client that meets a server which has forgotten everything cannot know what leases others
    /// have: it takes them for the longest that is allowed by default.
    pub(super) fn guard_length(&self) -> Duration {
        match self.restart_guard {
            RestartGuard::For(length) => length,
            RestartGuard::On | RestartGuard::Always | RestartGuard::Off => self.max_lease.max(MAX_LEASE),
        }
    }

    /// Refuses a lease that the restart guard would not outlast.
    pub(in crate::drivers) fn check_lease(&self, operation: &'static str, lease: Duration) -> Result<()> {
        if self.restart_guard == RestartGuard::Off || lease <= self.max_lease {
            return Ok(());
        }
        let (asked, most) = (told(lease), told(self.max_lease));
        let message = format!("a lease of {asked} is longer than max_lease, {most}");
        Err(Error::new(ErrorKind::Invalid, operation, message).hint(
            "ask for less, or raise max_lease= for everybody who uses this server: the restart guard must last as long",
        ))
    }
}

fn addresses<H: Into<String>>(all: impl IntoIterator<Item = (H, u16)>) -> Vec<Address> {
    all.into_iter().map(|(host, port)| Address::Tcp(host.into(), port)).collect()
}

pub(super) fn bad(problem: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "url", problem).hint(
        "it looks like redis://user:password@host:6379/0; the guide of the redis driver lists the options",
    )
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

    #[test]
    fn how_many_replicas_are_needed() {
        let needed = |replicas: Replicas| [0, 1, 2, 3, 4].map(|known| replicas.needed(known));
        assert_eq!(needed(Replicas::All), [1, 1, 2, 3, 4]);
        assert_eq!(needed(Replicas::Majority), [1, 1, 1, 2, 2]);
        assert_eq!(needed(Replicas::Count(3)), [3; 5]);
    }
    #[test]
    fn what_is_refused() {
        assert!(RedisConfig::new("h", 1).space("a{b").check().is_err());
        let usual = RedisConfig::new("h", 1);
        assert!(usual.check_lease("join", Duration::from_secs(10)).is_ok());
        let refused = usual.check_lease("join", Duration::from_secs(11)).unwrap_err();
        assert!(refused.hint_text().unwrap().contains("max_lease="), "{refused:?}");
        let unguarded = usual.restart_guard(RestartGuard::Off);
        assert!(unguarded.check_lease("join", Duration::from_secs(61)).is_ok());
    }
}
