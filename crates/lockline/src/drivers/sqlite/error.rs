//! What SQLite's errors mean for a lock.

use std::sync::Arc;

use rusqlite::ErrorCode;

use super::identity::Found;
use crate::error::{Error, ErrorKind};

/// A failed transaction.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: rusqlite::Error,
    /// It failed while it was being committed.
    pub(super) at_commit: bool,
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        Failure { error, at_commit: false }
    }
}

impl Failure {
    pub(super) fn is_full(&self) -> bool {
        self.error.sqlite_error_code() == Some(ErrorCode::DiskFull)
    }

    pub(super) fn is_busy(&self) -> bool {
        matches!(self.error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }

    /// As the caller sees it.
    pub(super) fn explain(&self, operation: &'static str, address: &Arc<str>) -> Error {
        let (kind, message, hint) = match self.error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => return full(operation, address),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
                ErrorKind::Unavailable,
                "the file stayed locked by another process",
                "this machine is very busy, or another process was stopped in the middle of a transaction, or holds one open",
            ),
            // Perhaps somebody's only copy of something: nobody is told to remove it.
            Some(ErrorCode::NotADatabase) => (
                ErrorKind::Unsafe,
                "the file is no SQLite database",
                "choose another path for the locks; this file was not changed",
            ),
            Some(ErrorCode::DatabaseCorrupt) => (
                ErrorKind::Unsafe,
                "the file is damaged",
                "stop all users of it, then remove it with its -wal and -shm files: it holds nothing but locks",
            ),
            Some(
                ErrorCode::ReadOnly
                | ErrorCode::PermissionDenied
                | ErrorCode::AuthorizationForStatementDenied,
            ) => (
                ErrorKind::Denied,
                "the file may not be written",
                "give this user the right to write the file, its -wal and -shm files, and its directory",
            ),
            Some(ErrorCode::CannotOpen) => (
                ErrorKind::Unavailable,
                "the file cannot be opened",
                "check that its directory exists and that this user may write to it",
            ),
            // What a commit did before it failed cannot be told.
            _ if self.at_commit => {
                (ErrorKind::Unknown, "the commit failed", "ask again; what was done ends with the lease")
            }
            _ => (ErrorKind::Unavailable, "SQLite failed", "see the cause; the disk may be failing"),
        };
        // Not the error itself: rusqlite's text may contain a whole statement.
        let cause = self.error.sqlite_error().map_or_else(|| self.error.to_string(), |e| e.to_string());
        Error::new(kind, operation, message).hint(hint).caused_by(cause).at(address)
    }
}

/// No room for it.
pub(super) fn full(operation: &'static str, address: &Arc<str>) -> Error {
    Error::new(ErrorKind::Full, operation, "the disk is full")
        .hint("free some space; holders can still renew and release, new claims have to wait")
        .at(address)
}

/// The path leads to another file, or to none, or that cannot be told.
pub(super) fn no_file(operation: &'static str, found: &Found, address: &Arc<str>) -> Error {
    match found {
        Found::Unclear(e) => Error::new(ErrorKind::Unavailable, operation, "the file cannot be reached")
            .hint("check the path and the rights on its directories")
            .caused_by(e.to_string()),
        _ => Error::new(
            ErrorKind::Unsafe,
            operation,
            "the file, or its -wal or -shm file, was removed or replaced while it was in use",
        )
        .hint("restart the processes that use it, and never remove the file while one runs"),
    }
    .at(address)
}

/// The file has got another name since it was opened.
pub(super) fn linked(address: &Arc<str>) -> Error {
    let message = "the file has got another name (a hard link), whose users would not see its locks";
    Error::new(ErrorKind::Unsafe, "join", message)
        .hint("use one path for all, and remove the other link; who holds a lock keeps it")
        .at(address)
}
