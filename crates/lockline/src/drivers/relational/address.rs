//! What the addresses of SQL servers have in common.

use std::fmt;

use crate::error::{Error, ErrorKind, Result};
use crate::url::EngineUrl;

/// Who logs in, and where to. Shows no password.
#[derive(Clone, Default, PartialEq, Eq)]
pub(in crate::drivers) struct Login {
    pub(in crate::drivers) user: String,
    pub(in crate::drivers) password: Option<String>,
    pub(in crate::drivers) database: String,
}

impl Login {
    /// What an address says.
    pub(in crate::drivers) fn of(url: &EngineUrl) -> Result<Login> {
        let user = url.user().ok_or_else(|| bad(url.scheme(), "it names no user"))?.to_owned();
        let database = url.path().trim_matches('/').to_owned();
        if database.is_empty() {
            return Err(bad(url.scheme(), "it names no database"));
        }
        Ok(Login { user, password: url.password().map(str::to_owned), database })
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("database", &self.database).finish_non_exhaustive()
    }
}

fn bad(scheme: &str, problem: &str) -> Error {
    Error::new(ErrorKind::Invalid, "url", problem.to_owned())
        .hint(format!("write {scheme}://user:password@host/database"))
}

/// `host`, `host:port` or `[v6]:port`. What cannot be a host is refused here, before anybody looks it up.
pub(in crate::drivers) fn host_and_port(text: &str, usual: u16) -> Result<(String, u16)> {
    let refuse = |problem: &'static str| {
        let hint = "a host is a name, an IPv4 address, or an IPv6 address in brackets";
        Err(Error::new(ErrorKind::Invalid, "url", problem).hint(hint))
    };
    let (host, port, is_v6) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, "")) => (host, None, true),
            Some((host, rest)) if rest.starts_with(':') => (host, Some(&rest[1..]), true),
            _ => return refuse("invalid host in the address"),
        },
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port), false),
            None => (text, None, false),
        },
    };
    let is_host = if is_v6 {
        // With or without a zone.
        host.split('%').next().is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok())
    } else {
        host.len() <= 253 && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    if !is_host {
        return refuse("invalid host in the address");
    }
    let port = match port.map_or(Ok(usual), str::parse) {
        Ok(port) if port != 0 => port,
        _ => return refuse("its port is not a number from 1 to 65535"),
    };
    Ok((if host.is_empty() { "127.0.0.1" } else { host }.to_owned(), port))
}

/// Says so if a password is about to go to another host in the clear.
pub(in crate::drivers) fn warn_of_clear_password(
    address: &str,
    hosts: &[&str],
    login: &Login,
    instead: &str,
) {
    let local = |host: &&str| matches!(*host, "localhost" | "127.0.0.1" | "::1") || host.starts_with('/');
    if login.password.is_some() && !hosts.iter().all(local) {
        tracing::warn!(engine = %address, "the password goes to another host without TLS: say {instead}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        assert_eq!(host_and_port("h", 7).unwrap(), ("h".to_owned(), 7));
        assert_eq!(host_and_port("h:8", 7).unwrap(), ("h".to_owned(), 8));
        assert_eq!(host_and_port("[::1]:8", 7).unwrap(), ("::1".to_owned(), 8));
        assert_eq!(host_and_port("[::1]", 7).unwrap(), ("::1".to_owned(), 7));
        assert_eq!(host_and_port("my_db-1.example.:8", 7).unwrap(), ("my_db-1.example.".to_owned(), 8));
        for bad in
            ["h:x", "h:0", "h:", "[half", "[::1", "[::1]8", "[name]", "two words", "%zz", "a/b", "ü", "::1"]
        {
            assert_eq!(host_and_port(bad, 7).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }

    #[test]
    fn a_login_needs_a_user_and_a_database_and_shows_no_secret() {
        let login = |text: &str| Login::of(&EngineUrl::parse(text).unwrap());
        assert!(login("postgres://h/db").is_err());
        assert!(login("postgres://me@h").is_err());
        let found = login("postgres://me:c4nary@h/db").unwrap();
        assert_eq!((found.user.as_str(), found.password.as_deref()), ("me", Some("c4nary")));
        assert!(!format!("{found:?}").contains("c4nary"));
    }
}
