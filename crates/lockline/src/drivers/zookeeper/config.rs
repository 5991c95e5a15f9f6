//! Where the ensemble is, and how to treat it.

use std::fmt;
use std::time::Duration;

use zookeeper_client::{Acls, Client, Connector};

use crate::error::{Error, ErrorKind, Result};
use crate::url::EngineUrl;

/// Where the ensemble is, and how to treat it.
///
/// ```
/// # use lockline::drivers::zookeeper::ZookeeperConfig;
/// let config = ZookeeperConfig::new(["zk1:2181", "zk2:2181", "zk3:2181"]).base("/locks").login("me", "secret");
/// ```
#[derive(Clone)]
pub struct ZookeeperConfig {
    pub(super) servers: Vec<String>,
    /// Empty for the root, else it begins with a slash and does not end with one.
    pub(super) base: String,
    pub(super) login: Option<(String, String)>,
    pub(super) access: Option<Access>,
    pub(super) session: Duration,
    #[cfg(feature = "zookeeper-tls")]
    pub(super) tls: Option<Tls>,
}

/// Who may touch the znodes of this client's claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// Everybody who can reach the ensemble.
    Open,
    /// Whoever logs in as this client does.
    Creator,
}

/// What a TLS connection trusts and shows.
#[cfg(feature = "zookeeper-tls")]
#[derive(Clone)]
pub(super) struct Tls {
    /// Certificates of authorities, in PEM.
    pub(super) authorities: String,
    /// Certificate and key of this client, in PEM.
    pub(super) identity: Option<(String, String)>,
}

