//! What the server's errors mean for a lock.

use std::sync::Arc;

use super::wire::Failure;
use crate::drivers::relational::COME_AGAIN;
use crate::error::{Error, ErrorKind};

/// The server took the whole transaction back because of others: the same again may succeed at once.
pub(super) fn is_conflict(error: &Failure) -> bool {
    matches!(error.number(), Some(1213)) || is_locked(error)
}

/// Somebody else has locked a row, which is not waited for.
pub(super) fn is_locked(error: &Failure) -> bool {
    matches!(error.number(), Some(1205 | 3572))
}

/// As the caller sees it. `sent` tells that the statement may have reached the server.
pub(super) fn explain(operation: &'static str, address: &Arc<str>, error: &Failure, sent: bool) -> Error {
    let (kind, message, hint) = match error.number() {
        Some(1045 | 1044 | 1698 | 1130) => (
            ErrorKind::Denied,
            "the server refused the login",
            "check the user, the password and the database of the address",
        ),
        Some(1142 | 1143 | 1370 | 1227 | 1419) => (
            ErrorKind::Denied,
            "this user lacks a right that locks need",
            "the guide of the mysql driver has the shortest grants that work",
        ),
        Some(1049) => {
            (ErrorKind::Unsupported, "the server has no such database", "create it, or name another")
        }
        Some(1290 | 1792 | 1836) => (
            ErrorKind::Unavailable,
            "the server is read-only: a replica, or an old primary after a failover",
            "name the primary",
        ),
        Some(1114 | 1021) => (
            ErrorKind::Full,
            "the server's disk is full",
            "make room; holders keep their leases for as long as the server takes renewals",
        ),
        Some(1305 | 1146 | 1054) => (
            ErrorKind::Unsafe,
            "the tables or procedures are not, or no longer, as Lockline made them",
            "have `lockline schema mysql` run",
        ),
        Some(1213 | 1205 | 3572 | 1317 | 3024 | 1969) => (
            ErrorKind::Unavailable,
            "the server could not do it now",
            "ask again; if it lasts, look for long transactions on the tables of locks",
        ),
        Some(1040 | 1203 | 1226) => (
            ErrorKind::Limit,
            "the server takes no more connections now",
            "raise max_connections, or say connections= in the address",
        ),
        _ if matches!(error, Failure::NoTls) => (
            ErrorKind::Unsupported,
            "the server does not speak TLS, and ssl-mode= demands it",
            "give the server a certificate; in a network that is trusted ssl-mode=disabled does without",
        ),
        _ if matches!(error, Failure::Tls(_)) => (
            ErrorKind::Denied,
            "TLS could not be agreed on",
            "check ssl-mode= and ssl-ca=; a server whose certificate has no name, as those that MySQL makes for itself, wants \
             ssl-mode=verify_ca and its ca.pem",
        ),
        _ if matches!(error, Failure::Login(_)) => (
            ErrorKind::Denied,
            "the server asks for a login that this client does not know",
            "give the user one by caching_sha2_password or mysql_native_password",
        ),
        Some(1043 | 1156 | 1157 | 1158 | 1159 | 1160 | 1161) if !sent => {
            (ErrorKind::Unavailable, "the server cannot be reached", "check the address and the network")
        }
        Some(1251 | 2059 | 3159) if !sent => (
            ErrorKind::Denied,
            "the server lets nobody in this way",
            "if it asks for TLS (require_secure_transport), say ssl-mode= in the address",
        ),
        Some(_) if !sent => (
            ErrorKind::Unavailable,
            "the server refused what locks need at the beginning",
            "see to what the server says",
        ),
        _ if !sent => {
            (ErrorKind::Unavailable, "the server cannot be reached", "check the address and the network")
        }
        // It answered, and took the whole transaction back: nothing was done, and asking again will not help. Not so if it was ending, or
        // failed in the middle of a commit.
        Some(number) if !matches!(number, 1053 | 1105 | 1180 | 1181 | 1927 | 3100 | 3101) => (
            ErrorKind::Unsupported,
            "the server refuses what locks need",
            "see what the server says; the guide of the mysql driver has what it must allow",
        ),
        _ => (ErrorKind::Unknown, "the answer got lost", "ask again; what was done ends with the lease"),
    };
    let explained = Error::new(kind, operation, message).hint(hint).caused_by(error.to_string()).at(address);
    // Somebody will end a session: whoever can wait may come again.
    if kind == ErrorKind::Limit { explained.again_after(COME_AGAIN) } else { explained }
}
