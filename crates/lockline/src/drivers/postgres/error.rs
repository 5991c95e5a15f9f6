//! What the server's errors mean for a lock.

use std::error::Error as _;
use std::sync::Arc;

use tokio_postgres::Error as PgError;

use crate::drivers::relational::COME_AGAIN;
use crate::error::{Error, ErrorKind};

/// What is to be said of a server that takes no writes: kind, message and hint.
const READ_ONLY: (ErrorKind, &str, &str) = (
    ErrorKind::Unavailable,
    "the server is read-only: a standby, or an old primary after a failover",
    "name the primary, or all servers: postgres://user@a,b/database",
);

pub(super) fn read_only(address: &Arc<str>) -> Error {
    let (kind, message, hint) = READ_ONLY;
    Error::new(kind, "connect", message).hint(hint).at(address)
}

/// As the caller sees it. `sent` tells that the statement may have reached the server.
pub(super) fn explain(operation: &'static str, address: &Arc<str>, error: &PgError, sent: bool) -> Error {
    let code = error.code().map_or("", |code| code.code());
    let (kind, message, hint) = match code {
        "28P01" | "28000" => (
            ErrorKind::Denied,
            "the server refused the login",
            "check the user and the password of the address, and the server's pg_hba.conf",
        ),
        "42501" => (
            ErrorKind::Denied,
            "this role lacks a right that locks need",
            "the guide of the postgres driver has the shortest grants that work",
        ),
        "3D000" => (ErrorKind::Unsupported, "the server has no such database", "create it, or name another"),
        "25006" => READ_ONLY,
        "53100" => (
            ErrorKind::Full,
            "the server's disk is full",
            "make room; holders keep their leases for as long as the server takes renewals",
        ),
        "42P01" | "42883" | "3F000" | "42703" => (
            ErrorKind::Unsafe,
            "the schema is not, or no longer, as Lockline made it",
            "have `lockline schema postgres` run, or name another schema=",
        ),
        "25000" => (
            ErrorKind::Unsafe,
            "the server does not give locks the isolation level that they need",
            "set default_transaction_isolation to 'read committed' for this role",
        ),
        "08P01" if !sent && error.as_db_error().is_some_and(|said| refuses_settings(said.message())) => (
            ErrorKind::Unsupported,
            "what answers is a pooler that refuses this client's settings",
            "say pooler=transaction in the address",
        ),
        // The server took the whole transaction back.
        "40001" | "40P01" | "55P03" | "57014" | "53200" => (
            ErrorKind::Unavailable,
            "the server could not do it now",
            "ask again; if it lasts, look for long transactions on the tables of locks",
        ),
        "53300" => (
            ErrorKind::Limit,
            "the server takes no more connections now",
            "raise max_connections, or use a pooler and pooler=transaction; each waiting process has one",
        ),
        _ if !sent && has_no_tls(error) => (
            ErrorKind::Unsupported,
            "the server does not speak TLS, and sslmode= demands it",
            "turn on ssl in postgresql.conf; in a network that is trusted sslmode=disable does without",
        ),
        _ if !sent && is_about_certificates(error) => (
            ErrorKind::Denied,
            "the server's certificate is not accepted",
            "see the cause; sslrootcert= names who signed it",
        ),
        "57P03" => (
            ErrorKind::Unavailable,
            "the server is starting, stopping or recovering",
            "ask again; it takes no connections until it is done",
        ),
        _ if !sent => {
            (ErrorKind::Unavailable, "the server cannot be reached", "check the address and the network")
        }
        "" | "57P01" | "57P02" | "08006" | "08003" | "08P01" => {
            (ErrorKind::Unknown, "the answer got lost", "ask again; what was done ends with the lease")
        }
        _ => (ErrorKind::Unknown, "the server failed", "see the cause"),
    };
    let error = Error::new(kind, operation, message).hint(hint).caused_by(cause(error)).at(address);
    // Somebody will end a session: whoever can wait may come again.
    if code == "53300" { error.again_after(COME_AGAIN) } else { error }
}

/// The crate has no other sign of it.
fn has_no_tls(error: &PgError) -> bool {
    error.source().is_some_and(|source| source.to_string().contains("server does not support TLS"))
}

fn is_about_certificates(error: &PgError) -> bool {
    let mut cause = error.source();
    while let Some(inner) = cause {
        let io = inner.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if inner.is::<rustls::Error>() || io.is_some_and(|io| io.is::<rustls::Error>()) {
            return true;
        }
        cause = inner.source();
    }
    false
}

/// PgBouncer has one code for everything of its own: only this of it does not pass. That its server is away, or has just
/// been (`server_login_retry`), does.
fn refuses_settings(message: &str) -> bool {
    message.contains("startup parameter")
}

/// The server's own words. They name tables and settings, never a password.
fn cause(error: &PgError) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(server), _) => format!("{} ({})", server.message(), server.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::refuses_settings;

    #[test]
    fn a_pooler_whose_server_is_away_refuses_nobody() {
        assert!(refuses_settings("unsupported startup parameter: synchronous_commit"));
        assert!(!refuses_settings("server login has been failing, try again later (server_login_retry)"));
        assert!(!refuses_settings("pgbouncer cannot connect to server"));
    }
}
