//! Torture: real processes that use the library on a real engine, while a seeded conductor kills, stops, cancels and
//! evicts. Every process writes down what it believed and when; the history is checked afterwards.
//!
//! ```sh
//! cargo xtask torture sqlite --seconds 30
//! ```

mod check;
mod client;
mod conductor;
mod document;
mod history;
mod proxy;
mod report;
mod site;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "lockline-torture", about = "Processes, faults, histories and checkers")]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    /// The engine: sqlite, or one that --url leads to.
    engine: Option<String>,
    /// Where its servers are; `cargo xtask torture` starts them.
    #[arg(long)]
    url: Option<String>,
    /// The processes of the servers, which may be stopped for a while.
    #[arg(long = "server", value_name = "PID")]
    servers: Vec<i32>,
    /// How long faults are injected.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Makes the conductor repeat its choices; the processes' own timing is real.
    #[arg(long)]
    seed: Option<u64>,
    /// How many client processes run at once.
    #[arg(long, default_value_t = 6)]
    clients: usize,
    /// End with one JSON object.
    #[arg(long)]
    json: bool,
    /// Makes the table of a file of such objects, instead of torturing anybody.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Puts that table into this document, between its marks, instead of printing it.
    #[arg(long, value_name = "DOCUMENT", requires = "report")]
    into: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// One process under torture; started by the conductor.
    #[command(hide = true)]
    Client(ClientArguments),
}

#[derive(Debug, clap::Args)]
struct ClientArguments {
    #[arg(long)]
    url: String,
    #[arg(long)]
    log: PathBuf,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    no_permits: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(runs) = &arguments.report {
        let table = document::markdown(&std::fs::read_to_string(runs)?)?;
        match &arguments.into {
            Some(document) => document::put_into(document, &table)?,
            None => std::io::stdout().lock().write_all(table.as_bytes())?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(Role::Client(client)) = arguments.role {
        runtime.block_on(client::run(&client.url, &client.log, client.seed, !client.no_permits))?;
        return Ok(ExitCode::SUCCESS);
    }
    let plan = conductor::Plan {
        engine: arguments.engine.unwrap_or_else(|| "sqlite".to_owned()),
        url: arguments.url,
        servers: arguments.servers,
        seconds: arguments.seconds,
        seed: arguments.seed.unwrap_or_else(|| fastrand::u64(..)),
        clients: arguments.clients,
    };
    let outcome = runtime.block_on(conductor::run(&plan))?;
    report::print(&plan, &outcome, arguments.json)?;
    Ok(if outcome.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
