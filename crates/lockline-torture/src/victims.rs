//! The client processes: started, killed, stopped, woken, ended.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use lockline::time::Time;
use rustix::process::{Pid, Signal, kill_process};

use crate::conductor::Plan;
use crate::history::{Event, now, read};
use crate::site::Site;

/// A client process, and since when and until when it is stopped.
struct Victim {
    child: Child,
    /// Which history is its own.
    number: usize,
    stopped: Option<(Time, Instant)>,
}

pub(crate) struct Victims {
    all: Vec<Victim>,
    logs: PathBuf,
    started: usize,
    spread: u64,
    stops: Vec<(usize, Time, Time)>,
    /// How many ended although nobody had asked them to.
    deserters: u64,
}

impl Victims {
    pub(crate) fn start(
        plan: &Plan,
        site: &Site,
        logs: &Path,
        chance: &mut fastrand::Rng,
    ) -> anyhow::Result<Victims> {
        let mut victims = Victims {
            all: Vec::new(),
            logs: logs.to_owned(),
            started: 0,
            spread: plan.spread,
            stops: Vec::new(),
            deserters: 0,
        };
        for _ in 0..plan.clients {
            let victim = victims.another(site, chance)?;
            victims.all.push(victim);
        }
        Ok(victims)
    }

    fn log(&self, number: usize) -> PathBuf {
        self.logs.join(format!("history-{number}.log"))
    }

    fn another(&mut self, site: &Site, chance: &mut fastrand::Rng) -> anyhow::Result<Victim> {
        let number = self.started;
        self.started += 1;
        let child = Command::new(std::env::current_exe()?)
            .args(["client", "--url", &site.url, "--seed", &chance.u64(..).to_string()])
            .args(["--lease-ms", &site.lease.as_millis().to_string(), "--spread", &self.spread.to_string()])
            .args((!site.has_permits()).then_some("--no-permits"))
            .arg("--log")
            .arg(self.log(number))
            .stdin(Stdio::piped())
            .spawn()
            .context("a client process could not be started")?;
        Ok(Victim { child, number, stopped: None })
    }

    /// Kills one, and starts another in its place.
    pub(crate) fn kill(&mut self, site: &Site, chance: &mut fastrand::Rng) -> anyhow::Result<()> {
        let victim = chance.usize(..self.all.len());
        self.deserters += u64::from(!matches!(self.all[victim].child.try_wait(), Ok(None)));
        self.all[victim].signal(Signal::KILL);
        self.all[victim].child.wait()?;
        self.all[victim] = self.another(site, chance)?;
        Ok(())
    }

    /// Stops one, for less than a lease or for more.
    pub(crate) fn stop(&mut self, lease: Duration, chance: &mut fastrand::Rng) {
        let victim = chance.usize(..self.all.len());
        let victim = &mut self.all[victim];
        let until = Instant::now() + lease.mul_f64(0.1 + 2.0 * chance.f64());
        let since = victim.stopped.map_or_else(now, |(since, _)| since);
        victim.signal(Signal::STOP);
        victim.stopped = Some((since, until));
    }

    pub(crate) fn wake(&mut self, all: bool) {
        for victim in &mut self.all {
            if let Some((since, _)) = victim.stopped.take_if(|(_, until)| all || *until <= Instant::now()) {
                victim.signal(Signal::CONT);
                self.stops.push((victim.number, since, now()));
            }
        }
    }

    /// When they were stopped.
    pub(crate) fn stops(&self) -> &[(usize, Time, Time)] {
        &self.stops
    }

    /// Asks everybody to end, and counts those who do not, and those who had ended before.
    pub(crate) async fn finish(&mut self, lease: Duration) -> u64 {
        for victim in &mut self.all {
            drop(victim.child.stdin.take());
        }
        let deadline = Instant::now() + (lease * 20).max(Duration::from_secs(30));
        let mut hangs = self.deserters;
        for victim in &mut self.all {
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

    pub(crate) fn histories(&self) -> anyhow::Result<Vec<Vec<Event>>> {
        let history = |number: usize| {
            let path = self.log(number);
            // A process that was killed before it connected has written nothing.
            if !path.exists() {
                return Ok(Vec::new());
            }
            read(&path).with_context(|| format!("{} cannot be read", path.display()))
        };
        (0..self.started).map(history).collect()
    }
}

impl Drop for Victims {
    fn drop(&mut self) {
        // Those who are stopped would not notice that their conductor failed.
        for victim in &mut self.all {
            let _ = victim.child.kill();
            let _ = victim.child.wait();
        }
    }
}

impl Victim {
    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            // It may just have ended; the history will tell.
            let _ = kill_process(pid, signal);
        }
    }
}
