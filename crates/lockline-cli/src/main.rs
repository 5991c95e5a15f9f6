//! The `lockline` command: run a command under a lock, and see who holds what.

mod child;
mod cli;
mod commands;
mod engine;
mod exit;
mod guardian;
mod json;
mod members;
mod nested;
mod output;
mod parse;
mod secret;
mod signals;
mod table;
mod talk;
mod terminal;
mod usage;
mod waiting;

use std::process::ExitCode;

fn main() -> ExitCode {
    match usage::parse(std::env::args_os().collect()) {
        Ok(cli) => commands::dispatch(cli.command),
        Err(code) => code,
    }
}
