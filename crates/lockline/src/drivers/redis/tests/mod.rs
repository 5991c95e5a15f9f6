//! The driver against the pure machine, and against a server that is killed, restarted, full or closed to us.
//!
//! They need a `redis-server`, and run if `LOCKLINE_TEST_ENGINES` names `redis`, as `cargo xtask test` does. Each starts a
//! server of its own.

mod against_the_line;
mod close_calls;
mod faults;
mod lent;
mod pass;
mod refusals;
mod restart;
mod server;

use std::sync::Arc;

use super::{Redis, RedisConfig, RestartGuard};
use crate::drivers::testing::address_of;
pub(super) use crate::drivers::testing::{Heard, claim, is_in, place};
pub(in crate::drivers) use server::Server;

/// Whether this run includes Redis. If not, says so.
pub(super) fn included() -> bool {
    address_of("redis").is_some()
}

/// A server that was just started is guarded by rule; only the tests of the guard wait for it.
pub(super) async fn open(config: RedisConfig) -> (Redis, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let redis = Redis::connect(config.restart_guard(RestartGuard::Off), heard.clone()).await.unwrap();
    (redis, heard)
}
