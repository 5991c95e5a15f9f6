//! The protocol by simulation, the scripts against the pure node, and quorums whose nodes are killed, paused and wiped.
//!
//! All but the simulation need a `redis-server`, and run if `LOCKLINE_TEST_ENGINES` names `redlock`, as `cargo xtask test`
//! does. Each starts servers of its own.

mod against_the_line;
mod faults;
mod plain;
mod simulation;

use crate::drivers::redis::tests::Server;
use crate::drivers::redis::{RedisConfig, RestartGuard};
use crate::drivers::redlock::RedlockConfig;
use crate::drivers::testing::address_of;

/// Whether this run includes quorums. If not, says so.
fn included() -> bool {
    address_of("redlock").is_some()
}

/// Servers of a test's own.
struct Fleet(Vec<Server>);

impl Fleet {
    fn start(nodes: usize) -> Fleet {
        Fleet((0..nodes).map(|_| Server::start(&[])).collect())
    }

    /// A server that was just started is guarded by rule; only the tests of the guard wait for it.
    fn config(&self) -> RedlockConfig {
        self.config_with(|node| node.restart_guard(RestartGuard::Off))
    }

    fn config_with(&self, options: impl Fn(RedisConfig) -> RedisConfig) -> RedlockConfig {
        RedlockConfig::new(self.0.iter().map(|server| options(server.config())))
    }
}
