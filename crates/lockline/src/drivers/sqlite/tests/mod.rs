//! The driver against the pure machine, against the file system's faults, and against other processes.

mod against_the_line;
mod boots;
mod files;
mod full_disk;
mod late;
mod owners;
mod paths;
mod processes;

use std::sync::Arc;

pub(super) use crate::drivers::testing::{Heard, claim, is_in, place};

pub(super) async fn open(path: impl AsRef<std::path::Path>) -> (super::Sqlite, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let file = super::Sqlite::open(super::SqliteConfig::new(path.as_ref()), heard.clone()).await.unwrap();
    (file, heard)
}
