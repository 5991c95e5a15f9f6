//! Clients that share locks on etcd: `etcdctl lock` and `etcdctl elect`, and Go programs with the `concurrency` package.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::Show;
use super::peer::{Lockline, Peer, take_turns, timed};
use crate::engines::apt;
use crate::{shell, workspace};

/// A lease that ends in no row.
const LONG: Duration = Duration::from_secs(30);
/// A lease of whole seconds, after which a killed holder is gone within a second.
const SHORT: Duration = Duration::from_secs(2);
/// A moment in which a lock that is held stays held.
const MOMENT: Duration = Duration::from_millis(300);

pub(super) fn install_etcdctl(_home: &Path) -> Result<()> {
    if apt::has("etcdctl") { Ok(()) } else { apt::install(&["etcd-client"]) }
}

/// From Debian's package of the sources: no module has to be fetched.
pub(super) fn install_go(home: &Path) -> Result<()> {
    const SOURCES: &str = "/usr/share/gocode";
    if !Path::new(SOURCES).join("src/go.etcd.io/etcd/clientv3/concurrency").is_dir() {
        apt::install(&["golang-etcd-server-dev"])?;
    }
    if !apt::has("go") {
        apt::install(&["golang-go"])?;
    }
    let source = workspace::root().join("xtask/interop/etcd-go/peer.go");
    let mut build = Command::new("go");
    build.env("GO111MODULE", "off").env("GOPATH", SOURCES).env("GOFLAGS", "");
    shell::run(build.arg("build").arg("-o").arg(home.join("peer")).arg(source))
}

fn hosts(show: &Show) -> Result<String> {
    Ok(show.url.strip_prefix("etcd://").context("no etcd")?.split('?').next().unwrap_or_default().to_owned())
}

fn ours(show: &Show, lease: Duration) -> Result<Lockline> {
    Lockline::start(&show.lockline, &show.url, lease)
}

/// `etcdctl lock` or `elect`, which holds until it is told to end. Killed when it is dropped.
struct Ctl {
    child: Child,
    lines: Receiver<String>,
}

