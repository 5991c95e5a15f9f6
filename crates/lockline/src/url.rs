//! Engine addresses: `scheme:path`, or `scheme://user:password@host:port,host:port/path`, each with `?key=value`.

use std::fmt;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::error::{Error, ErrorKind, Result};
use crate::primitive::check_lease;

/// A parsed address. Its password never appears in `Debug` or `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct EngineUrl {
    scheme: String,
    user: Option<String>,
    password: Option<String>,
    hosts: Vec<String>,
    path: String,
    query: Vec<(String, String)>,
    /// An `@` stands among the options: a `?` in the password was perhaps not escaped, and what follows it is secret.
    may_be_secret: bool,
}

/// The schemes of the design, for the nearest one to be named when a scheme is misspelt.
const SCHEMES: &[&str] = &[
    "memory",
    "sqlite",
    "redis",
    "redis+unix",
    "rediss",
    "redis-sentinel",
    "redis-cluster",
    "redlock",
    "mysql",
    "postgres",
    "zookeeper",
    "zookeepers",
    "etcd",
    "etcds",
];

impl EngineUrl {
    /// Parses an address.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], without repeating what might be a secret.
    pub fn parse(text: &str) -> Result<EngineUrl> {
        let (scheme, rest) = text.split_once(':').ok_or_else(|| {
            bad("it has no scheme; it looks like sqlite:/path/to/file or redis://host:6379")
                .hint(known_schemes())
        })?;
        if scheme.is_empty() || !scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) {
            return Err(bad("its scheme is not a word").hint(known_schemes()));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = EngineUrl {
            scheme: scheme.to_ascii_lowercase(),
            user: None,
            password: None,
            hosts: Vec::new(),
            path: String::new(),
            query: parse_query(query)?,
            may_be_secret: query.contains('@'),
        };
        match rest.strip_prefix("//") {
            Some(rest) => url.take_authority(rest)?,
            None => url.path = decoded(rest)?,
        }
        Ok(url)
    }

    fn take_authority(&mut self, rest: &str) -> Result<()> {
        let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let (login, hosts) =
            authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        if let Some(login) = login {
            let (user, password) = login.split_once(':').map_or((login, None), |(user, pw)| (user, Some(pw)));
            self.user = Some(decoded(user)?).filter(|user| !user.is_empty());
            self.password = password.map(decoded).transpose()?;
        }
        self.hosts = hosts.split(',').filter(|host| !host.is_empty()).map(str::to_owned).collect();
        self.path = decoded(path)?;
        Ok(())
    }

    /// The scheme, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The user to log in as.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The secret to log in with.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Hosts with their ports, as written.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// An address for each of its hosts, with another scheme and all else the same.
    #[cfg(feature = "redis")]
    pub(crate) fn one_by_one(&self, scheme: &str) -> Vec<EngineUrl> {
        let one = |host: &String| EngineUrl {
            scheme: scheme.to_owned(),
            hosts: vec![host.clone()],
            ..self.clone()
        };
        self.hosts.iter().map(one).collect()
    }

    /// What stands after the hosts, or the whole of an address without hosts.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Takes an option out of the address, so that what nobody took can be refused.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let index = self.query.iter().position(|(known, _)| known == key)?;
        Some(self.query.remove(index).1)
    }

    /// Takes an option that is a lease.
    pub(crate) fn take_lease(&mut self) -> Result<Option<Duration>> {
        let Some(text) = self.take("lease") else { return Ok(None) };
        let lease = humantime::parse_duration(&text)
            .map_err(|_| bad("its lease is not a duration such as 500ms, 10s or 5m"))?;
        check_lease(lease)?;
        Ok(Some(lease))
    }

    /// Refuses options that nobody took: a misspelt one must not be lost in silence.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming the option.
    pub fn finish(&self) -> Result<()> {
        match self.query.first() {
            Some((key, _)) if !self.may_be_secret && is_word(key) => {
                Err(bad(format!("{} has no option {key:?}", self.scheme)))
            }
            Some(_) => Err(bad(format!("{} has no such option as one of these", self.scheme))
                .hint("in a password, ? is written %3F, & is %26, # is %23 and @ is %40")),
            None => Ok(()),
        }
    }

    /// The error for a scheme that no driver here answers to.
    pub(crate) fn unknown_scheme(&self) -> Error {
        if SCHEMES.contains(&self.scheme.as_str()) {
            return bad(format!("this build has no driver for {:?}", self.scheme)).hint(known_schemes());
        }
        let nearest =
            SCHEMES.iter().min_by_key(|known| strsim::levenshtein(known, &self.scheme)).unwrap_or(&"sqlite");
        bad(format!("there is no engine {:?}; did you mean {nearest:?}?", self.scheme)).hint(known_schemes())
    }
}

