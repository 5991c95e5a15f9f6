//! Torture: real processes that use the library on a real engine, while a seeded conductor kills, stops, cancels and
//! evicts. Every process writes down what it believed and when; the history is checked afterwards.
//!
//! ```sh
//! cargo xtask torture sqlite --seconds 30
//! ```

mod check;
mod client;
mod conductor;
mod disk;
mod document;
mod faults;
mod frames;
mod history;
mod plot;
mod probes;
mod proxy;
/// Shared with the tests that kill servers: how one asks them.
#[path = "../../lockline-testkit/src/redis_servers.rs"]
#[allow(dead_code, unreachable_pub)]
mod redis_servers;
mod report;
mod servers;
mod site;
/// Shared with the drivers' own tests.
#[path = "../../lockline-testkit/src/stepped_clock.rs"]
#[allow(unreachable_pub)]
mod stepped_clock;
mod victims;
mod worker;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "lockline-torture", about = "Processes, faults, histories and checkers")]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    /// The engine: sqlite, or one that --site describes.
    engine: Option<String>,
    /// A file that says where its servers are and how they are started; `cargo xtask torture` starts them and writes it.
    #[arg(long, value_name = "FILE")]
    site: Option<PathBuf>,
    /// How long faults are injected.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Makes the conductor repeat its choices; the processes' own timing is real.
    #[arg(long)]
    seed: Option<u64>,
    /// How many client processes run at once.
    #[arg(long, default_value_t = 5)]
    clients: usize,
    /// How many tasks of each spread over many locks.
    #[arg(long, default_value_t = 6)]
    spread: u64,
    /// End with one JSON object.
    #[arg(long)]
    json: bool,
    /// Makes the table of a file of such objects, instead of torturing anybody.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Says that this process has mounts of its own already.
    #[arg(long, hide = true)]
    own_mounts: bool,
    /// Puts that table into this document, between its marks, instead of printing it.
    #[arg(long, value_name = "DOCUMENT", requires = "report")]
    into: Option<PathBuf>,
    /// Draws a picture of it, too (SVG).
    #[arg(long, value_name = "FILE", requires = "report")]
    plot: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// One process under torture; started by the conductor.
    #[command(hide = true)]
    Client(client::Client),
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(runs) = &arguments.report {
        let runs = document::parse(&std::fs::read_to_string(runs)?)?;
        let tables = document::markdown(&runs)?;
        match &arguments.into {
            Some(document) => document::put_into(document, &tables)?,
            None => std::io::stdout().lock().write_all(tables.as_bytes())?,
        }
        if let Some(picture) = &arguments.plot {
            std::fs::write(picture, plot::svg(&runs)?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.role.is_none() && !arguments.own_mounts && disk::can_be_mounted() {
        let words = std::iter::once("--own-mounts".to_owned()).chain(std::env::args().skip(1));
        return Err(disk::among_own_mounts(words));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(Role::Client(client)) = arguments.role {
        runtime.block_on(client::run(&client))?;
        return Ok(ExitCode::SUCCESS);
    }
    let plan = conductor::Plan {
        engine: arguments.engine.unwrap_or_else(|| "sqlite".to_owned()),
        site: arguments.site,
        seconds: arguments.seconds,
        seed: arguments.seed.unwrap_or_else(|| fastrand::u64(..)),
        clients: arguments.clients,
        spread: arguments.spread,
        own_mounts: arguments.own_mounts,
    };
    if !plan.own_mounts {
        writeln!(
            std::io::stderr(),
            "no disk is filled: it takes root, unshare(1) and mount(8) to mount one"
        )?;
    }
    let outcome = runtime.block_on(conductor::run(&plan))?;
    report::print(&plan, &outcome, arguments.json)?;
    Ok(if outcome.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
