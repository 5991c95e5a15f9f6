//! Where the cluster is, and how to log in.

use std::fmt;
use std::path::PathBuf;

use crate::error::{Error, ErrorKind, Result};
use crate::url::EngineUrl;

/// Where the cluster is, and how to log in.
///
/// ```
/// # use lockline::drivers::etcd::EtcdConfig;
/// let config = EtcdConfig::new(["a.internal:2379", "b.internal:2379", "c.internal:2379"]).login("locks", "secret");
/// ```
#[derive(Clone)]
pub struct EtcdConfig {
    pub(super) hosts: Vec<String>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) space: String,
    pub(super) tls: Option<EtcdTls>,
}

/// How to reach a cluster over TLS.
#[derive(Clone, Default)]
pub struct EtcdTls {
    pub(super) ca: Option<PathBuf>,
    pub(super) identity: Option<(PathBuf, PathBuf)>,
    pub(super) server_name: Option<String>,
}

impl EtcdTls {
    /// TLS, trusting the roots of the system.
    pub fn new() -> EtcdTls {
        EtcdTls::default()
    }

    /// Trusts only this certificate authority: a PEM file.
    ///
    /// Default: the roots of the system.
    #[must_use]
    pub fn ca(mut self, file: impl Into<PathBuf>) -> EtcdTls {
        self.ca = Some(file.into());
        self
    }

    /// Shows a client certificate: its PEM file, and that of its key.
    ///
    /// Default: none.
    #[must_use]
    pub fn identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> EtcdTls {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// The name that the servers' certificates must have.
    ///
    /// Default: the host of each address.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> EtcdTls {
        self.server_name = Some(name.into());
        self
    }
}

impl EtcdConfig {
    /// Locks on the cluster that these members, `host:port`, belong to. Not all have to be named, nor to run.
    pub fn new(hosts: impl IntoIterator<Item = impl Into<String>>) -> EtcdConfig {
        EtcdConfig {
            hosts: hosts.into_iter().map(Into::into).collect(),
            user: None,
            password: None,
            space: String::new(),
            tls: None,
        }
    }

    /// Logs in.
    ///
    /// Default: no login; a client certificate may be one.
    #[must_use]
    pub fn login(mut self, user: impl Into<String>, password: impl Into<String>) -> EtcdConfig {
        self.user = Some(user.into());
        self.password = Some(password.into());
        self
    }

    /// What all keys begin with: at most 64 letters, digits and `_ . : / -`. A lock's keys are then `SPACE NAME/LEASE`.
    ///
    /// Default: nothing, so that a lock has the same name here as for `etcdctl lock` and for Go's `concurrency.NewMutex`.
    #[must_use]
    pub fn space(mut self, space: impl Into<String>) -> EtcdConfig {
        self.space = space.into();
        self
    }

    /// Talks over TLS. Needs the cargo feature `etcd-tls`.
    ///
    /// Default: plain text. A password is never sent in the clear by mistake: `etcds://` is another scheme.
    #[must_use]
    pub fn tls(mut self, tls: EtcdTls) -> EtcdConfig {
        self.tls = Some(tls);
        self
    }

    /// What an address says; `lease=` and `prefix=`, which are the client's, must have been taken out of it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an address that makes no sense.
    pub fn from_url(mut url: EngineUrl) -> Result<EtcdConfig> {
        let hosts: Vec<String> = url.hosts().iter().map(|host| with_port(host)).collect::<Result<_>>()?;
        if !url.path().trim_matches('/').is_empty() {
            return Err(bad("it has a path").hint("a name space is written etcd://host:2379?space=apps/"));
        }
        let mut config = EtcdConfig::new(hosts).space(url.take("space").unwrap_or_default());
        config.user = url.user().map(str::to_owned);
        config.password = url.password().map(str::to_owned);
        let tls = match url.take("tls").as_deref() {
            None => url.scheme() == "etcds",
            Some("on") => true,
            Some("off") if url.scheme() == "etcd" => false,
            Some(_) => return Err(bad("tls is on or off, and etcds:// is always on")),
        };
        let files = ["ca", "cert", "key", "server_name"].map(|option| url.take(option));
        if tls {
            config.tls = Some(tls_options(files)?);
        } else if files.iter().any(Option::is_some) {
            return Err(bad("it names certificates, but no TLS").hint("write etcds://"));
        }
        url.finish()?;
        Ok(config)
    }

