//! `examples/service`, started twice on one PostgreSQL, loaded and killed: no deposit is lost, and none counts twice.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::load::{EndsLoad, Progress, load};
use super::{Ended, http};
use crate::engines::{self, Fleet};
use crate::{shell, workspace};

/// How long the locks of a killed instance stand.
const LEASE: Duration = Duration::from_secs(3);

/// And how much later the other one has to lead at the latest: whoever waits looks once a second, and this machine may be busy.
const NOTICED: Duration = Duration::from_secs(3);

/// How long anything else may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many deposits are made before the kill, and after the other instance leads.
const ENOUGH: u64 = 100;

pub(super) fn service() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = build(&folder.path().join("target"))?;
    let lockline = super::lockline()?;
    let engine = engines::named_one("postgres").context("xtask knows no PostgreSQL")?;
    let fleet = Fleet::start(&[engine])?;
    let site = Site {
        program,
        lockline,
        database: fleet.url(engine.name).context("the server has no address")?,
        logs: folder.path().to_owned(),
    };
    shell::say(&format!("   PostgreSQL {}", fleet.version(engine.name).unwrap_or_default()));
    let start = Instant::now();
    let outcome = site.try_it();
    if outcome.is_err() {
        site.show_logs();
    }
    shell::say(&format!("   started, loaded, killed and ended in {} s", start.elapsed().as_secs()));
    drop(fleet);
    outcome
}

/// Builds it as somebody does who has just copied it.
fn build(target: &Path) -> Result<PathBuf> {
    let start = Instant::now();
    let mut build = shell::cargo(["build", "--quiet", "--locked"]);
    build.current_dir(workspace::root().join("examples/service")).env("CARGO_TARGET_DIR", target);
    shell::run(&mut build)?;
    shell::say(&format!("   examples/service: built in {} s", start.elapsed().as_secs()));
    Ok(target.join("debug/service"))
}

/// Where the instances run.
struct Site {
    program: PathBuf,
    lockline: PathBuf,
    database: String,
    logs: PathBuf,
}

const NAMES: [&str; 2] = ["one", "two"];

impl Site {
    fn try_it(&self) -> Result<()> {
        // Both at once: each finds that the other makes the tables.
        let [one, two] = NAMES.map(|name| Instance::spawn(self, name));
        let mut instances = [one?.wait_until_up()?, two?.wait_until_up()?];
        self.at_most_two_export(&instances)?;
        self.busy_names_the_holder(&instances)?;

        let progress = Progress::default();
        let addresses = instances.each_ref().map(|instance| instance.address);
        let (ledger, survivor) = std::thread::scope(|scope| {
            let load = scope.spawn(|| load(&addresses, &progress));
            let ends = EndsLoad(&progress);
            let survivor = kill_the_leader(&mut instances, &progress)?;
            drop(ends);
            let ledger = load.join().map_err(|_| anyhow::anyhow!("the load panicked"))?;
            anyhow::Ok((ledger, survivor))
        })?;
        let [one, two] = instances;
        let survivor = if survivor == 0 { one } else { two };

        let mut ledger = ledger;
        shell::say(&format!(
            "   deposits: {} acknowledged, {} without an answer, {} refused because the account was busy",
            ledger.acknowledged,
            ledger.unknown(),
            ledger.busy
        ));
        ledger.settle(survivor.address)?;
        ledger.check(survivor.address)?;
        shell::say("   balances are exact once those without an answer were made again under their names");
        self.ends_when_told_to(survivor)
    }

    fn locks(&self) -> String {
        format!("{}?lease={}s", self.database, LEASE.as_secs())
    }

