//! `lockline-bench ENGINE`: floors and ours, in the same run.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use lockline_bench::allocator::CountingAllocator;
use lockline_bench::crowd::{Crowd, crowd};
use lockline_bench::engine::{Engine, Site};
use lockline_bench::row::Row;
use lockline_bench::{awake, command, processes, renewal, report, servers, single, storm};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Measures Lockline on one engine, each row against a floor taken in the same run.
///
/// What each row and floor means: docs/benchmarks.md. Rows of figures go to stdout, progress to stderr.
#[derive(Debug, Parser)]
#[command(name = "lockline-bench", version)]
struct Args {
    /// The engine to measure.
    #[arg(required_unless_present = "report")]
    engine: Option<Engine>,
    /// One JSON object per row and line.
    #[arg(long)]
    json: bool,
    /// Where the server is, for an engine that needs one; `cargo xtask bench` starts one.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// What the rows call the engine, such as `mysql-9` for a release of it.
    #[arg(long, value_name = "NAME")]
    called: Option<String>,
    /// How long each row runs; some take longer, because they need several rounds.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Lets cores that wait go to sleep; otherwise they are kept awake, if this user may do that: see docs/benchmarks.md.
    #[arg(long)]
    asleep: bool,
    /// Only these rows.
    #[arg(long = "row", value_name = "NAME")]
    rows: Vec<RowName>,
    /// Prints the rows of a file that --json wrote as Markdown.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Puts the report into this document, between its marks, instead of printing it.
    #[arg(long, value_name = "DOCUMENT", requires = "report")]
    into: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum RowName {
    Uncontended,
    Spread,
    Contended,
    Clients,
    Processes,
    Reentrant,
    Renewal,
    Storm,
    Cli,
}

/// One thing to run: some names stand for several.
#[derive(Clone, Copy, Debug)]
enum Task {
    Uncontended,
    Crowd(Crowd),
    Processes,
    Reentrant,
    Renewal,
    Storm,
    Cli,
}

impl RowName {
    const ALL: [RowName; 9] = [
        RowName::Uncontended,
        RowName::Reentrant,
        RowName::Spread,
        RowName::Contended,
        RowName::Clients,
        RowName::Processes,
        RowName::Renewal,
        RowName::Storm,
        RowName::Cli,
    ];

    fn is_for(self, engine: Engine) -> bool {
        match self {
            RowName::Processes => engine.is_shared(),
            // Elsewhere a line does not care whose claims it keeps; on a quorum, clients may split the votes.
            RowName::Clients => engine.is_quorum(),
            RowName::Storm => storm::is_for(engine),
            // Over a network it would measure how long connecting takes.
            RowName::Cli => engine.is_shared() && engine.is_embedded(),
            _ => true,
        }
    }

    fn tasks(self) -> Vec<Task> {
        match self {
            RowName::Uncontended => vec![Task::Uncontended],
            RowName::Spread => [4, 16, 64].map(|workers| Task::Crowd(Crowd::spread(workers))).to_vec(),
            RowName::Contended => [(16, 0), (64, 0), (1_000, 0), (16, 2), (64, 2), (1_000, 2)]
                .map(|(workers, hold_ms)| Task::Crowd(Crowd::contended(workers, hold_ms)))
                .to_vec(),
            RowName::Clients => [16, 64].map(|workers| Task::Crowd(Crowd::clients(workers, 0))).to_vec(),
            RowName::Processes => vec![Task::Processes],
            RowName::Reentrant => vec![Task::Reentrant],
            RowName::Renewal => vec![Task::Renewal],
            RowName::Storm => vec![Task::Storm],
            RowName::Cli => vec![Task::Cli],
        }
    }
}

impl Task {
    fn name(self, engine: Engine) -> String {
        match self {
            Task::Crowd(crowd) => {
                format!("{}, {} workers, hold {} ms", crowd.row, crowd.workers, crowd.hold.as_millis())
            }
            Task::Uncontended => "uncontended".to_owned(),
            Task::Processes => format!("processes, {} of them", processes::PROCESSES),
            Task::Reentrant => "reentrant".to_owned(),
            Task::Renewal => format!("renewal, {} held", renewal::held_on(engine)),
            Task::Storm => format!("storm, {} clients", storm::clients_on(engine)),
            Task::Cli => "cli".to_owned(),
        }
    }