fn known_schemes() -> String {
    let mut built = vec!["memory:"];
    if cfg!(feature = "sqlite") {
        built.push("sqlite:/path/to/file");
    }
    if cfg!(feature = "redis") {
        built.push("redis://host:6379");
        built.push("redlock://host:6379,host:6379,host:6379");
    }
    if cfg!(feature = "zookeeper") {
        built.push("zookeeper://host:2181,host:2181/path");
    }
    if cfg!(feature = "etcd") {
        built.push("etcd://host:2379");
    }
    if cfg!(feature = "mysql") {
        built.push("mysql://user@host/database");
    }
    if cfg!(feature = "postgres") {
        built.push("postgres://user@host/database");
    }
    format!("this build knows {}", built.join(" and "))
}

fn parse_query(query: &str) -> Result<Vec<(String, String)>> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (key, value) = (decoded(key)?, decoded(value)?);
        if pairs.iter().any(|(known, _)| *known == key) {
            let shown = is_word(&key) && !query.contains('@');
            return Err(bad(if shown {
                format!("it gives the option {key:?} twice")
            } else {
                "it gives an option twice".to_owned()
            }));
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// What the name of an option looks like. Anything else is perhaps part of a secret, and is not repeated.
fn is_word(key: &str) -> bool {
    key.len() <= 32 && key.bytes().all(|byte| byte.is_ascii_lowercase() || b"_-".contains(&byte))
}

fn decoded(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| bad("it is not UTF-8 once its % escapes are decoded"))?;
    if decoded.contains('\0') {
        return Err(bad("it contains a NUL character"));
    }
    Ok(decoded.into_owned())
}

/// A bad address is never repeated in the message: it may contain a password, perhaps in the wrong place.
fn bad(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, "url", format!("not an engine's address: {}", problem.into()))
}

impl fmt::Display for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme)?;
        if !self.hosts.is_empty() {
            write!(f, "//{}", self.hosts.join(","))?;
        }
        f.write_str(&self.path)
    }
}

impl fmt::Debug for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_addresses_apart() {
        let mut url = EngineUrl::parse("redis://me:s%40cret@a:1,b:2/0?lease=5s&prefix=x%2F").unwrap();
        assert_eq!((url.scheme(), url.user(), url.password()), ("redis", Some("me"), Some("s@cret")));
        assert_eq!((url.hosts(), url.path()), (&["a:1".to_owned(), "b:2".to_owned()][..], "/0"));
        assert_eq!(url.take_lease().unwrap(), Some(Duration::from_secs(5)));
        assert_eq!(url.take("prefix").as_deref(), Some("x/"));
        assert!(url.finish().is_ok());
        let url = EngineUrl::parse("sqlite:/tmp/a%20b.db").unwrap();
        assert_eq!(url.path(), "/tmp/a b.db");
        assert_eq!(EngineUrl::parse("sqlite:///tmp/x").unwrap().path(), "/tmp/x");
    }

    #[test]
    fn says_what_is_wrong_and_never_shows_a_secret() {
        let canary = "c4nary";
        for text in [
            "c4nary",
            ":c4nary",
            "red is://u:c4nary@h",
            "redis://u:c4nary@h?a=1&a=2",
            "redis://u:%ffc4nary@h",
            "redis://u:c4nary@h?lease=never",
            "redis://u:p?c4nary@h",
            "redis://u:p?c4nary=1&x@h",
            "redis://u:p?c4nary=1&c4nary=2@h",
            "redis://u:p?lease=c4nary@h",
        ] {
            let error = EngineUrl::parse(text)
                .and_then(|mut url| url.take_lease().and_then(|_| url.finish()))
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            assert!(!format!("{error} {error:?}").contains(canary), "{text}");
        }
        let url = EngineUrl::parse("redis://u:c4nary@h/0").unwrap();
        assert!(!format!("{url} {url:?} {:?}", url.unknown_scheme()).contains(canary));
        assert!(EngineUrl::parse("redsi://h").unwrap().unknown_scheme().to_string().contains("\"redis\""));
    }

    #[test]
    fn broken_addresses_are_refused_or_understood() {
        let examples = [
            "redis://me:c4nary@a:1,b:2/0?lease=5s&prefix=x%2F",
            "sqlite:/tmp/a%20b.db?lease=1m",
            "memory:name",
            "etcds://[::1]:2379?space=apps/",
        ];
        crate::hostile::texts(&examples, |text| {
            let Ok(mut url) = EngineUrl::parse(text) else { return };
            let nul = |text: &str| text.contains('\0');
            assert!(!nul(url.path()) && !url.user().is_some_and(nul) && !url.password().is_some_and(nul));
            if let Ok(Some(lease)) = url.take_lease() {
                assert!(check_lease(lease).is_ok());
            }
            let _ = (url.finish(), url.unknown_scheme().to_string());
        });
    }
}
