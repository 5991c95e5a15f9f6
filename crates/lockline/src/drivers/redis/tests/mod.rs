//! The driver against the pure machine, and against a server that is killed, restarted, full or closed to us.
//!
//! They need a `redis-server`, and run if `LOCKLINE_TEST_ENGINES` names `redis`, as `cargo xtask test` does. Each starts a
//! server of its own.

mod against_the_line;
mod faults;
mod refusals;
mod restart;
mod server;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use super::{Redis, RedisConfig, RestartGuard};
use crate::drivers::against_the_line::Heard;
use crate::line::{Claim, ClaimId, Mode, Place, Primitive, Standing, Ticket, Who};
use crate::name::Name;
pub(in crate::drivers) use server::Server;

/// Whether this run includes Redis. If not, says so.
pub(super) fn included() -> bool {
    let engines = std::env::var("LOCKLINE_TEST_ENGINES").unwrap_or_default();
    let named = engines.split_whitespace().any(|engine| engine.starts_with("redis="));
    if !named {
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        // Written past the test harness, which swallows what a passing test prints.
        let line = format!("{test}: redis is left out (LOCKLINE_TEST_ENGINES does not name it)\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    named
}

pub(super) fn claim(name: &str, mode: Mode, lease: Duration) -> Claim {
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

pub(super) fn place(claim: &Claim, ticket: Option<Ticket>) -> Place {
    Place { name: claim.name.clone(), id: claim.id, ticket, lease: claim.lease, last: false }
}

pub(super) fn is_in(standing: &Standing) -> bool {
    matches!(standing, Standing::In { .. })
}

/// A server that was just started is guarded by rule; only the tests of the guard wait for it.
pub(super) async fn open(config: RedisConfig) -> (Redis, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let redis = Redis::connect(config.restart_guard(RestartGuard::Off), heard.clone()).await.unwrap();
    (redis, heard)
}