    async fn run(self, engine: Engine, server: Option<String>, window: Duration) -> Result<Row> {
        let site = Site::fresh(engine, server.as_deref())?;
        match self {
            Task::Uncontended => single::uncontended(&site, window).await,
            Task::Crowd(which) => crowd(&site, which, window).await,
            Task::Processes => processes::processes(&site, window).await,
            Task::Reentrant => single::reentrant(&site, window).await,
            Task::Renewal => renewal::renewal(&site, window).await,
            Task::Storm => storm::storm(&site).await,
            Task::Cli => command::cli(&site, window),
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if (0.05..=600.0).contains(&seconds) { Ok(seconds) } else { Err("from 0.05 to 600".to_owned()) }
}

fn main() -> ExitCode {
    match start() {
        Ok(code) => code,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<ExitCode> {
    // A process that this one started knows what it is by its first word, before any option is read.
    let words: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    match words.iter().map(|word| word.to_str().unwrap_or_default()).collect::<Vec<_>>()[..] {
        [processes::WORKER, engine, url] => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(processes::work(engine, url))?;
            return Ok(ExitCode::SUCCESS);
        }
        [processes::ECHO, own, other] => {
            processes::echo(Path::new(own), Path::new(other))?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    let args = Args::parse();
    if let Some(file) = &args.report {
        report_of(file, args.into.as_deref())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(engine) = args.engine else { bail!("which engine?") };
    // As `#[tokio::main]` gives it: what most programs have.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    measure(&runtime, &args, engine)
}

fn kept_awake() -> Option<awake::Awake> {
    match awake::Awake::start() {
        Ok(awake) => Some(awake),
        Err(error) => {
            say(&format!("cores may sleep, and waking up is measured, too: {error:#}"));
            None
        }
    }
}

/// What the server says of itself; nothing if there is none.
async fn settings(engine: Engine, server: Option<&str>) -> Result<Option<String>> {
    if engine.is_embedded() {
        return Ok(None);
    }
    servers::connect(&Site::fresh(engine, server)?).await?.settings().await
}

fn measure(runtime: &tokio::runtime::Runtime, args: &Args, engine: Engine) -> Result<ExitCode> {
    let wanted = if args.rows.is_empty() { RowName::ALL.to_vec() } else { args.rows.clone() };
    if let Some(row) = args.rows.iter().find(|row| !row.is_for(engine)) {
        bail!(
            "the row {row:?} needs an engine that several processes can reach, the command one without a server, clients a quorum, and a storm one server at one address; {} is none",
            engine.name()
        );
    }
    let tasks: Vec<Task> =
        wanted.into_iter().filter(|row| row.is_for(engine)).flat_map(RowName::tasks).collect();
    let window = Duration::from_secs_f64(args.seconds);
    let awake = if args.asleep { None } else { kept_awake() };
    let server = runtime.block_on(settings(engine, args.url.as_deref()))?;
    let finish = |mut row: Row| {
        row.engine = args.called.clone().unwrap_or(row.engine);
        let row = match &server {
            Some(server) => row.on(server),
            None => row,
        };
        if awake.is_some() { row.with("awake", 1.0) } else { row }
    };
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for (at, task) in tasks.iter().copied().enumerate() {
        say(&format!("[{}/{}] {}: {}", at + 1, tasks.len(), engine.name(), task.name(engine)));
        // On a worker of the runtime, where programs do their work, and not on the thread that waits for it.
        let row = runtime.block_on(async { tokio::spawn(task.run(engine, args.url.clone(), window)).await? });
        match row.map(finish) {
            Ok(row) if args.json => put(&format!("{}\n", serde_json::to_string(&row)?))?,
            Ok(row) => rows.push(row),
            // The other rows are still worth having.
            Err(error) => {
                say(&format!("      failed: {error:#}"));
                failed.push(task.name(engine));
            }
        }
    }
    if !args.json {
        put(&report::table(&rows))?;
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("not measured: {}", failed.join("; ")));
    Ok(ExitCode::FAILURE)
}

fn report_of(file: &Path, into: Option<&Path>) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let rows = text.lines().map(serde_json::from_str).collect::<Result<Vec<Row>, _>>()?;
    let tables = report::markdown(&rows);
    let Some(document) = into else { return put(&tables) };
    let old = std::fs::read_to_string(document)?;
    let new = report::put_into(&old, &tables).context("the document has no marks for the tables")?;
    Ok(std::fs::write(document, new)?)
}

/// The one place that writes data.
fn put(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// The one place that talks.
#[allow(clippy::print_stderr)] // Progress and errors are for people, and this is a program.
fn say(text: &str) {
    eprintln!("{text}");
}