    /// Everything that can be refused before a server is touched.
    pub(super) fn check(&self) -> Result<()> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:/-".contains(&byte);
        if self.space.len() > 64 || !self.space.bytes().all(plain) {
            return Err(bad("a space is at most 64 letters, digits and _ . : / -"));
        }
        if self.hosts.is_empty() {
            return Err(bad("it names no host").hint("write etcd://host:2379"));
        }
        if self.user.is_some() != self.password.is_some() {
            return Err(bad("a login is a user and a password").hint("write etcd://user:password@host:2379"));
        }
        if self.tls.is_some() && cfg!(not(feature = "etcd-tls")) {
            return Err(Error::new(ErrorKind::Unsupported, "url", "this build has no TLS for etcd")
                .hint(crate::drivers::manifest_line("etcd-tls")));
        }
        Ok(())
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "etcds" } else { "etcd" }
    }

    /// As people see it: no secret, no user.
    pub(super) fn address(&self) -> String {
        format!("{}://{}", self.scheme(), self.hosts.join(","))
    }
}

fn tls_options([ca, cert, key, server_name]: [Option<String>; 4]) -> Result<EtcdTls> {
    let identity = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert.into(), key.into())),
        (None, None) => None,
        _ => return Err(bad("a client certificate is cert= and key= together")),
    };
    Ok(EtcdTls { ca: ca.map(PathBuf::from), identity, server_name })
}

fn with_port(host: &str) -> Result<String> {
    let after_address = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    match after_address.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => Ok(host.to_owned()),
        Some(_) => Err(bad("its port is not a number from 1 to 65535")),
        None => Ok(format!("{host}:2379")),
    }
}

fn bad(problem: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "url", problem)
}

impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdConfig")
            .field("address", &self.address())
            .field("space", &self.space)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTls").field("ca", &self.ca).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<EtcdConfig> {
        let config = EtcdConfig::from_url(EngineUrl::parse(text)?)?;
        config.check()?;
        Ok(config)
    }

    #[test]
    fn addresses() {
        let all = config("etcd://me:c4nary@a:1,b,[::1]:7?space=apps/").unwrap();
        assert_eq!(all.hosts, ["a:1", "b:2379", "[::1]:7"]);
        assert_eq!((all.user.as_deref(), all.password.as_deref()), (Some("me"), Some("c4nary")));
        assert_eq!((all.space.as_str(), all.address().as_str()), ("apps/", "etcd://a:1,b:2379,[::1]:7"));
        assert!(!format!("{all:?}").contains("c4nary"));
        assert_eq!(config("etcd://h").unwrap().space, "");
    }

    #[test]
    fn tls_is_asked_for() {
        let url = |text: &str| EtcdConfig::from_url(EngineUrl::parse(text).unwrap());
        let tls = url("etcds://h?ca=/ca&cert=/c&key=/k&server_name=n").unwrap().tls.unwrap();
        assert_eq!(tls.ca, Some("/ca".into()));
        assert_eq!(tls.identity, Some(("/c".into(), "/k".into())));
        assert_eq!(tls.server_name.as_deref(), Some("n"));
        assert!(url("etcd://h?tls=on").unwrap().tls.is_some());
        let built = config("etcds://h");
        assert_eq!(built.is_ok(), cfg!(feature = "etcd-tls"), "{built:?}");
    }

    #[test]
    fn what_is_refused() {
        for text in [
            "etcd://",
            "etcd://h:x",
            "etcd://h/path",
            "etcd://h?speed=fast",
            "etcd://h?space=a b",
            "etcd://h?ca=/x",
            "etcd://me@h",
            "etcds://h?tls=off",
            "etcds://h?cert=/c",
        ] {
            assert_eq!(config(text).unwrap_err().kind(), ErrorKind::Invalid, "{text}");
        }
    }

    #[test]
    fn broken_addresses_show_no_secret() {
        let examples = ["etcd://me:c4nary@a:1,b,[::1]:7?space=apps/", "etcds://me:c4nary@a:1?space="];
        crate::hostile::addresses(&examples, config);
    }
}
