//! The conductor: starts the processes, hurts them by plan, ends them, and has their histories checked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use lockline::Locks;
use lockline::time::Time;
use rustix::process::{Pid, Signal, kill_process};

use crate::check::{Findings, check};
use crate::history::{Event, Kind, now, read};

/// Short, so that many leases end in a run; long enough that a loaded machine does not lose them for no reason.
const LEASE: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) engine: String,
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
    pub(crate) clients: usize,
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) findings: Findings,
    pub(crate) faults: BTreeMap<&'static str, u64>,
    /// Claims that were left one lease after everybody had gone.
    pub(crate) leaks: u64,
    /// Processes that did not end when they were asked to.
    pub(crate) hangs: u64,
    pub(crate) recovery_p99: Option<Duration>,
}

impl Outcome {
    pub(crate) fn is_clean(&self) -> bool {
        let Findings { acquisitions, overlaps, fence_violations, order_violations, late_losses } =
            self.findings;
        acquisitions > 0
            && overlaps + fence_violations + order_violations + late_losses + self.leaks + self.hangs == 0
    }
}

/// A client process, and whether it is stopped until some moment.
struct Victim {
    child: Child,
    stopped_until: Option<Instant>,
}

impl Victim {
    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            // It may just have ended; the history will tell.
            let _ = kill_process(pid, signal);
        }
    }
}

struct Stage {
    url: String,
    logs: PathBuf,
    started: u64,
    chance: fastrand::Rng,
    victims: Vec<Victim>,
    faults: BTreeMap<&'static str, u64>,
    kills: Vec<Time>,
}

pub(crate) async fn run(plan: &Plan) -> anyhow::Result<Outcome> {
    if plan.engine != "sqlite" {
        bail!("torture knows the engine sqlite; {:?} is for one process, or not built yet", plan.engine);
    }
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let url = format!("sqlite:{}?lease={}ms", folder.path().join("locks.db").display(), LEASE.as_millis());
    let locks = Locks::connect(&url).await?;
    let mut stage = Stage {
        url,
        logs: folder.path().to_owned(),
        started: 0,
        chance: fastrand::Rng::with_seed(plan.seed),
        victims: Vec::new(),
        faults: BTreeMap::new(),
        kills: Vec::new(),
    };
    for _ in 0..plan.clients {
        let victim = stage.start()?;
        stage.victims.push(victim);
    }
    let end = Instant::now() + Duration::from_secs(plan.seconds);
    while Instant::now() < end {
        stage.hurt(&locks).await?;
        let pause = stage.chance.u64(20..120);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        stage.wake(false);
    }
    stage.wake(true);
    let hangs = stage.finish().await;
    tokio::time::sleep(LEASE + LEASE / 4).await;
    let leaks =
        locks.view("").await?.iter().map(|line| line.holders.len() + line.waiters.len()).sum::<usize>()
            as u64;
    let histories = stage.histories()?;
    Ok(Outcome {
        findings: check(&histories),
        recovery_p99: recovery(&histories, &stage.kills),
        faults: stage.faults,
        leaks,
        hangs,
    })
}

impl Stage {
    fn start(&mut self) -> anyhow::Result<Victim> {
        self.started += 1;
        let log = self.logs.join(format!("history-{}.log", self.started));
        let seed = self.chance.u64(..).to_string();
        let child = Command::new(std::env::current_exe()?)
            .args(["client", "--url", &self.url, "--seed", &seed, "--log"])
            .arg(&log)
            .stdin(Stdio::piped())
            .spawn()
            .context("a client process could not be started")?;
        Ok(Victim { child, stopped_until: None })
    }

    fn count(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    async fn hurt(&mut self, locks: &Locks) -> anyhow::Result<()> {
        let victim = self.chance.usize(..self.victims.len());
        match self.chance.u8(..10) {
            0..3 => {
                self.kills.push(now());
                self.victims[victim].signal(Signal::KILL);
                self.victims[victim].child.wait()?;
                self.victims[victim] = self.start()?;
                self.count("kill");
            }
            3..7 => {
                let pause = LEASE.mul_f64(0.1 + 2.0 * self.chance.f64());
                self.victims[victim].signal(Signal::STOP);
                self.victims[victim].stopped_until = Some(Instant::now() + pause);
                self.count("stop");
            }
            _ => self.evict(locks).await?,
        }
        Ok(())
    }

    /// Evicts somebody, holder or waiter, without `--now`: nobody may overlap.
    async fn evict(&mut self, locks: &Locks) -> anyhow::Result<()> {
        let lines = match locks.view("").await {
            Err(error) if self.any_stopped() && error.kind().is_transient() => {
                self.count("view refused");
                return Ok(());
            }
            lines => lines?,
        };
        let claims: Vec<_> = lines
            .iter()
            .flat_map(|line| {
                line.holders.iter().chain(&line.waiters).map(|claim| (line.name.clone(), claim.ticket))
            })
            .collect();
        if !claims.is_empty() {
            let (name, ticket) = &claims[self.chance.usize(..claims.len())];
            match locks.evict(name.as_str(), *ticket, false).await {
                Ok(true) => self.count("evict"),
                Ok(false) => {}
                // A process that this conductor stopped in the middle of a transaction keeps everybody out of the file.
                Err(error) if self.any_stopped() && error.kind().is_transient() => {
                    self.count("evict refused")
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn any_stopped(&self) -> bool {
        self.victims.iter().any(|victim| victim.stopped_until.is_some())
    }

    fn wake(&mut self, all: bool) {
        let now = Instant::now();
        for victim in &mut self.victims {
            if victim.stopped_until.is_some_and(|until| all || until <= now) {
                victim.signal(Signal::CONT);
                victim.stopped_until = None;
            }
        }
    }

    /// Asks everybody to end, and counts those who do not: progress must resume within a lease and two looks.
    async fn finish(&mut self) -> u64 {
        for victim in &mut self.victims {
            drop(victim.child.stdin.take());
        }
        let deadline = Instant::now() + LEASE * 20;
        let mut hangs = 0;
        for victim in &mut self.victims {
            loop {
                match victim.child.try_wait() {
                    Ok(Some(status)) if status.success() => break,
                    Ok(None) if Instant::now() < deadline => {
                        tokio::time::sleep(Duration::from_millis(10)).await
                    }
                    _ => {
                        hangs += 1;
                        // It is our own child, and it may hold the file open.
                        let _ = victim.child.kill();
                        let _ = victim.child.wait();
                        break;
                    }
                }
            }
        }
        hangs
    }

    fn histories(&self) -> anyhow::Result<Vec<Vec<Event>>> {
        let path = |n: u64| self.logs.join(format!("history-{n}.log"));
        (1..=self.started)
            .map(path)
            // A process that was killed before it connected has written nothing.
            .filter(|path: &PathBuf| Path::exists(path))
            .map(|path| read(&path).with_context(|| format!("{} cannot be read", path.display())))
            .collect()
    }
}

/// How long after a kill somebody got a lock again, in the slowest hundredth.
fn recovery(histories: &[Vec<Event>], kills: &[Time]) -> Option<Duration> {
    let mut grants: Vec<Time> =
        histories.iter().flatten().filter(|event| event.kind == Kind::Got).map(|event| event.at).collect();
    grants.sort_unstable();
    let next = |kill: &Time| {
        grants.get(grants.partition_point(|grant| grant < kill)).map(|grant| grant.since(*kill))
    };
    let mut delays: Vec<Duration> = kills.iter().filter_map(next).collect();
    delays.sort_unstable();
    delays.get((delays.len() * 99).div_ceil(100).saturating_sub(1)).copied()
}