impl Ctl {
    fn start(show: &Show, args: &[&str]) -> Result<Ctl> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &hosts(show)?]).args(args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("etcdctl")?;
        let stdout = BufReader::new(child.stdout.take().context("its answers")?);
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Ctl { child, lines })
    }

    fn lock(show: &Show, name: &str, lease: Duration) -> Result<Ctl> {
        Ctl::start(show, &["lock", "--ttl", &lease.as_secs().to_string(), name])
    }

    /// It says its key when it is in.
    fn is_in(&self) -> Result<String> {
        self.lines.recv_timeout(Duration::from_secs(30)).context("it does not get in")
    }

    fn waits(&self) -> Result<()> {
        ensure!(self.lines.recv_timeout(MOMENT).is_err(), "it got what another holds");
        Ok(())
    }

    /// As Ctrl-C does: it lets go, and ends.
    fn let_go(mut self) -> Result<()> {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            kill_process(pid, Signal::INT)?;
        }
        self.child.wait()?;
        Ok(())
    }

    fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Ctl {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn show_etcdctl(show: &mut Show) -> Result<()> {
    show.row("etcdctl lock holds, we wait; it lets go, we get it", |show| {
        let (name, mut we) = (show.name("theirs"), ours(show, LONG)?);
        let they = Ctl::lock(show, &name, LONG)?;
        let key = they.is_in()?;
        ensure!(key.starts_with(&format!("{name}/")), "its key is {key}");
        we.is_busy(&name, Duration::ZERO)?;
        we.begin(&name, LONG)?;
        std::thread::sleep(MOMENT);
        they.let_go()?;
        let (token, took) = timed(|| we.answer())?;
        ensure!(token.is_some(), "we did not get it");
        Ok(format!("after {} ms", took.as_millis()))
    });
    show.row("we hold, etcdctl lock waits; we let go, it gets it", |show| {
        let (name, mut we) = (show.name("ours"), ours(show, LONG)?);
        we.hold(&name)?;
        let they = Ctl::lock(show, &name, LONG)?;
        they.waits()?;
        we.is_valid(&name)?;
        we.release(&name)?;
        let (_, took) = timed(|| they.is_in())?;
        we.is_busy(&name, Duration::ZERO)?;
        Ok(format!("after {} ms", took.as_millis()))
    });
    show.row("one line: etcdctl, we, etcdctl, we, in the order they came", |show| {
        let (name, mut second, mut fourth) = (show.name("line"), ours(show, LONG)?, ours(show, LONG)?);
        let first = Ctl::lock(show, &name, LONG)?;
        first.is_in()?;
        second.begin(&name, LONG)?;
        std::thread::sleep(MOMENT);
        let third = Ctl::lock(show, &name, LONG)?;
        third.waits()?;
        fourth.begin(&name, LONG)?;
        std::thread::sleep(MOMENT);
        first.let_go()?;
        let token = second.answer()?.context("the second is not in")?;
        third.waits()?;
        second.release(&name)?;
        third.is_in()?;
        third.let_go()?;
        let last = fourth.answer()?.context("the fourth is not in")?;
        ensure!(last > token, "tokens {token}, {last}");
        Ok(format!("our tokens {token}, {last}"))
    });
    show.row("etcdctl lock is killed with -9, we get it when its lease has ended", |show| {
        let (name, mut we) = (show.name("killed"), ours(show, LONG)?);
        let they = Ctl::lock(show, &name, SHORT)?;
        they.is_in()?;
        we.begin(&name, LONG)?;
        std::thread::sleep(MOMENT);
        they.kill()?;
        let (token, took) = timed(|| we.answer())?;
        ensure!(token.is_some() && took <= SHORT + Duration::from_secs(2), "after {took:?}");
        Ok(format!("after {} ms on a lease of {SHORT:?}", took.as_millis()))
    });
    show.row("we are killed with -9, etcdctl lock gets it when our lease has ended", |show| {
        let (name, mut we) = (show.name("killed"), ours(show, SHORT)?);
        we.hold(&name)?;
        let they = Ctl::lock(show, &name, LONG)?;
        they.waits()?;
        we.kill()?;
        let (_, took) = timed(|| they.is_in())?;
        ensure!(took <= SHORT + Duration::from_secs(2), "after {took:?}");
        Ok(format!("after {} ms on a lease of {SHORT:?}", took.as_millis()))
    });
    show.row("etcdctl elect leads, we stand behind it; it resigns, we lead", |show| {
        let (name, mut we) = (show.name("elect"), ours(show, LONG)?);
        let they = Ctl::start(show, &["elect", &name, "node-1"])?;
        they.is_in()?;
        we.is_busy(&name, Duration::ZERO)?;
        we.begin(&name, LONG)?;
        std::thread::sleep(MOMENT);
        they.let_go()?;
        ensure!(we.answer()?.is_some(), "we do not lead");
        let seen = Ctl::start(show, &["elect", "--listen", &name])?;
        ensure!(seen.is_in()?.starts_with(&name), "etcdctl elect --listen does not see us");
        let label = seen.is_in()?;
        ensure!(label == "interop", "it sees {label:?}");
        Ok(format!("etcdctl elect --listen sees {label:?}"))
    });
    show.row("we lead, etcdctl elect stands behind us; we resign, it leads", |show| {
        let (name, mut we) = (show.name("elect"), ours(show, LONG)?);
        we.hold(&name)?;
        let they = Ctl::start(show, &["elect", &name, "node-2"])?;
        they.waits()?;
        we.release(&name)?;
        they.is_in()?;
        we.is_busy(&name, Duration::ZERO)?;
        Ok("in turn".to_owned())
    });
    Ok(())
}

pub(super) fn show_go(show: &mut Show) -> Result<()> {
    let theirs = |show: &Show| Peer::start(Command::new(show.home.join("peer")).arg(hosts(show)?));
    let long = LONG.as_millis();
    show.row("they hold, we are busy; they let go, we get it", |show| {
        let (name, mut we, mut they) = (show.name("theirs"), ours(show, LONG)?, theirs(show)?);
        they.expect(&format!("lock {name} {long} 0"), "held")?;
        we.is_busy(&name, MOMENT)?;
        we.begin(&name, LONG)?;
        std::thread::sleep(MOMENT);
        they.expect(&format!("unlock {name}"), "free")?;
        let (token, took) = timed(|| we.answer())?;
        ensure!(token.is_some(), "we did not get it");
        Ok(format!("after {} ms", took.as_millis()))
    });
    show.row("we hold, they are busy; we let go, they get it", |show| {
        let (name, mut we, mut they) = (show.name("ours"), ours(show, LONG)?, theirs(show)?);
        we.hold(&name)?;
        they.expect(&format!("lock {name} {long} {}", MOMENT.as_millis()), "busy")?;
        they.begin(&format!("lock {name} {long} 20000"))?;
        std::thread::sleep(MOMENT);
        we.is_valid(&name)?;
        we.release(&name)?;
        let (answer, took) = timed(|| they.answer())?;
        ensure!(answer == "held", "they said {answer:?}");
        Ok(format!("after {} ms", took.as_millis()))
    });
    show.row("both take turns in one lock, as fast as they can", |show| {
        let (name, mut we, mut they) = (show.name("turns"), ours(show, LONG)?, theirs(show)?);
        let (ours, theirs) = take_turns(&mut we, &mut they, &name)?;
        let (fewest, most) = (ours.min(theirs), ours.max(theirs));
        ensure!(most - fewest <= 2 + most / 5, "{ours} turns for us, {theirs} for them");
        Ok(format!("{ours} turns for us, {theirs} for them, never two inside"))
    });
    show.row("they are killed with -9, we get it when their lease has ended", |show| {
        let (name, mut we, mut they) = (show.name("killed"), ours(show, LONG)?, theirs(show)?);
        they.expect(&format!("lock {name} {} 0", SHORT.as_millis()), "held")?;
        we.begin(&name, LONG)?;
        std::thread::sleep(MOMENT);
        they.kill()?;
        let (token, took) = timed(|| we.answer())?;
        ensure!(token.is_some() && took <= SHORT + Duration::from_secs(2), "after {took:?}");
        Ok(format!("after {} ms on a lease of {SHORT:?}", took.as_millis()))
    });
    show.row("we are killed with -9, they get it when our lease has ended", |show| {
        let (name, mut we, mut they) = (show.name("killed"), ours(show, SHORT)?, theirs(show)?);
        we.hold(&name)?;
        they.begin(&format!("lock {name} {long} 20000"))?;
        std::thread::sleep(MOMENT);
        we.kill()?;
        let (answer, took) = timed(|| they.answer())?;
        ensure!(answer == "held" && took <= SHORT + Duration::from_secs(2), "{answer:?} after {took:?}");
        Ok(format!("after {} ms on a lease of {SHORT:?}", took.as_millis()))
    });
    show.row("elections: they see us lead, and lead after us", |show| {
        let (name, mut we, mut they) = (show.name("elect"), ours(show, LONG)?, theirs(show)?);
        we.hold(&name)?;
        they.expect(&format!("leader {name}"), "interop")?;
        they.begin(&format!("campaign {name} node-1 20000"))?;
        std::thread::sleep(MOMENT);
        we.release(&name)?;
        ensure!(they.answer()? == "held", "they do not lead");
        we.is_busy(&name, Duration::ZERO)?;
        we.begin(&name, LONG)?;
        std::thread::sleep(MOMENT);
        they.expect(&format!("resign {name}"), "free")?;
        ensure!(we.answer()?.is_some(), "we do not lead again");
        Ok("in turn".to_owned())
    });
    Ok(())
}
