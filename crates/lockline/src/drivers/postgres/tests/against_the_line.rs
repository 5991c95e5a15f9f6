//! The functions against the pure machine: see [`against_the_line`](crate::drivers::against_the_line).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use proptest::test_runner::{Config, TestRunner};

use super::{drop_schema, fresh, included, operator};
use crate::driver::{Driver, DriverInfo, Query, Verb};
use crate::drivers::against_the_line::{Op, Pair, Subject, history};
use crate::drivers::postgres::{Postgres, PostgresConfig};
use crate::drivers::testing::Heard;
use crate::line::{Bell, Claim, LineView, Now, Place, Standing, Ticket};
use crate::name::Name;

/// Two clients that take turns: what one does rings for claims of the other by a notification, and for its own by the
/// answer.
#[derive(Debug)]
struct Two {
    clients: [Postgres; 2],
    turn: AtomicUsize,
    clock: AtomicU64,
}

impl Two {
    /// The client whose turn it is, told the time.
    async fn next(&self) -> &Postgres {
        let client = &self.clients[self.turn.fetch_add(1, Ordering::SeqCst) % 2];
        let set = format!("SET lockline.clock = {}", self.clock.load(Ordering::SeqCst));
        client.verbs.first_connection().operator(&set).await;
        client
    }
}

impl Driver for Two {
    fn info(&self) -> &DriverInfo {
        self.clients[0].info()
    }

    fn join<'a>(&'a self, claim: &'a Claim, wait: bool) -> Verb<'a, Standing> {
        Box::pin(async move { self.next().await.join(claim, wait).await })
    }

    fn renew<'a>(&'a self, places: &'a [Place]) -> Verb<'a, Vec<Standing>> {
        Box::pin(async move { self.next().await.renew(places).await })
    }

    fn leave<'a>(&'a self, place: &'a Place) -> Verb<'a, ()> {
        Box::pin(async move { self.next().await.leave(place).await })
    }

    fn view<'a>(&'a self, query: &'a Query) -> Verb<'a, Vec<LineView>> {
        Box::pin(async move { self.next().await.view(query).await })
    }

    fn evict<'a>(&'a self, name: &'a Name, ticket: Ticket, at_once: bool) -> Verb<'a, bool> {
        Box::pin(async move { self.next().await.evict(name, ticket, at_once).await })
    }
}

struct Functions {
    two: Two,
    heard: Arc<Heard>,
}

impl Functions {
    async fn new(config: &PostgresConfig) -> Functions {
        let heard = Arc::new(Heard::default());
        let first = Postgres::connect(config.clone(), heard.clone()).await.unwrap();
        let clock = format!(
            "CREATE OR REPLACE FUNCTION \"{}\".clock_us() RETURNS bigint LANGUAGE sql VOLATILE AS \
             'SELECT current_setting(''lockline.clock'')::bigint'",
            config.schema
        );
        first.verbs.first_connection().operator(&clock).await;
        let second = Postgres::connect(config.clone(), heard.clone()).await.unwrap();
        // One tries the short way with every verb, the other where it should do.
        second.verbs.guess();
        Functions {
            two: Two { clients: [first, second], turn: AtomicUsize::new(0), clock: AtomicU64::new(0) },
            heard,
        }
    }
}

impl Subject for Functions {
    const ONE_LEDGER: bool = false;

    fn driver(&self) -> &dyn Driver {
        &self.two
    }

    fn set_clock(&self, now: Now) {
        self.two.clock.store(now.at.as_micros(), Ordering::SeqCst);
    }

    async fn heard(&self, expected: usize) -> Vec<(Name, Bell)> {
        // A notification reaches a session that is idle; both have something to answer, and so to hear, now.
        for client in &self.two.clients {
            client.verbs.first_connection().operator("").await;
        }
        let start = Instant::now();
        while self.heard.count() < expected && start.elapsed() < Duration::from_millis(500) {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.heard.take()
    }
}

#[test]
fn the_functions_do_what_the_line_does() {
    let Some(config) = included() else { return };
    let run = |ops: Vec<Op>| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let config = config.clone().schema(fresh("line"));
            let outcome = Pair::new(Functions::new(&config).await).run(&ops).await;
            drop_schema(&config).await;
            outcome
        })
    };
    let config = Config { cases: 24, max_shrink_iters: 60, failure_persistence: None, ..Config::default() };
    TestRunner::new(config).run(&history(), run).unwrap_or_else(|e| panic!("{e}"));
}

/// Names that nobody has used for days take their rows along.
#[tokio::test]
async fn idle_counters_go() {
    let Some(config) = included() else { return };
    let (postgres, _) = super::open(config.clone()).await;
    let lease = Duration::from_secs(10);
    let join = async |name: &str| {
        let claim = super::claim(name, crate::line::Mode::Exclusive, lease);
        postgres.join(&claim, true).await.unwrap();
        postgres.leave(&super::place(&claim, None)).await.unwrap();
    };
    join("a").await;
    join("b").await;
    let operator = operator(&config).await;
    let age = format!("UPDATE \"{}\".lines SET day = day - 2 WHERE name = 'a'", config.schema);
    operator.batch_execute(&age).await.unwrap();
    join("c").await;
    let left = format!("SELECT string_agg(name, '' ORDER BY name) FROM \"{}\".lines", config.schema);
    let left: String = operator.query_one(&left, &[]).await.unwrap().get(0);
    assert_eq!(left, "bc");
    drop_schema(&config).await;
}
