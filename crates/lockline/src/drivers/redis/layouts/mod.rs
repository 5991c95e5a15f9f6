//! The locks of other clients on Redis, in their formats: what is Redis' own of them. How they are used is
//! `drivers/foreign`, on one [`server`] here, and on a majority of several in `drivers/redlock/plain`.

mod ear;
mod link;
mod plain;
mod redisson;
mod server;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use super::config::RedisConfig;
use crate::driver::Bells;
use crate::drivers::foreign::{Foreign, Format, Holder, Store, Waiters};
use crate::error::Result;
use ear::Ear;

pub(in crate::drivers) use server::Server;

/// How locks are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Layout {
    /// Lockline's own: a line, with order, tokens and every primitive.
    #[default]
    Line,
    /// A string per lock, as redis-py's `Lock`, node `redlock`, redsync and others keep it. Mutexes only, no order, no
    /// tokens.
    Plain,
    /// A hash per lock, as Redisson's `RLock` keeps it. Mutexes only, no order, no tokens.
    Redisson,
    /// The same with a token per holder, as Redisson's `RFencedLock` keeps it.
    RedissonFenced,
}

/// A layout's scripts, in the order of [`link::Script`].
type Scripts = [&'static str; 5];

/// What is different from one layout to the other. All of it is text: what is sent is the same for all.
trait RedisFormat: Format {
    fn scripts(&self) -> &'static Scripts;
    /// The type of a lock's key, as the server calls it.
    fn stored_as(&self) -> &'static str;
    /// The keys that the scripts want for a lock.
    fn keys(&self, key: &str) -> Vec<String>;
    /// A single command that takes a free lock, if there is one.
    fn take(&self, key: &str, text: &str, lease: Duration) -> Option<Cmd>;
    /// The keys whose releases are announced there.
    fn announced_on<'a>(&self, channel: &'a str) -> Vec<&'a str>;
    /// Who it is that stands on the server; `None` if that is no lock.
    fn holder(&self, text: &str) -> Option<Holder>;
}

/// The format of a layout.
fn format_of(layout: Layout) -> &'static dyn RedisFormat {
    match layout {
        // Lockline's own layout has a driver of its own.
        Layout::Line | Layout::Plain => &plain::Plain,
        Layout::Redisson => &redisson::Redisson { fenced: false },
        Layout::RedissonFenced => &redisson::Redisson { fenced: true },
    }
}

/// Locks on one server, in the layout that the address names.
pub(super) async fn connect(config: &RedisConfig, bells: Bells) -> Result<Foreign> {
    let (format, waiters) = (format_of(config.layout), Arc::new(Waiters::default()));
    let ear = Ear::new(format, &config.space, &waiters, &bells);
    let server = Server::open(config, move |push| ear.hear(&push)).await?;
    Ok(Foreign::new(format, &config.space, Box::new(server), waiters, bells))
}

/// Locks in the plain layout, wherever that store is.
pub(in crate::drivers) fn plain(space: &str, store: Box<dyn Store>, bells: Bells) -> Foreign {
    Foreign::new(&plain::Plain, space, store, Arc::default(), bells)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
