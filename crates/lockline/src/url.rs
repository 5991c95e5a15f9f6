//! Engine addresses: `scheme:path`, or `scheme://user:password@host:port,host:port/path`, each with `?key=value`.

use std::fmt;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::drivers::{manifest_line, missing_feature};
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
pub(crate) const SCHEMES: &[&str] = &[
    "memory",
    "sqlite",
    "redis",
    "redis+unix",
    "rediss",
    "redis-sentinel",
    "rediss-sentinel",
    "redis-cluster",
    "rediss-cluster",
    "redlock",
    "mysql",
    "postgres",
    "zookeeper",
    "zookeepers",
    "etcd",
    "etcds",
];

/// Other words for the same engine.
const ALIASES: &[(&str, &str)] = &[
    ("postgresql", "postgres"),
    ("mariadb", "mysql"),
    ("valkey", "redis"),
    ("valkey+unix", "redis+unix"),
    ("valkeys", "rediss"),
    ("valkey-sentinel", "redis-sentinel"),
    ("valkeys-sentinel", "rediss-sentinel"),
    ("valkey-cluster", "redis-cluster"),
    ("valkeys-cluster", "rediss-cluster"),
];

/// The scheme that the drivers know.
pub(crate) fn canonical(scheme: &str) -> String {
    let scheme = scheme.to_ascii_lowercase();
    ALIASES.iter().find(|(other, _)| *other == scheme).map_or(scheme, |(_, known)| (*known).to_owned())
}

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
            scheme: canonical(scheme),
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
        self.hosts = hosts.split(',').filter(|host| !host.is_empty()).map(host_of).collect::<Result<_>>()?;
        self.path = decoded(path)?;
        Ok(())
    }

    /// The scheme, in lower case; of those that mean the same always the same one.
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

    /// Hosts with their ports, as written; a path, where the folder of a Unix socket was written with `%2F`.
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
                Err(bad(format!("{} has no option {key:?}", self.scheme))
                    .hint("every engine has lease= and prefix=; its guide lists the others"))
            }
            Some(_) => Err(bad(format!("{} has no such option as one of these", self.scheme))
                .hint("in a password, ? is written %3F, & is %26, # is %23 and @ is %40")),
            None => Ok(()),
        }
    }

    /// The error for a scheme that no driver here answers to.
    pub(crate) fn unknown_scheme(&self) -> Error {
        if let Some(feature) = missing_feature(&self.scheme) {
            let line = manifest_line(feature);
            return bad(format!("this build has no driver for {:?}", self.scheme))
                .hint(format!("its Cargo.toml needs the line {line}; {}", known_schemes()));
        }
        // What differs in more than half of its letters was not meant.
        let distance = |known: &&&str| strsim::osa_distance(known, &self.scheme);
        let near = |known: &&&str| distance(known) * 2 <= known.len().max(self.scheme.len());
        let all = SCHEMES.iter().chain(ALIASES.iter().map(|(other, _)| other));
        let nearest = all.filter(near).min_by_key(distance);
        let meant = nearest.map(|known| format!("; did you mean {known:?}?")).unwrap_or_default();
        bad(format!("there is no engine {:?}{meant}", self.scheme)).hint(known_schemes())
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

/// A host with its port, as it may be looked up. What cannot be one is refused here, before anybody asks for it by name.
pub(crate) fn host_of(text: &str) -> Result<String> {
    let refused = || {
        bad("one of its hosts is no host").hint(
            "a host is a name such as db-1.internal, 192.0.2.7 or [2001:db8::7], each with :PORT or without",
        )
    };
    if text.contains('%') {
        let path = decoded(text)?;
        let is_path = path.starts_with('/') && !path.contains('%');
        return if is_path { Ok(path) } else { Err(refused()) };
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(refused)?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| refused())?;
            ("", rest)
        }
        None => text.find(':').map_or((text, ""), |colon| text.split_at(colon)),
    };
    let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| !port.contains(':'));
    if is_name && is_port && !host.contains("..") { Ok(text.to_owned()) } else { Err(refused()) }
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
        .hint("it looks like sqlite:/path/to/file or redis://user:password@host:6379/0?lease=10s")
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
        let unknown = |text: &str| EngineUrl::parse(text).unwrap().unknown_scheme().to_string();
        assert!(unknown("redsi://h").contains("did you mean \"redis\""));
        assert!(unknown("postgress://h").contains("did you mean \"postgres\""));
        for far in ["mongodb://h", "frobnicate:", "http://h"] {
            assert!(!unknown(far).contains("did you mean"), "{far}: {}", unknown(far));
        }
    }

    #[test]
    fn what_is_no_host_is_never_looked_up() {
        for scheme in
            ["redis", "rediss", "redis-cluster", "redlock", "postgres", "mysql", "etcd", "zookeeper"]
        {
            for host in ["[half", "host name", "%zz", "a..b", "h:1:2", "[::1]x", "[x]", "h\"", "hö", "a%2Fb"]
            {
                let error = EngineUrl::parse(&format!("{scheme}://u:c4nary@{host}/d")).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Invalid, "{scheme} {host}");
                assert!(error.hint_text().is_some() && !format!("{error:?}").contains("c4nary"), "{error:?}");
            }
        }
        for host in ["h", "h:1", "a_b-c.d.", "192.0.2.7:1", "[::1]", "[::1]:1", ":1"] {
            assert_eq!(EngineUrl::parse(&format!("redis://{host}")).unwrap().hosts(), [host]);
        }
        assert_eq!(EngineUrl::parse("postgres://%2Frun%2Fpg/d").unwrap().hosts(), ["/run/pg"]);
    }

    #[test]
    fn engines_answer_to_the_names_that_people_have() {
        for (written, known) in [
            ("postgresql://h", "postgres"),
            ("MariaDB://h", "mysql"),
            ("valkey://h", "redis"),
            ("valkeys://h", "rediss"),
            ("valkey-cluster://h", "redis-cluster"),
            ("valkeys-sentinel://h/m", "rediss-sentinel"),
        ] {
            assert_eq!(EngineUrl::parse(written).unwrap().scheme(), known, "{written}");
        }
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
