//! The driver against the pure machine, and on an ensemble whose servers are killed, stopped, or closed to us.
//!
//! They need a ZooKeeper, and run if `LOCKLINE_TEST_ENGINES` names `zookeeper`, as `cargo xtask test` does. Each starts
//! servers of its own.

mod against_the_line;
mod ensemble;
mod faults;
mod fence;
mod proxy;
mod refusals;
#[path = "../../../../../lockline-testkit/src/stepped_clock.rs"]
#[allow(unreachable_pub)]
mod stepped_clock;
#[cfg(feature = "zookeeper-tls")]
mod tls;
mod watches;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Zookeeper, ZookeeperConfig};
use crate::drivers::testing::{Heard, address_of, claim, is_in, place};
use ensemble::Ensemble;

/// Whether this run includes ZooKeeper. If not, says so.
fn included() -> bool {
    address_of("zookeeper").is_some()
}

async fn open(config: ZookeeperConfig) -> (Zookeeper, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let zookeeper = Zookeeper::connect(config, heard.clone()).await.unwrap();
    (zookeeper, heard)
}

/// Looks again and again until it is so; tells how long that took.
async fn within(limit: Duration, what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    start.elapsed()
}
