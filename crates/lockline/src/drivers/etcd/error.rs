//! What the server's errors mean for a lock.

use std::error::Error as _;
use std::sync::Arc;

use tonic::{Code, Status};

use crate::error::{Error, ErrorKind};

/// As the caller sees it. `sent` tells that the request may have changed something.
pub(super) fn explain(operation: &'static str, address: &Arc<str>, status: &Status, sent: bool) -> Error {
    let says = |text: &str| status.message().contains(text);
    let (kind, message, hint) = if says("authentication failed") || says("invalid auth token") {
        (ErrorKind::Denied, "the server refused the login", "check the user and the password of the address")
    } else if says("user name is empty") || says("authentication is not enabled") {
        (
            ErrorKind::Denied,
            "the server has logins where the address has none, or the other way round",
            "write etcd://user:password@host:2379, or leave both out",
        )
    } else if status.code() == Code::PermissionDenied || says("permission denied") {
        (
            ErrorKind::Denied,
            "a role forbids a key that locks need",
            "the role needs readwrite on the prefix of the space, see the guide of the etcd driver",
        )
    } else if is_full(status) {
        (
            ErrorKind::Full,
            "the server's database is full",
            "compact and defragment it, then disarm the alarm; holders can still release",
        )
    } else if is_too_old(status) {
        (ErrorKind::Unsupported, "the server does not know what locks need", "use etcd 3.4 or later")
    } else if never_sent(status) {
        (
            ErrorKind::Unavailable,
            "no server can be reached",
            "check that they run and listen at these addresses",
        )
    } else if lost_leader(status) && says("no leader") {
        (ErrorKind::Unavailable, "the cluster has no leader", "a majority of its members must run")
    } else if sent {
        (ErrorKind::Unknown, "the answer got lost", "ask again; what was done ends with the lease")
    } else {
        (ErrorKind::Unavailable, "the server failed", "see the cause")
    };
    Error::new(kind, operation, message).hint(hint).caused_by(cause(status)).at(address)
}

/// The server's own words, and those of the connection below. They name no password.
fn cause(status: &Status) -> String {
    let mut text = format!("{:?}: {}", status.code(), status.message());
    let mut source = status.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// No connection was there to send it on.
pub(super) fn never_sent(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// The connection, or the server at its other end, is of no use now; another member may be.
pub(super) fn lost_leader(status: &Status) -> bool {
    let says = |text: &str| status.message().contains(text);
    status.code() == Code::Unavailable
        || says("no leader")
        || says("transport error")
        || says("server stopped")
        || says("not leader")
}

/// The token of the login has run out, or belongs to roles that have changed.
pub(super) fn old_token(status: &Status) -> bool {
    status.message().contains("invalid auth token")
        || status.message().contains("revision of auth store is old")
}

/// The server's database is full: it takes nothing new.
pub(super) fn is_full(status: &Status) -> bool {
    status.message().contains("database space exceeded")
}

/// There is no such lease: it ran out, or was revoked.
pub(super) fn no_such_lease(status: &Status) -> bool {
    status.message().contains("requested lease not found")
}

fn is_too_old(status: &Status) -> bool {
    status.code() == Code::Unimplemented
}