    fn at_most_two_export(&self, instances: &[Instance; 2]) -> Result<()> {
        let statuses = std::thread::scope(|scope| {
            let asked: Vec<_> = (0..6)
                .map(|n| scope.spawn(move || http::ask(instances[n % 2].address, "POST", "/export")))
                .collect();
            let joined =
                asked.into_iter().map(|one| one.join().map_err(|_| anyhow::anyhow!("a caller panicked"))?);
            joined.map(|answer| Ok(answer?.status)).collect::<Result<Vec<_>>>()
        })?;
        let count = |status| statuses.iter().filter(|one| **one == status).count();
        let (done, refused) = (count(200), count(429));
        ensure!(done >= 2 && refused >= 1 && done + refused == 6, "six exports at once: {statuses:?}");
        shell::say(&format!("   six exports at once: {done} done, {refused} refused with 429"));
        Ok(())
    }

    /// Holds an account from the shell, as an operator would.
    fn busy_names_the_holder(&self, instances: &[Instance; 2]) -> Result<()> {
        let mut holder = Command::new(&self.lockline);
        holder.args([
            "run",
            "account/9",
            "--owner",
            "operator",
            "--on",
            &self.locks(),
            "--",
            "sh",
            "-c",
            "echo held; cat",
        ]);
        let holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(self.log("operator")?);
        let mut holder = Ended(holder.spawn().context("lockline run")?);
        first_line(&mut holder)?;
        let mut stream = http::connect(instances[0].address).context("nobody listens")?;
        let body = r#"{ "amount": 1, "request": "busy" }"#;
        let answer = http::send(&mut stream, "POST", "/accounts/9/deposit", body)
            .and_then(|()| http::receive(&mut stream))
            .map_err(|_| anyhow::anyhow!("a deposit to a busy account was not answered"))?;
        let said = answer.body.trim_end();
        ensure!(answer.status == 409 && said.contains("operator"), "busy: {} {said}", answer.status);
        shell::say(&format!("   a busy account: 409, {said}"));
        drop(holder.0.stdin.take());
        ensure!(ends_within(&mut holder, PATIENCE)?.success(), "lockline run failed");
        Ok(())
    }

    /// SIGTERM while a request is served: it is answered, the instance ends well, and its locks are free at once.
    fn ends_when_told_to(&self, mut instance: Instance) -> Result<()> {
        let mut stream = http::connect(instance.address).context("nobody listens")?;
        http::send(&mut stream, "POST", "/export", "")
            .map_err(|_| anyhow::anyhow!("an export was not sent"))?;
        until(PATIENCE, "the export holds its permit", || Ok(self.listed()?.contains("\"export\"")))?;
        let pid = Pid::from_child(&instance.process.0);
        kill_process(pid, Signal::TERM)?;
        let answer = http::receive(&mut stream).map_err(|_| anyhow::anyhow!("SIGTERM cut a request off"))?;
        ensure!(answer.status == 200, "SIGTERM: the export was answered {}", answer.status);
        let status = ends_within(&mut instance.process, PATIENCE)?;
        ensure!(status.code() == Some(0), "after SIGTERM the service ended with {status}");
        let left = self.listed()?;
        let locks = &serde_json::from_str::<Value>(&left)?["locks"];
        ensure!(locks.as_array().is_some_and(Vec::is_empty), "locks are left: {left}");
        shell::say(
            "   SIGTERM: the request under way was answered, exit code 0, `lockline ls` lists nothing",
        );
        Ok(())
    }

    fn listed(&self) -> Result<String> {
        shell::output(Command::new(&self.lockline).args(["ls", "--json", "--on", &self.locks()]))
    }

    fn log(&self, name: &str) -> Result<File> {
        Ok(File::create(self.logs.join(name).with_extension("log"))?)
    }

    fn show_logs(&self) {
        for name in NAMES.into_iter().chain(["operator"]) {
            let log = std::fs::read_to_string(self.logs.join(name).with_extension("log")).unwrap_or_default();
            shell::say(&format!("-- {name}:\n{}", log.trim_end()));
        }
    }
}

