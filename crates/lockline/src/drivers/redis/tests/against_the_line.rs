//! The scripts against the pure machine: see [`against_the_line`](crate::drivers::against_the_line).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proptest::test_runner::{Config, TestRunner};

use super::{Server, included};
use crate::driver::Driver;
use crate::drivers::against_the_line::{BEGINS, Op, Pair, Subject, history};
use crate::drivers::redis::{Redis, RedisConfig, RestartGuard};
use crate::drivers::testing::Heard;
use crate::line::{Bell, Claim, Now};
use crate::name::Name;

struct Scripts {
    clock: Arc<AtomicU64>,
    redis: Redis,
    heard: Arc<Heard>,
    /// Every join that comes with a leave waits for it: whatever comes of it must be what the line does.
    always_along: bool,
}

impl Scripts {
    async fn borrowing(config: RedisConfig) -> Scripts {
        let scripts = Scripts::new(config).await;
        scripts.redis.line().always_borrow();
        scripts
    }

    async fn new(mut config: RedisConfig) -> Scripts {
        let clock = Arc::new(AtomicU64::new(0));
        config.clock = Some(clock.clone());
        let heard = Arc::new(Heard::default());
        let redis = Redis::connect(config.restart_guard(RestartGuard::Off), heard.clone()).await.unwrap();
        Scripts { clock, redis, heard, always_along: false }
    }
}

impl Subject for Scripts {
    const ONE_LEDGER: bool = false;

    fn driver(&self) -> &dyn Driver {
        &self.redis
    }

    fn set_clock(&self, now: Now) {
        self.clock.store(now.at.as_micros(), Ordering::SeqCst);
    }

    fn waits_for_leave(&self, name: &Name) -> bool {
        if self.always_along {
            self.redis.line().expect_leave(name);
        }
        self.redis.line().would_go_along(name)
    }

    async fn first_ticket(&self, claim: &Claim, now: u64) -> u64 {
        let line = self.redis.line();
        if let Some(ticket) = line.next_lent_ticket(claim) {
            return ticket;
        }
        let key = line.key(claim.name.as_str());
        // A busy line's root may be ahead of its last ticket.
        for cmd in [redis::Cmd::hget(&key, "z"), redis::Cmd::get(key + ":c")] {
            if let redis::Value::BulkString(text) = line.plain("get", &cmd).await.unwrap() {
                let text = String::from_utf8(text).unwrap();
                let last = text.trim_start_matches(|c: char| !c.is_ascii_digit()).split(' ').next().unwrap();
                return now.max(last.parse::<u64>().unwrap() + 1);
            }
        }
        now
    }

    async fn heard(&self, expected: usize) -> Vec<(Name, Bell)> {
        // What was published to us before this is answered came before the answer.
        self.redis.line().plain("ping", &redis::cmd("PING")).await.unwrap();
        let start = Instant::now();
        while self.heard.count() < expected && start.elapsed() < Duration::from_millis(20) {
            tokio::task::yield_now().await;
        }
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.heard.take()
    }
}

fn compare(cases: u32, guard: Option<Duration>, borrowing: bool) {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let spaces = AtomicU64::new(0);
    let run = |ops: Vec<Op>| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let space = format!("space-{}", spaces.fetch_add(1, Ordering::SeqCst));
            let mut config = server.config().space(space);
            if let Some(guard) = guard {
                let length = u64::try_from(guard.as_micros()).unwrap();
                config.guard = Some((BEGINS.0 + length, length));
            }
            let mut scripts =
                if borrowing { Scripts::borrowing(config).await } else { Scripts::new(config).await };
            scripts.always_along = ops.len().is_multiple_of(2);
            match guard {
                None => Pair::new(scripts).run(&ops).await,
                Some(guard) => Pair::restarted(scripts, guard).run(&ops).await,
            }
        })
    };
    let config = Config { cases, max_shrink_iters: 400, failure_persistence: None, ..Config::default() };
    TestRunner::new(config).run(&history(), run).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn the_scripts_do_what_the_line_does() {
    compare(64, None, false);
}

#[test]
fn the_restart_guard_does_what_the_line_does() {
    compare(24, Some(Duration::from_secs(20)), false);
}

#[test]
fn lent_lines_do_what_the_line_does() {
    compare(48, None, true);
    compare(16, Some(Duration::from_secs(20)), true);
}
