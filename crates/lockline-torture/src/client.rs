//! One process under torture: tasks that take locks in every way there is, and write down what they believe.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockline::Locks;
use tokio::io::AsyncReadExt;

use crate::history::Log;
use crate::worker::{Habit, Worker};

/// What the conductor tells a process.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Client {
    #[arg(long)]
    url: String,
    #[arg(long)]
    log: PathBuf,
    #[arg(long)]
    seed: u64,
    /// The lease, which decides how long the longest holds are.
    #[arg(long)]
    lease_ms: u64,
    /// How many tasks spread over many locks.
    #[arg(long)]
    spread: u64,
    #[arg(long)]
    no_permits: bool,
}

/// Works until its standard input ends, then lets go of everything.
pub(crate) async fn run(client: &Client) -> anyhow::Result<()> {
    let locks = connect(&client.url).await?;
    let log = Log::create(&client.log)?;
    let stop = Arc::new(AtomicBool::new(false));
    // Two in the lines that everybody wants, one that holds for long, the others all over the place.
    let habits = [Habit::Queues, Habit::Queues, Habit::Sits].into_iter();
    let habits = habits.chain((0..client.spread).map(|_| Habit::Roams));
    let tasks: Vec<_> = habits
        .enumerate()
        .map(|(task, habit)| {
            let chance = fastrand::Rng::with_seed(client.seed.wrapping_mul(31).wrapping_add(task as u64));
            let worker = Worker {
                locks: locks.clone(),
                log: log.clone(),
                stop: stop.clone(),
                permits: !client.no_permits,
                lease: Duration::from_millis(client.lease_ms),
                chance,
            };
            tokio::spawn(worker.work(habit))
        })
        .collect();
    // The conductor closes our input when it is over; it also closes if the conductor dies.
    let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    stop.store(true, Ordering::Release);
    for task in tasks {
        task.await??;
    }
    locks.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// It may be started while its server is stopped, or the way there blocked.
async fn connect(url: &str) -> lockline::Result<Locks> {
    let give_up = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        match Locks::connect(url).await {
            Err(error) if error.kind().is_transient() && tokio::time::Instant::now() < give_up => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            connected => return connected,
        }
    }
}