impl ZookeeperConfig {
    /// Locks on the ensemble of these servers, each a host or `host:port`.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>) -> ZookeeperConfig {
        ZookeeperConfig {
            servers: servers.into_iter().map(Into::into).collect(),
            base: "/lockline".to_owned(),
            login: None,
            access: None,
            session: Duration::ZERO,
            #[cfg(feature = "zookeeper-tls")]
            tls: None,
        }
    }

    /// The znode below which the locks stand: the lock `orders/42` is the znode `orders/42` there.
    ///
    /// Default: `/lockline`, so that they are not mixed with what else the ensemble keeps.
    #[must_use]
    pub fn base(mut self, path: impl AsRef<str>) -> ZookeeperConfig {
        let path = path.as_ref().trim_matches('/');
        self.base = if path.is_empty() { "/lockline".to_owned() } else { format!("/{path}") };
        self
    }

    /// Logs in, in ZooKeeper's `digest` scheme.
    ///
    /// Default: no login.
    #[must_use]
    pub fn login(mut self, user: impl Into<String>, password: impl Into<String>) -> ZookeeperConfig {
        self.login = Some((user.into(), password.into()));
        self
    }

    /// Who may touch the znodes of this client's claims.
    ///
    /// Default: [`Access::Creator`] with a login, else [`Access::Open`], because without a login there is nobody to name.
    #[must_use]
    pub fn access(mut self, access: Access) -> ZookeeperConfig {
        self.access = Some(access);
        self
    }

    /// The shortest session, and so how late the others learn that this process died. A session lasts half as long again as
    /// the leases of the claims in it, if that is more; claims of very different leases have sessions of their own.
    ///
    /// Default: none, so that leases alone decide. Set it to one and a half times your longest *fixed* lease if that is
    /// longer than the client's lease.
    #[must_use]
    pub fn session(mut self, shortest: Duration) -> ZookeeperConfig {
        self.session = shortest;
        self
    }

    /// Speaks TLS, and trusts servers that one of these authorities vouches for; shows a certificate of its own, if there is
    /// one (certificate and key). All in PEM.
    ///
    /// Default: no TLS.
    #[cfg(feature = "zookeeper-tls")]
    #[must_use]
    pub fn tls(
        mut self,
        authorities: impl Into<String>,
        identity: Option<(String, String)>,
    ) -> ZookeeperConfig {
        self.tls = Some(Tls { authorities: authorities.into(), identity });
        self
    }

    /// What an address says; `lease=` and `prefix=`, which are the client's, must have been taken out of it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an address that makes no sense, or names a file that cannot be read.
    pub fn from_url(mut url: EngineUrl) -> Result<ZookeeperConfig> {
        let mut config = ZookeeperConfig::new(url.hosts().to_vec()).base(url.path());
        match (url.user(), url.password()) {
            (Some(user), Some(password)) => config = config.login(user, password),
            (None, None) => {}
            _ => return Err(bad("it has a user without a password, or a password without a user")),
        }
        config.access = match url.take("acl").as_deref() {
            None => None,
            Some("open") => Some(Access::Open),
            Some("creator") => Some(Access::Creator),
            Some(_) => return Err(bad("acl is open or creator")),
        };
        if let Some(text) = url.take("session") {
            config.session = humantime::parse_duration(&text)
                .map_err(|_| bad("its session is not a duration such as 15s or 1m"))?;
        }
        if url.scheme() == "zookeepers" {
            config.take_tls(&mut url)?;
        }
        url.finish()?;
        Ok(config)
    }

    #[cfg(feature = "zookeeper-tls")]
    fn take_tls(&mut self, url: &mut EngineUrl) -> Result<()> {
        let mut file = |option: &'static str| -> Result<Option<String>> {
            let Some(path) = url.take(option) else { return Ok(None) };
            std::fs::read_to_string(&path).map(Some).map_err(|error| {
                Error::new(ErrorKind::Invalid, "url", format!("the file of {option}= cannot be read"))
                    .caused_by(error)
            })
        };
        let identity = match (file("cert")?, file("key")?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(bad("cert and key come together")),
        };
        let no_authority =
            || bad("zookeepers: needs ca=, a file with the certificates of the authorities to trust");
        self.tls = Some(Tls { authorities: file("ca")?.ok_or_else(no_authority)?, identity });
        Ok(())
    }

    #[cfg(not(feature = "zookeeper-tls"))]
    #[allow(clippy::unused_self)]
    fn take_tls(&mut self, _: &mut EngineUrl) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "url", "this build has no TLS for ZooKeeper")
            .hint(crate::drivers::manifest_line("zookeeper-tls")))
    }

    /// Everything that can be refused before a server is touched.
    pub(super) fn check(&self) -> Result<()> {
        if self.servers.is_empty() {
            return Err(bad("it names no host").hint("write zookeeper://host:2181,host:2181/path"));
        }
        for server in &self.servers {
            // All that follows the first colon: what looks like a login without a host must not be taken for one, and shown.
            let after_address = server.rsplit_once(']').map_or(server.as_str(), |(_, rest)| rest);
            let port = after_address.split_once(':');
            if port.is_some_and(|(_, port)| port.parse::<u16>().is_err()) {
                return Err(bad("a port is not a number from 1 to 65535")
                    .hint("an address with colons stands in brackets: [::1]:2181"));
            }
        }
        if self.access == Some(Access::Creator) && self.login.is_none() {
            return Err(bad("acl=creator needs a user and a password"));
        }
        if self.login.as_ref().is_some_and(|(user, _)| user.contains(':') || user.is_empty()) {
            return Err(bad("a user's name is not empty and has no colon"));
        }
        let segments = self.base.split('/').skip(1);
        if segments.clone().any(|segment| matches!(segment, "" | "." | ".."))
            || self.base.contains(char::is_control)
        {
            return Err(bad("its path is not one that ZooKeeper takes"));
        }
        Ok(())
    }

    /// As people see it: no secret, no user.
    pub(super) fn address(&self) -> String {
        format!("zookeeper://{}{}", self.servers.join(","), self.base)
    }

    pub(super) fn acls(&self) -> Acls<'static> {
        match self.access {
            Some(Access::Open) => Acls::anyone_all(),
            Some(Access::Creator) => Acls::creator_all(),
            None if self.login.is_some() => Acls::creator_all(),
            None => Acls::anyone_all(),
        }
    }

    /// A new session that is to last for `timeout` without a word.
    pub(super) async fn connect(&self, timeout: Duration) -> Result<Client, zookeeper_client::Error> {
        let silence = silence(timeout);
        let mut connector = Client::connector()
            .with_session_timeout(timeout)
            .with_connection_timeout(silence)
            .with_fail_eagerly();
        if let Some((user, password)) = &self.login {
            connector = connector.with_auth("digest", format!("{user}:{password}").as_bytes());
        }
        self.dial(connector, &self.servers.join(",")).await
    }

    #[cfg(feature = "zookeeper-tls")]
    async fn dial(&self, mut connector: Connector, servers: &str) -> Result<Client, zookeeper_client::Error> {
        let Some(tls) = &self.tls else { return connector.connect(servers).await };
        let mut options = zookeeper_client::TlsOptions::new().with_pem_ca(&tls.authorities)?;
        if let Some((certificate, key)) = &tls.identity {
            options = options.with_pem_identity(certificate, key)?;
        }
        connector = connector.with_tls(options);
        connector.secure_connect(servers).await
    }

    #[cfg(not(feature = "zookeeper-tls"))]
    async fn dial(&self, connector: Connector, servers: &str) -> Result<Client, zookeeper_client::Error> {
        connector.connect(servers).await
    }
}

