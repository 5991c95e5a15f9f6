//! What the `lockline` command does. It is made of groups of processes, their signals and a guardian beside them: where there are
//! none, this crate is empty and the program says so. For locks in a program of your own, use the crate `lockline`.
#![cfg(unix)]

mod built;
mod child;
mod cli;
mod commands;
mod engine;
mod exit;
mod guardian;
mod json;
mod keys;
mod label;
mod members;
mod nested;
mod output;
mod parse;
mod platform;
mod secret;
mod signals;
mod source;
mod table;
mod talk;
mod terminal;
mod usage;
mod waiting;

use std::process::ExitCode;

/// All of the command, from its arguments to its exit code.
#[doc(hidden)]
pub fn main() -> ExitCode {
    match usage::parse(std::env::args_os().collect()) {
        Ok(cli) => commands::dispatch(cli.command),
        Err(code) => code,
    }
}
