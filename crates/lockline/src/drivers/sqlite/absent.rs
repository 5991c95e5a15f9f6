//! SQLite where the driver cannot run: the same names, and a sentence in place of locks.
//!
//! On Linux and macOS this is the embedded engine. Here there is no clock that all processes share and that counts sleep, so
//! [`open`](Sqlite::open) always refuses; a program that can use SQLite elsewhere compiles unchanged.

#[path = "address.rs"]
mod address;
#[path = "config.rs"]
#[allow(dead_code)] // What is asked for is not looked at here.
mod config;

pub use config::SqliteConfig;

use crate::driver::{Bells, Driver, DriverInfo, Guarantees, Query, Verb};
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, LineView, Place, Standing, Ticket};
use crate::name::Name;

/// Locks in one SQLite file: there are none on this system.
#[derive(Debug)]
pub enum Sqlite {}

impl Sqlite {
    /// Refuses.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported), always.
    ///
    /// # Cancel safety
    /// Nothing happens.
    #[allow(clippy::unused_async)] // As where it works.
    pub async fn open(_: SqliteConfig, _: Bells) -> Result<Sqlite> {
        Err(Error::new(ErrorKind::Unsupported, "open", "SQLite locks work on Linux and macOS only")
            .hint("use a server engine, such as redis:// or postgres://; within one process, memory:"))
    }
}

impl Driver for Sqlite {
    fn info(&self) -> &DriverInfo {
        match *self {}
    }

    fn guarantees(&self) -> Guarantees {
        match *self {}
    }

    fn join<'a>(&'a self, _: &'a Claim, _: bool) -> Verb<'a, Standing> {
        match *self {}
    }

    fn renew<'a>(&'a self, _: &'a [Place]) -> Verb<'a, Vec<Standing>> {
        match *self {}
    }

    fn leave<'a>(&'a self, _: &'a Place) -> Verb<'a, ()> {
        match *self {}
    }

    fn view<'a>(&'a self, _: &'a Query) -> Verb<'a, Vec<LineView>> {
        match *self {}
    }

    fn evict<'a>(&'a self, _: &'a Name, _: Ticket, _: bool) -> Verb<'a, bool> {
        match *self {}
    }
}
