//! The conductor: starts the processes, hurts them by plan, ends them, and has their histories checked.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use lockline::driver::Exclusion;
use lockline::{ErrorKind, Locks};

use crate::check::{Calm, Findings, LOOK_AGAIN, Progress, around_healing, check, progress, stuck};
use crate::history::now;
use crate::site::{Description, Site};
use crate::victims::Victims;

/// How long faults come one upon the other, at most.
const STORM: Duration = Duration::from_secs(8);
/// How long nothing happens then, beside the time in which everybody must have recovered.
const CALM: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) engine: String,
    /// What describes its servers, for those that have some.
    pub(crate) site: Option<PathBuf>,
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
    pub(crate) clients: usize,
    pub(crate) spread: u64,
    /// Whether disks can be mounted that nobody else sees.
    pub(crate) own_mounts: bool,
}

impl Plan {
    /// Also a short run has a calm.
    fn storm(&self) -> Duration {
        STORM.min(Duration::from_secs(self.seconds) / 2)
    }
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) findings: Findings,
    pub(crate) progress: Progress,
    /// Grants per second by the time since healing: from when, in which steps.
    pub(crate) around_healing: (i64, u64, Vec<f64>),
    /// What the engine promises of overlaps.
    pub(crate) promised: Exclusion,
    pub(crate) faults: BTreeMap<&'static str, u64>,
    /// Claims that were left one lease after everybody had gone.
    pub(crate) leaks: u64,
    /// Processes that did not end when they were asked to, or ended badly.
    pub(crate) hangs: u64,
}

impl Outcome {
    pub(crate) fn is_clean(&self) -> bool {
        let Findings {
            acquisitions,
            overlaps,
            not_linearizable,
            fence_violations,
            order_violations,
            late_losses,
        } = self.findings;
        let tokens = fence_violations + order_violations + late_losses;
        let stuck = self.leaks + self.hangs + self.progress.stalls.len() as u64 + self.progress.lost_wakeups;
        acquisitions > 0 && overlaps + not_linearizable + tokens + stuck == 0
    }
}

struct Stage {
    site: Site,
    victims: Victims,
    chance: fastrand::Rng,
    faults: BTreeMap<&'static str, u64>,
    calms: Vec<Calm>,
}

