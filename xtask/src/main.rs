//! `cargo xtask`: the project's only door. CI calls the same commands that people do.

mod ci;
mod engines;
mod interop;
mod newcomer;
mod package;
mod shell;
mod targets;
mod test;
mod torture;
mod workspace;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

/// The project's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Installs and starts what is missing, runs every test, stops what it started.
    Test(test::Which),
    /// Starts or stops the engines that tests and benches use.
    Engines {
        /// Starts them and leaves them running, or stops what was left running.
        action: Action,
    },
    /// Measures an engine against its floor, in the same run: see docs/benchmarks.md.
    Bench {
        /// The engine, and what `lockline-bench --help` lists.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        args: Vec<String>,
    },
    /// Shows that our locks and other clients' are the same locks, with the real clients; installs them.
    Interop {
        /// Only these peers.
        #[arg(value_name = "PEERS")]
        peers: Vec<String>,
    },
    /// Processes, faults and checkers on an engine, or on all of them: see docs/reliability.md.
    Torture {
        /// The campaign: all engines, or those named, for minutes each; docs/reliability.md is made from it.
        #[arg(long)]
        long: bool,
        /// The engine, and what the torturer's help lists.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required_unless_present = "long")]
        args: Vec<String>,
    },
    /// What somebody does who has just found Lockline, in fresh folders.
    Newcomer {
        /// Only these parts.
        #[arg(long, value_delimiter = ',', value_name = "PARTS")]
        only: Vec<newcomer::Part>,
    },
    /// Packs the command, with its manual and completions, and tries the package.
    Package {
        /// What kind of package.
        kind: package::Kind,
        /// How the command is built.
        #[arg(long, default_value = "dist")]
        profile: String,
    },
    /// Checks the library for other systems: musl, aarch64, macOS, Windows.
    Targets {
        /// Only targets with one of these in their names.
        only: Vec<String>,
        /// Only these features.
        #[arg(long)]
        features: Option<String>,
    },
    /// Everything that must hold before a change is merged.
    Ci {
        /// All but these steps.
        #[arg(long, value_delimiter = ',', value_name = "STEPS")]
        except: Vec<ci::Step>,
        /// Only these steps.
        #[arg(long, value_delimiter = ',', value_name = "STEPS", conflicts_with = "except")]
        only: Vec<ci::Step>,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Action {
    Up,
    Down,
}

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            shell::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Test(which) => test::test(&which),
        Command::Engines { action: Action::Up } => engines::up(),
        Command::Engines { action: Action::Down } => engines::down(),
        // It measures the command, too.
        Command::Bench { args } => bench(&args),
        Command::Interop { peers } => interop::interop(&peers),
        Command::Torture { long, args } => torture::torture(long, &args),
        Command::Newcomer { only } => newcomer::newcomer(&only),
        Command::Package { kind, profile } => package::package(kind, &profile),
        Command::Targets { only, features } => targets::targets(&only, features.as_deref()),
        Command::Ci { except, only } => ci::ci(&except, &only),
    }
}

/// Measures an engine; one that is a server is started for it, and only then all drivers are built in: the command is
/// measured as people get it.
fn bench(args: &[String]) -> Result<()> {
    let named = args.iter().find_map(|arg| engines::named_one(arg));
    let Some(engine) = named.filter(|engine| engine.feature.is_some()) else {
        return shell::run(release(&["lockline-bench", "lockline"], &[])?.args(args));
    };
    let mut features: Vec<_> = engines::ENGINES.iter().filter_map(|engine| engine.feature).collect();
    features.sort_unstable();
    features.dedup();
    let mut command = release(&["lockline-bench"], &features)?;
    // A database waits for its disk with every commit, and so does its floor's; the others are measured as they are run.
    let fleet = match engine.feature {
        Some("postgres" | "mysql") => engines::Fleet::start(&[engine])?,
        _ => engines::Fleet::start_on_disk(&[engine])?,
    };
    let url = fleet.url(engine.name).context("the server has no address")?;
    shell::say(&format!("{}: {}", engine.name, fleet.version(engine.name).unwrap_or_default()));
    // A release of an engine is measured as that engine, under its own name.
    let as_engine = |arg: &String| if arg == engine.name { engine.like.to_owned() } else { arg.clone() };
    command.args(args.iter().map(as_engine)).args(["--url", &url, "--called", engine.name]);
    let outcome = shell::run(&mut command);
    drop(fleet);
    outcome
}

/// Builds programs of the workspace, and gives the first one to run.
///
/// Without `--package`, as in the README's first command: cargo then chooses features for the whole workspace, and what
/// one of these commands built is not built again by another. For the same reason what was built is run directly.
///
/// `drivers` are those that are not built in otherwise.
pub(crate) fn release(programs: &[&str], drivers: &[&str]) -> Result<std::process::Command> {
    // As what is released is built.
    let mut build = shell::cargo(["build", "--profile", "dist", "--quiet"]);
    for driver in drivers {
        build.args(["--features", &format!("lockline-bench/{driver}")]);
    }
    for program in programs {
        build.args(["--bin", program]);
    }
    shell::run(&mut build)?;
    let first = programs.first().context("which program?")?;
    Ok(std::process::Command::new(workspace::target_dir()?.join("dist").join(first)))
}
