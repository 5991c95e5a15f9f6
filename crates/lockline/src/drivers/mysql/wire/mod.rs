//! A thin client of the MySQL protocol: one session, one statement at a time, with exactly what the driver needs of it.
//!
//! Neither crate that speaks this protocol can check a certificate's chain without its name *and* without trusting every
//! authority of the web (docs/adr/mysql-client.md), and MySQL's own certificates have no names.

mod auth;
mod channel;
mod connection;
mod fields;
mod row;
mod tls;

use std::fmt;
use std::io;

pub(super) use connection::{Connection, Done};
pub(super) use row::Row;

/// A value of a statement.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Bits(u128),
    Bytes(Vec<u8>),
    /// Compared as the column that it is compared with says.
    Text(String),
    Int(i64),
    Null,
}

/// Why a statement, or a login, failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server answered with an error: nothing of the statement was done.
    Server { number: u16, text: String },
    /// The connection cannot be made, or ended in the middle.
    Io(io::Error),
    /// TLS could not be agreed on.
    Tls(String),
    /// The server has no TLS, and the address demands it.
    NoTls,
    /// A login that this client does not know, or must not use here.
    Login(String),
    /// An unexpected reply.
    Protocol(&'static str),
}

impl Failure {
    /// The number of an error of the server.
    pub(super) fn number(&self) -> Option<u16> {
        match self {
            Failure::Server { number, .. } => Some(*number),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Server { number, text } => write!(f, "{number}: {text}"),
            Failure::Io(error) => write!(f, "{error}"),
            Failure::Tls(text) | Failure::Login(text) => f.write_str(text),
            Failure::NoTls => f.write_str("its greeting offers no TLS"),
            Failure::Protocol(text) => write!(f, "unexpected reply from the server: {text}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(error)
    }
}

type Result<T, E = Failure> = std::result::Result<T, E>;
