//! How a process of an engine is started again.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde_json::{Value, json};

/// How a process of an engine was started, so that who kills it can start it again.
#[derive(Debug)]
pub(super) struct Launch {
    /// What it is: `redis`, `sentinel`, `postgres`.
    role: &'static str,
    /// Where it listens for clients.
    address: String,
    words: Vec<String>,
    /// Where its data is.
    folder: PathBuf,
    /// Where it writes what it says.
    log: PathBuf,
}

impl Launch {
    pub(super) fn of(role: &'static str, port: u16, command: &Command, folder: &Path, log: &Path) -> Launch {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        Launch {
            role,
            address: format!("127.0.0.1:{port}"),
            words: words.map(|word| word.to_string_lossy().into_owned()).collect(),
            folder: folder.to_owned(),
            log: log.to_owned(),
        }
    }

    /// As the torturer reads it.
    pub(super) fn json(&self, process: &Child) -> Value {
        let Launch { role, address, words, folder, log } = self;
        json!({
            "pid": process.id(), "role": role, "address": address, "words": words, "folder": folder, "log": log,
        })
    }
}
