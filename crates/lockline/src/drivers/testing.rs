//! What the tests of the drivers share: whether an engine is part of this run, a claim, its place, a board of bells.

#[cfg(any(feature = "redis", feature = "zookeeper", feature = "postgres", feature = "mysql"))]
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::driver::BellBoard;
use crate::line::{Bell, Claim, ClaimId, Mode, Place, Primitive, Standing, Ticket, Who};
use crate::name::Name;

/// Where `engine` is, as `LOCKLINE_TEST_ENGINES` says; if this run does not include it, says so. Rust's harness then calls the test
/// passed: `cargo xtask test` reads the line that is written here and counts the test as ignored.
#[cfg(any(feature = "redis", feature = "zookeeper", feature = "postgres", feature = "mysql"))]
pub(crate) fn address_of(engine: &str) -> Option<String> {
    let engines = std::env::var("LOCKLINE_TEST_ENGINES").unwrap_or_default();
    let named = engines.split_whitespace().filter_map(|pair| pair.split_once('='));
    let url = named.filter(|(name, _)| *name == engine).map(|(_, url)| url.to_owned()).next();
    if url.is_none() {
        left_out(engine);
    }
    url
}

/// Says that this test has no `engine` to run on.
#[cfg(any(feature = "redis", feature = "zookeeper", feature = "postgres", feature = "mysql"))]
pub(crate) fn left_out(engine: &str) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    // Written past the test harness, which swallows what a passing test prints.
    let line = format!("{test}: {engine} is left out (LOCKLINE_TEST_ENGINES does not name it)\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// A claim of this process, by an owner whose name is not one word.
pub(crate) fn claim(name: &str, mode: Mode, lease: Duration) -> Claim {
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

/// The place that a claim has, or may have.
pub(crate) fn place(claim: &Claim, ticket: Option<Ticket>) -> Place {
    Place { name: claim.name.clone(), id: claim.id, ticket, lease: claim.lease, last: false }
}

pub(crate) fn is_in(standing: &Standing) -> bool {
    matches!(standing, Standing::In { .. })
}

/// A board that keeps what was rung.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    bells: Mutex<Vec<(Name, Bell)>>,
    rung: tokio::sync::Notify,
    /// How often somebody, or everybody, was told to look.
    looks: Mutex<usize>,
}

impl Heard {
    pub(crate) fn take(&self) -> Vec<(Name, Bell)> {
        std::mem::take(&mut *self.bells.lock().unwrap())
    }

    /// The next bell, within ten seconds.
    pub(crate) async fn next(&self) -> (Name, Bell) {
        let wait = async {
            loop {
                if let Some(bell) = self.bells.lock().unwrap().pop() {
                    return bell;
                }
                self.rung.notified().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), wait).await.expect("no bell rang")
    }

    #[cfg(any(feature = "redis", feature = "zookeeper", feature = "postgres"))]
    pub(crate) fn count(&self) -> usize {
        self.bells.lock().unwrap().len()
    }

    #[cfg(any(feature = "redis", feature = "postgres"))]
    pub(crate) fn looks(&self) -> usize {
        *self.looks.lock().unwrap()
    }
}

impl BellBoard for Heard {
    fn ring(&self, name: &Name, bell: &Bell) {
        self.bells.lock().unwrap().push((name.clone(), bell.clone()));
        self.rung.notify_one();
    }

    fn acknowledged(&self, _id: ClaimId, _replicas: u32) {}

    fn look_now(&self, _id: ClaimId) {
        *self.looks.lock().unwrap() += 1;
    }

    fn look_at_all(&self) {
        *self.looks.lock().unwrap() += 1;
    }
}
