//! The procedures against the pure machine: see [`against_the_line`](crate::drivers::against_the_line). One process, so that
//! every bell is in an answer; what other processes hear is tested in `faults`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::test_runner::{Config, TestRunner};

use super::included;
use crate::driver::Driver;
use crate::drivers::against_the_line::{Op, Pair, Subject, history};
use crate::drivers::mysql::{Mysql, MysqlConfig};
use crate::drivers::testing::Heard;
use crate::line::{Bell, Now};
use crate::name::Name;

struct Procedures {
    clock: Arc<AtomicU64>,
    mysql: Mysql,
    heard: Arc<Heard>,
}

impl Procedures {
    async fn new(mut config: MysqlConfig) -> Procedures {
        let clock = Arc::new(AtomicU64::new(0));
        config.clock = Some(clock.clone());
        let heard = Arc::new(Heard::default());
        // No session waits for another process: there is none.
        let mysql = Mysql::connect(config, heard.clone()).await.unwrap();
        Procedures { clock, mysql, heard }
    }
}

impl Subject for Procedures {
    const ONE_LEDGER: bool = false;
    const RENEWS_BY_TICKET: bool = true;

    fn driver(&self) -> &dyn Driver {
        &self.mysql
    }

    fn set_clock(&self, now: Now) {
        self.clock.store(now.at.as_micros(), Ordering::SeqCst);
    }

    fn waits_for_leave(&self, name: &Name) -> bool {
        self.mysql.line().would_go_along(name)
    }

    async fn heard(&self, _: usize) -> Vec<(Name, Bell)> {
        self.heard.take()
    }
}

#[test]
fn the_procedures_do_what_the_line_does() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = |ops: Vec<Op>| {
        runtime.block_on(async {
            let Some(database) = included().await else { return Ok(()) };
            let procedures = Procedures::new(database.config.clone()).await;
            // Half of the histories try the short way with every verb, the others where it should do.
            if ops.len().is_multiple_of(2) {
                procedures.mysql.line().guess();
            }
            let outcome = Pair::new(procedures).run(&ops).await;
            database.done().await;
            outcome
        })
    };
    let config = Config { cases: 16, max_shrink_iters: 60, failure_persistence: None, ..Config::default() };
    TestRunner::new(config).run(&history(), run).unwrap_or_else(|e| panic!("{e}"));
}
