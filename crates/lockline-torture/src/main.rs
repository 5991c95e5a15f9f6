//! Torture: real processes that use the library on a real engine, while a seeded conductor kills, stops, cancels and
//! evicts. Every process writes down what it believed and when; the history is checked afterwards.
//!
//! ```sh
//! cargo xtask torture sqlite --seconds 30
//! ```

mod check;
mod client;
mod conductor;
mod history;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "lockline-torture", about = "Processes, faults, histories and checkers")]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    /// The engine: sqlite.
    engine: Option<String>,
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
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(Role::Client(client)) = arguments.role {
        runtime.block_on(client::run(&client.url, &client.log, client.seed))?;
        return Ok(ExitCode::SUCCESS);
    }
    let plan = conductor::Plan {
        engine: arguments.engine.unwrap_or_else(|| "sqlite".to_owned()),
        seconds: arguments.seconds,
        seed: arguments.seed.unwrap_or_else(|| fastrand::u64(..)),
        clients: arguments.clients,
    };
    let outcome = runtime.block_on(conductor::run(&plan))?;
    report::print(&plan, &outcome, arguments.json)?;
    Ok(if outcome.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