/// Kills whoever leads, in the middle of the load, and gives the index of the other, which leads then.
fn kill_the_leader(instances: &mut [Instance; 2], progress: &Progress) -> Result<usize> {
    until(PATIENCE, "deposits are acknowledged", || Ok(progress.acknowledged() >= ENOUGH))?;
    // The leader has done its job; the other one has not.
    until(PATIENCE, "somebody leads", || Ok(audits(instances)?.iter().any(|audits| *audits > 0)))?;
    let leaders = [instances[0].leader()?, instances[1].leader()?];
    ensure!(leaders[0] == leaders[1], "two leaders: {leaders:?}");
    let leader = NAMES.iter().position(|name| leaders[0].as_deref() == Some(name)).context("nobody leads")?;
    let other = 1 - leader;
    ensure!(audits(instances)?[other] == 0, "{} audits, and does not lead", NAMES[other]);

    let killed = Instant::now();
    instances[leader].process.0.kill()?;
    let before = progress.acknowledged();
    let next = Some(NAMES[other].to_owned());
    until(LEASE + NOTICED, "the other one leads", || Ok(instances[other].leader()? == next))?;
    shell::say(&format!(
        "   {} led and was killed; {} leads {:.1} s later, with leases of {} s",
        NAMES[leader],
        NAMES[other],
        killed.elapsed().as_secs_f64(),
        LEASE.as_secs()
    ));
    until(PATIENCE, "deposits go on", || Ok(progress.acknowledged() >= before + ENOUGH))?;
    until(PATIENCE, "the new leader works", || Ok(instances[other].audits()? > 0))?;
    Ok(other)
}

fn audits(instances: &[Instance; 2]) -> Result<[u64; 2]> {
    Ok([instances[0].audits()?, instances[1].audits()?])
}

/// One of the two.
struct Instance {
    process: Ended,
    address: SocketAddr,
}

/// One that may not listen yet.
struct Spawned(Ended);

impl Instance {
    fn spawn(site: &Site, name: &str) -> Result<Spawned> {
        let mut command = Command::new(&site.program);
        command.env("DATABASE_URL", &site.database).env("LOCKS_URL", site.locks()).env("INSTANCE", name);
        command.env_remove("LISTEN").stdout(Stdio::piped()).stderr(site.log(name)?);
        Ok(Spawned(Ended(command.spawn().context("examples/service")?)))
    }

    fn status(&self) -> Result<Value> {
        http::ask(self.address, "GET", "/status")?.json()
    }

    /// Who leads, as this one sees it.
    fn leader(&self) -> Result<Option<String>> {
        Ok(self.status()?["leader"].as_str().map(str::to_owned))
    }

    /// How often this one has done the leader's job.
    fn audits(&self) -> Result<u64> {
        self.status()?["audits"].as_u64().context("the status has no audits")
    }
}

impl Spawned {
    fn wait_until_up(self) -> Result<Instance> {
        let mut process = self.0;
        let line = first_line(&mut process)?;
        let address = line.trim_end().rsplit('/').next().and_then(|address| address.parse().ok());
        let address = address.with_context(|| format!("no address in {line:?}"))?;
        let instance = Instance { process, address };
        until(PATIENCE, "it is healthy", || Ok(http::ask(address, "GET", "/health")?.status == 200))?;
        Ok(instance)
    }
}

/// What a program says first.
fn first_line(process: &mut Ended) -> Result<String> {
    let mut output = BufReader::new(process.0.stdout.take().context("its output is not read")?);
    let (tell, told) = mpsc::channel();
    // A read cannot be given up; a thread can be left behind, and ends with the program.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = output.read_line(&mut line);
        // Nobody listens any more if it took too long.
        let _ = tell.send(read.map(|_| line));
    });
    let line = told.recv_timeout(PATIENCE).context("a program did not say that it is up")??;
    ensure!(!line.is_empty(), "a program ended before it was up");
    Ok(line)
}

fn ends_within(process: &mut Ended, patience: Duration) -> Result<ExitStatus> {
    let mut ended = None;
    until(patience, "a program ends", || {
        ended = process.0.try_wait()?;
        Ok(ended.is_some())
    })?;
    ended.context("it has not ended")
}

/// Waits for something that nobody tells.
fn until(patience: Duration, what: &str, mut is: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is().with_context(|| what.to_owned())? {
        if start.elapsed() > patience {
            bail!("not within {} s: {what}", patience.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
