//! What ZooKeeper's errors mean for a lock.

use std::sync::Arc;

use zookeeper_client::Error as ZkError;

use crate::error::{Error, ErrorKind};

/// As the caller sees it. `sent` tells that a request may have reached a server.
pub(super) fn explain(operation: &'static str, address: &Arc<str>, error: &ZkError, sent: bool) -> Error {
    let (kind, message, hint) = match error {
        ZkError::NoAuth => (
            ErrorKind::Denied,
            "the ensemble's access list forbids it",
            "log in as the user whose locks these are, or give them acl=open",
        ),
        ZkError::AuthFailed => (
            ErrorKind::Denied,
            "the ensemble refused the login",
            "check the user and the password of the address",
        ),
        ZkError::InvalidAcl => (
            ErrorKind::Denied,
            "the ensemble does not know who this client is",
            "give the address a user and a password, or acl=open",
        ),
        ZkError::QuotaExceeded => (
            ErrorKind::Full,
            "the quota of the locks' znode is used up",
            "raise it; holders can still renew and release",
        ),
        ZkError::NoChildrenForEphemerals => (
            ErrorKind::Unsafe,
            "the lock's znode belongs to something else, and takes no children",
            "choose another name, or another path for locks",
        ),
        ZkError::Unimplemented => {
            (ErrorKind::Unsupported, "the server is too old for locks", "use ZooKeeper 3.6 or later")
        }
        ZkError::BadArguments(_) | ZkError::MarshallingError => {
            (ErrorKind::Invalid, "the ensemble does not take this", "see the cause")
        }
        ZkError::NoHosts | ZkError::Timeout => (
            ErrorKind::Unavailable,
            "no server of the ensemble can be reached, or none has a quorum",
            "check that they run and listen at these addresses",
        ),
        _ if sent => {
            (ErrorKind::Unknown, "the answer got lost", "ask again; what was done ends with the session")
        }
        _ => (ErrorKind::Unavailable, "the ensemble does not answer", "check the addresses and the network"),
    };
    Error::new(kind, operation, message).hint(hint).caused_by(error.clone()).at(address)
}

/// The session is over: nothing that was asked for on it stands any more, or soon will not.
pub(super) fn is_the_end(error: &ZkError) -> bool {
    matches!(error, ZkError::SessionExpired | ZkError::ClientClosed | ZkError::SessionMoved)
}

/// The connection broke: what was asked for may have been done.
pub(super) fn is_a_gap(error: &ZkError) -> bool {
    matches!(error, ZkError::ConnectionLoss | ZkError::Timeout | ZkError::Custom(_))
}