/// After how long a silent connection is given up for another server. A holder has two thirds of its lease left when a server
/// stops answering, in the worst case: of these a third goes by until that is noticed, and a third is left to go on elsewhere.
/// Not less than a busy machine stops a process for.
fn silence(session: Duration) -> Duration {
    (session / 5).clamp(Duration::from_millis(500), Duration::from_secs(5)).min(session * 2 / 5)
}

fn bad(problem: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "url", problem)
}

impl fmt::Debug for ZookeeperConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZookeeperConfig")
            .field("servers", &self.servers)
            .field("base", &self.base)
            .field("access", &self.access)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<ZookeeperConfig> {
        let config = ZookeeperConfig::from_url(EngineUrl::parse(text)?)?;
        config.check()?;
        Ok(config)
    }

    #[test]
    fn addresses() {
        let all = config("zookeeper://me:c4nary@a:1,b:2,[::1]:3/locks/app?acl=open&session=30s").unwrap();
        assert_eq!(all.servers, ["a:1", "b:2", "[::1]:3"]);
        assert_eq!((all.base.as_str(), all.access), ("/locks/app", Some(Access::Open)));
        assert_eq!(all.session, Duration::from_secs(30));
        assert!(!format!("{all:?} {}", all.address()).contains("c4nary"));
        for text in ["zookeeper://a", "zookeeper://a/"] {
            assert_eq!(config(text).unwrap().base, "/lockline");
        }
        assert_eq!(config("zookeeper://a").unwrap().acls(), Acls::anyone_all());
        assert_eq!(config("zookeeper://u:p@a").unwrap().acls(), Acls::creator_all());
    }

    #[test]
    fn what_is_refused() {
        for text in [
            "zookeeper://",
            "zookeeper://a:x",
            "zookeeper://::1",
            "zookeeper://me:c4nary::",
            "zookeeper://u@a",
            "zookeeper://a/x//y",
            "zookeeper://a/../y",
            "zookeeper://a?acl=some",
            "zookeeper://a?acl=creator",
            "zookeeper://a?session=long",
            "zookeeper://a?speed=fast",
            "zookeeper://a?ca=/x",
        ] {
            assert_eq!(config(text).unwrap_err().kind(), ErrorKind::Invalid, "{text}");
        }
        let kind = config("zookeepers://a?ca=/no/such/file").unwrap_err().kind();
        let expected =
            if cfg!(feature = "zookeeper-tls") { ErrorKind::Invalid } else { ErrorKind::Unsupported };
        assert_eq!(kind, expected);
    }

    #[test]
    fn broken_addresses_show_no_secret() {
        let examples = ["zookeeper://me:c4nary@a:1,b/locks?session=10s", "zookeeper://a:2181/"];
        crate::hostile::addresses(&examples, config);
    }
}
