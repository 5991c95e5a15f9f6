//! The file against the pure machine: see [`against_the_line`](crate::drivers::against_the_line).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use crate::driver::Driver;
use crate::drivers::against_the_line::{BEGINS, Pair, Subject, history};
use crate::drivers::sqlite::{Sqlite, SqliteConfig};
use crate::drivers::testing::Heard;
use crate::line::{Bell, Now};
use crate::name::Name;
use crate::time::Time;

struct File {
    clock: Arc<(AtomicU64, AtomicU64)>,
    file: Sqlite,
    heard: Arc<Heard>,
}

impl File {
    async fn new(dir: &tempfile::TempDir) -> File {
        let clock = Arc::new((AtomicU64::new(BEGINS.0), AtomicU64::new(BEGINS.1)));
        let reads = clock.clone();
        let config = SqliteConfig::new(dir.path().join("locks.db")).clock(move || Now {
            at: Time::from_micros(reads.0.load(Ordering::SeqCst)),
            ticket_us: reads.1.load(Ordering::SeqCst),
        });
        let heard = Arc::new(Heard::default());
        let file = Sqlite::open(config, heard.clone()).await.unwrap();
        File { clock, file, heard }
    }
}

impl Subject for File {
    const ONE_LEDGER: bool = true;

    fn driver(&self) -> &dyn Driver {
        &self.file
    }

    fn set_clock(&self, now: Now) {
        self.clock.0.store(now.at.as_micros(), Ordering::SeqCst);
        self.clock.1.store(now.ticket_us, Ordering::SeqCst);
    }

    async fn heard(&self, _expected: usize) -> Vec<(Name, Bell)> {
        self.heard.take()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn the_file_does_what_the_line_does(ops in history()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            Pair::new(File::new(&dir).await).run(&ops).await
        })?;
    }
}
