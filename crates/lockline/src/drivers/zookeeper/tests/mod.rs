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
#[cfg(feature = "zookeeper-tls")]
mod tls;
mod watches;

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Zookeeper, ZookeeperConfig};
use crate::drivers::against_the_line::Heard;
use crate::line::{Claim, ClaimId, Mode, Place, Primitive, Standing, Ticket, Who};
use crate::name::Name;
use ensemble::Ensemble;

/// Whether this run includes ZooKeeper. If not, says so.
fn included() -> bool {
    let engines = std::env::var("LOCKLINE_TEST_ENGINES").unwrap_or_default();
    let named = engines.split_whitespace().any(|engine| engine.starts_with("zookeeper="));
    if !named {
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        // Written past the test harness, which swallows what a passing test prints.
        let line = format!("{test}: zookeeper is left out (LOCKLINE_TEST_ENGINES does not name it)\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    named
}

fn claim(name: &str, mode: Mode, lease: Duration) -> Claim {
    let who = Who { owner: "te ster".into(), host: "here".into(), pid: std::process::id() };
    Claim {
        name: Name::new(name).unwrap(),
        id: ClaimId::random(),
        mode,
        lease,
        who: Arc::new(who),
        identity: None,
        primitive: Primitive::Mutex,
    }
}

fn place(claim: &Claim, ticket: Option<Ticket>) -> Place {
    Place { name: claim.name.clone(), id: claim.id, ticket, lease: claim.lease, last: false }
}

fn is_in(standing: &Standing) -> bool {
    matches!(standing, Standing::In { .. })
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