pub(crate) async fn run(plan: &Plan) -> anyhow::Result<Outcome> {
    // Servers that run as another user read their clocks there.
    let mut folder = tempfile::Builder::new()
        .prefix("lockline-torture-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .context("no temporary folder")?;
    let site = match &plan.site {
        Some(file) => {
            let description: Description = serde_json::from_str(&std::fs::read_to_string(file)?)?;
            Site::servers(plan, description, folder.path()).await?
        }
        None if plan.engine == "sqlite" => Site::file(folder.path(), plan.own_mounts)?,
        None => bail!("where is {:?}? `cargo xtask torture` starts it and says so", plan.engine),
    };
    let locks = Locks::connect(&site.direct).await?;
    let promised = locks.mutex("promise").lock().await?.guarantees().exclusion;
    let mut chance = fastrand::Rng::with_seed(plan.seed);
    let victims = Victims::start(plan, &site, folder.path(), &mut chance)?;
    let mut stage = Stage { site, victims, chance, faults: BTreeMap::new(), calms: Vec::new() };
    let end = Instant::now() + Duration::from_secs(plan.seconds);
    while Instant::now() < end {
        stage.storm(&locks, plan.storm()).await?;
        stage.calm(end).await?;
    }
    let hangs = stage.victims.finish(stage.site.lease).await;
    // Who ended in the middle of a renewal has a lease from then on.
    tokio::time::sleep(stage.site.gone_after() + Duration::from_secs(1)).await;
    let leaks = left_behind(&locks).await?;
    let histories = stage.victims.histories()?;
    let outcome = Outcome {
        findings: check(&histories, stage.victims.stops()),
        progress: progress(&histories, &stage.calms, stage.site.lease, stage.site.gone_after()),
        around_healing: around_healing(&histories, &stage.calms, plan.storm()),
        promised,
        faults: stage.faults,
        leaks,
        hangs,
    };
    if !outcome.is_clean() {
        folder.disable_cleanup(true);
        let stalls = &outcome.progress.stalls;
        writeln!(std::io::stderr(), "the histories are in {}; stalls: {stalls:?}", folder.path().display())?;
    }
    Ok(outcome)
}

/// What is left of everybody who has gone.
async fn left_behind(locks: &Locks) -> anyhow::Result<u64> {
    let mut tries = 0;
    let lines = loop {
        tries += 1;
        match locks.view("").await {
            // The conductor's own connection may have been killed while it did not look.
            Err(error)
                if tries < 5 && (error.kind().is_transient() || error.kind() == ErrorKind::Unknown) => {}
            lines => break lines?,
        }
    };
    let mut claims = 0;
    for line in &lines {
        for claim in line.holders.iter().chain(&line.waiters) {
            claims += 1;
            writeln!(std::io::stderr(), "left behind at {}: {claim:?}", line.name)?;
        }
    }
    Ok(claims)
}

impl Stage {
    /// Faults one upon the other.
    async fn storm(&mut self, locks: &Locks, lasts: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + lasts;
        while Instant::now() < end {
            self.hurt(locks).await?;
            // Not many more to a lease, or the dead hold everything all the time.
            let pause = self.site.lease.mul_f64(0.01 + 0.07 * self.chance.f64());
            tokio::time::sleep(pause.max(Duration::from_millis(40))).await;
            self.victims.wake(false);
            self.site.heal(false)?;
        }
        self.victims.wake(true);
        self.site.settle().await
    }

    /// Nothing happens: everybody must recover, and then work as if nothing had been.
    async fn calm(&mut self, end: Instant) -> anyhow::Result<()> {
        let from = now();
        let recovered = self.site.gone_after() + 2 * LOOK_AGAIN;
        let calm = Instant::now() + recovered + CALM;
        tokio::time::sleep_until(calm.min(end.max(Instant::now() + recovered)).into()).await;
        let calm = Calm { from, to: now() };
        self.calms.push(calm);
        // Afterwards nobody could tell why.
        let stuck = stuck(&self.victims.histories()?, calm);
        if !stuck.is_empty() {
            let doings = self.site.doings();
            writeln!(
                std::io::stderr(),
                "nobody got {stuck:?} although all was healed. The servers:\n{doings}"
            )?;
        }
        Ok(())
    }

    fn count(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    async fn hurt(&mut self, locks: &Locks) -> anyhow::Result<()> {
        if self.chance.bool()
            && let Some(fault) = self.site.hurt(&mut self.chance)?
        {
            self.count(fault);
            return Ok(());
        }
        match self.chance.u8(..10) {
            0..3 => {
                self.victims.kill(&self.site, &mut self.chance)?;
                self.count("kill");
            }
            3..7 => {
                self.victims.stop(self.site.lease, &mut self.chance);
                self.count("stop");
            }
            // A stopped server would keep the conductor from going on.
            _ if self.site.may_be_silent() => {}
            _ => self.evict(locks).await?,
        }
        Ok(())
    }

    /// Evicts somebody, holder or waiter, without `--now`: nobody may overlap.
    async fn evict(&mut self, locks: &Locks) -> anyhow::Result<()> {
        // A process that was stopped in the middle of a transaction keeps everybody out of the file; a server that has just
        // come back may not answer yet.
        let lines = match locks.view("").await {
            Err(error) if error.kind().is_transient() || error.kind() == ErrorKind::Unknown => return Ok(()),
            lines => lines?,
        };
        let claims: Vec<_> = lines
            .iter()
            .flat_map(|line| {
                line.holders.iter().chain(&line.waiters).map(|claim| (line.name.clone(), claim.ticket))
            })
            .collect();
        if claims.is_empty() {
            return Ok(());
        }
        let (name, ticket) = &claims[self.chance.usize(..claims.len())];
        match locks.evict(name.as_str(), *ticket, false).await {
            Ok(true) => self.count("evict"),
            Ok(false) => {}
            // Whether it happened nobody knows; it is not counted.
            Err(error) if error.kind().is_transient() || error.kind() == ErrorKind::Unknown => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
