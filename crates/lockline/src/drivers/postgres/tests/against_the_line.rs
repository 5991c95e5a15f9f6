//! The functions against the pure machine: see [`against_the_line`](crate::drivers::against_the_line).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use proptest::test_runner::{Config, TestRunner};

use super::{drop_schema, fresh, included, operator};
use crate::driver::{Driver, DriverInfo, Guarantees, Query, Verb};
use crate::drivers::against_the_line::{Op, Pair, Subject, history};
use crate::drivers::postgres::{Pooler, Postgres, PostgresConfig};
use crate::drivers::testing::Heard;
use crate::line::{Bell, Claim, LineView, Now, Place, Standing, Ticket};
use crate::name::Name;

/// Clients that take turns: what one does rings for claims of another by a notification, and for its own by the answer.
#[derive(Debug)]
struct InTurn {
    clients: Vec<Postgres>,
    turn: AtomicUsize,
    clock: AtomicU64,
}

impl InTurn {
    /// The client whose turn it is, told the time.
    async fn next(&self) -> &Postgres {
        let client = &self.clients[self.turn.fetch_add(1, Ordering::SeqCst) % self.clients.len()];
        let set = format!("SET lockline.clock = {}", self.clock.load(Ordering::SeqCst));
        for connection in client.line().connections() {
            connection.operator(&set).await;
        }
        client
    }
}

impl Driver for InTurn {
    fn info(&self) -> &DriverInfo {
        self.clients[0].info()
    }

    fn guarantees(&self) -> Guarantees {
        self.clients[0].guarantees()
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
    clients: InTurn,
    heard: Arc<Heard>,
}

impl Functions {
    /// Two clients, or one behind a pooler: another one's bells are letters there, which the machine knows nothing of.
    async fn new(config: &PostgresConfig) -> Functions {
        let heard = Arc::new(Heard::default());
        let first = Postgres::connect(config.clone(), heard.clone()).await.unwrap();
        let clock = format!(
            "CREATE OR REPLACE FUNCTION \"{}\".clock_us() RETURNS bigint LANGUAGE sql VOLATILE AS \
             'SELECT current_setting(''lockline.clock'')::bigint'",
            config.schema
        );
        first.line().connections()[0].operator(&clock).await;
        let mut clients = vec![first];
        if config.pooler == Pooler::None {
            clients.push(Postgres::connect(config.clone(), heard.clone()).await.unwrap());
        }
        let clients = InTurn { clients, turn: AtomicUsize::new(0), clock: AtomicU64::new(0) };
        Functions { clients, heard }
    }
}

impl Subject for Functions {
    const ONE_LEDGER: bool = false;

    fn driver(&self) -> &dyn Driver {
        &self.clients
    }

    fn set_clock(&self, now: Now) {
        self.clients.clock.store(now.at.as_micros(), Ordering::SeqCst);
    }

    async fn heard(&self, expected: usize) -> Vec<(Name, Bell)> {
        // A notification reaches a session that is idle; both have something to answer, and so to hear, now.
        for client in &self.clients.clients {
            client.line().connections()[0].operator("").await;
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
    compare(24, Pooler::None);
}

/// The statements are not prepared there, and the session's settings are not ours.
#[test]
fn the_functions_do_what_the_line_does_behind_a_pooler() {
    compare(8, Pooler::Transaction);
}

fn compare(cases: u32, pooler: Pooler) {
    let Some(config) = included() else { return };
    let run = |ops: Vec<Op>| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let config = config.clone().schema(fresh("line")).pooler(pooler);
            let functions = Functions::new(&config).await;
            // Of two clients one tries the short way with every verb, the other where it should do; one alone does both.
            if functions.clients.clients.len() > 1 || ops.len().is_multiple_of(2) {
                functions.clients.clients[0].line().guess();
            }
            let outcome = Pair::new(functions).run(&ops).await;
            drop_schema(&config).await;
            outcome
        })
    };
    let config = Config { cases, max_shrink_iters: 60, failure_persistence: None, ..Config::default() };
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
