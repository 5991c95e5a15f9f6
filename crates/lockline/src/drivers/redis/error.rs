//! What the server's errors mean for a lock.

use std::sync::Arc;

use redis::{ErrorKind as RedisKind, RedisError};

use super::dial::{PLAIN_TEXT, silent};
use crate::error::{Error, ErrorKind};

/// As the caller sees it. `sent` tells that the command may have reached the server.
pub(super) fn explain(operation: &'static str, address: &Arc<str>, error: &RedisError, sent: bool) -> Error {
    let detail = error.detail().unwrap_or_default();
    let code = code_of(error, detail);
    let (kind, message, hint) = match code {
        "NOAUTH" | "WRONGPASS" => (
            ErrorKind::Denied,
            "the server refused the login",
            "check the user and the password of the address",
        ),
        "NOPERM" => (
            ErrorKind::Denied,
            "the server's access list forbids a command that locks need",
            "the guide of the redis driver and docs/engines/redis.md have the shortest access lists that work",
        ),
        "DENIED" => (
            ErrorKind::Denied,
            "the server is in protected mode and takes nobody from another host",
            "give it a password or an access list, and bind it to an address that is meant to be reached",
        ),
        "OOM" => (
            ErrorKind::Full,
            "the server is out of memory",
            "raise maxmemory; holders can still renew and release, new claims have to wait",
        ),
        "READONLY" => (
            ErrorKind::Unavailable,
            "the server is a read-only replica",
            "name the primary; after a failover the old one may still answer",
        ),
        "LOADING" | "MASTERDOWN" | "BUSY" | "MISCONF" | "NOREPLICAS" | "CLUSTERDOWN" | "TRYAGAIN" => (
            ErrorKind::Unavailable,
            "the server does not take commands now",
            "see the cause; it may be loading its data, or be unable to save it",
        ),
        "MOVED" | "ASK" => (
            ErrorKind::Unavailable,
            "the cluster is moving the lock to another node",
            "try again; for a cluster the address begins with redis-cluster:",
        ),
        "WRONGTYPE" => (
            ErrorKind::Unsafe,
            "a key of the lock's name space belongs to something else",
            "give locks a space= of their own",
        ),
        "database" => (
            ErrorKind::Unsupported,
            "the server has no database of this number",
            "name a smaller one at the end of the address, or raise `databases` in its configuration",
        ),
        "sentinel" => (
            ErrorKind::Unsupported,
            "the server is no Sentinel",
            "redis-sentinel: wants the addresses of the Sentinels, usually at port 26379; for one server write redis:",
        ),
        "NOPROTO" | "unknown" => (
            ErrorKind::Unsupported,
            "the server does not know a command that locks need",
            "use Redis 6.2 or later",
        ),
        _ if error.is_connection_refusal() => (
            ErrorKind::Unavailable,
            "the server cannot be reached",
            "check that it runs and listens at this address",
        ),
        _ if is_plain_text(error) => PLAIN_TEXT,
        _ if is_about_tls(error) => (
            ErrorKind::Denied,
            "the server and we do not accept each other's certificates",
            "see the cause; ca= names who signed the server's, cert= and key= what we show",
        ),
        _ if error.is_timeout() && !sent => {
            let (message, hint) = silent(address);
            (ErrorKind::Unavailable, message, hint)
        }
        _ if error.is_io_error() && !sent => {
            (ErrorKind::Unavailable, "the server cannot be reached", "check the address and the network")
        }
        _ if error.kind() == RedisKind::AuthenticationFailed => (
            ErrorKind::Denied,
            "the server refused the login",
            "check the user and the password of the address",
        ),
        _ if sent => {
            (ErrorKind::Unknown, "the answer got lost", "ask again; what was done ends with the lease")
        }
        _ => (ErrorKind::Unavailable, "the server failed", "see the cause"),
    };
    Error::new(kind, operation, message).hint(hint).caused_by(cause(error)).at(address)
}

/// Whether the other side, or ours, ended the connection because of a certificate.
fn is_about_tls(error: &RedisError) -> bool {
    of_tls(error).is_some()
}

/// Whether what came is no TLS at all.
fn is_plain_text(error: &RedisError) -> bool {
    matches!(of_tls(error), Some(rustls::Error::InvalidMessage(_)))
}

fn of_tls(error: &RedisError) -> Option<&rustls::Error> {
    let cause = std::error::Error::source(error)?;
    // The crate shares causes, and a shared one is not what it contains.
    let cause = match cause.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>() {
        Some(shared) => &**shared,
        None => cause,
    };
    let inside = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    cause.downcast_ref().or_else(|| inside?.downcast_ref())
}

/// The word an error begins with. What a script runs into is told differently by different versions.
fn code_of<'a>(error: &'a RedisError, detail: &'a str) -> &'a str {
    let code = error.code().unwrap_or_default();
    let says = |text: &str| detail.contains(text);
    // The client crate tells it as a refusal of its own, with the server's words in it.
    if says("DB index is out of range") {
        return "database";
    }
    if code != "ERR" {
        return code;
    }
    if says("-OOM ") || says("OOM command not allowed") {
        "OOM"
    } else if says("can't run this command")
        || says("NOPERM")
        // Redis 8 and Valkey.
        || says("ACL failure in script")
        || says("can't access at least one of the keys")
    {
        "NOPERM"
    } else if says("unknown command 'SENTINEL'") {
        "sentinel"
    } else if says("unknown command") {
        "unknown"
    } else {
        code
    }
}

/// The server's own words. They name commands and scripts, never a password.
fn cause(error: &RedisError) -> String {
    error.to_string()
}

/// The server does not have the script, because it was restarted, or told to forget scripts.
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

/// An answer that none of our scripts gives.
pub(in crate::drivers) fn nonsense(operation: &'static str, address: &Arc<str>) -> Error {
    Error::new(ErrorKind::Unknown, operation, "the server's answer makes no sense").at(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_not_accepted_is_no_server_that_is_down() {
        let refused = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let io = std::io::Error::new(std::io::ErrorKind::InvalidData, refused.clone());
        let kind = |error: RedisError| explain("connect", &"redis://h".into(), &error, false).kind();
        assert_eq!(kind(io.into()), ErrorKind::Denied);
        assert_eq!(kind(refused.into()), ErrorKind::Denied);
        assert_eq!(kind(std::io::Error::other("gone").into()), ErrorKind::Unavailable);
    }
}
