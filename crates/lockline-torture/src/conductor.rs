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
use crate::site::Site;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) engine: String,
    /// Where its servers are, and which processes they are.
    pub(crate) url: Option<String>,
    pub(crate) servers: Vec<i32>,
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
    site: Site,
    logs: PathBuf,
    started: u64,
    chance: fastrand::Rng,
    victims: Vec<Victim>,
    faults: BTreeMap<&'static str, u64>,
    kills: Vec<Time>,
}

pub(crate) async fn run(plan: &Plan) -> anyhow::Result<Outcome> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let site = match &plan.url {
        Some(url) => Site::servers(&plan.engine, url, &plan.servers).await?,
        None if plan.engine == "sqlite" => Site::file(folder.path()),
        None => bail!("where is {:?}? `cargo xtask torture` starts it and says so", plan.engine),
    };
    let locks = Locks::connect(&site.direct).await?;
    let mut stage = Stage {
        site,
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
        // As many faults to a lease on every engine: more, and the dead hold everything all the time.
        tokio::time::sleep(stage.site.lease.mul_f64(0.04 + 0.2 * stage.chance.f64())).await;
        stage.wake(false);
        stage.site.heal(false);
    }
    stage.wake(true);
    stage.site.heal(true);
    let hangs = stage.finish().await;
    tokio::time::sleep(stage.site.gone_after()).await;
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
            .args(["client", "--url", &self.site.url, "--seed", &seed])
            .args((!self.site.has_permits()).then_some("--no-permits"))
            .arg("--log")
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
        if self.chance.bool()
            && let Some(fault) = self.site.hurt(&mut self.chance)
        {
            self.count(fault);
            return Ok(());
        }
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
                let pause = self.site.lease.mul_f64(0.1 + 2.0 * self.chance.f64());
                self.victims[victim].signal(Signal::STOP);
                self.victims[victim].stopped_until = Some(Instant::now() + pause);
                self.count("stop");
            }
            // A stopped server would keep the conductor from going on.
            _ if self.site.is_hurt() => {}
            _ => self.evict(locks).await?,
        }
        Ok(())
    }

    /// Evicts somebody, holder or waiter, without `--now`: nobody may overlap.
    async fn evict(&mut self, locks: &Locks) -> anyhow::Result<()> {
        let lines = match locks.view("").await {
            Err(error) if self.is_hurt() && error.kind().is_transient() => {
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
                // A process that this conductor stopped in the middle of a transaction keeps everybody out of the file;
                // a server that it stopped answers nobody.
                Err(error) if self.is_hurt() && error.kind().is_transient() => self.count("evict refused"),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn is_hurt(&self) -> bool {
        self.site.is_hurt() || self.victims.iter().any(|victim| victim.stopped_until.is_some())
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
        let deadline = Instant::now() + (self.site.lease * 20).max(Duration::from_secs(30));
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
