//! Clients that share locks on Redis: redis-py and node `redlock` with the plain layout, Redisson with its own.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Show;
use super::peer::{Lockline, Peer, take_turns, timed};
use crate::engines::apt;
use crate::{shell, workspace};

/// How often somebody hands over to somebody else, where the time that takes is measured.
const HANDOVERS: usize = 5;

/// A lease that ends in no row.
const LONG: Duration = Duration::from_secs(30);
/// A lease that ends soon.
const SHORT: Duration = Duration::from_millis(1500);
/// A moment in which a lock that is held stays held.
const MOMENT: Duration = Duration::from_millis(300);

/// Where a peer's programs are.
fn sources(peer: &str) -> std::path::PathBuf {
    workspace::root().join("xtask/interop").join(peer)
}

pub(super) fn install_redis_py(home: &Path) -> Result<()> {
    if !apt::has("python3") {
        apt::install(&["python3", "python3-venv"])?;
    }
    let venv = home.join("venv");
    if !venv.join("bin/pip").exists() {
        shell::run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    }
    let requirements = sources("redis-py").join("requirements.txt");
    shell::run(
        Command::new(venv.join("bin/pip")).args(["install", "--quiet", "--requirement"]).arg(requirements),
    )
}

pub(super) fn show_redis_py(show: &mut Show) -> Result<()> {
    let program = show.home.join("venv/bin/python");
    let script = sources("redis-py").join("peer.py");
    show_plain(show, &|port| Peer::start(Command::new(&program).arg(&script).arg(port)))
}

pub(super) fn install_node_redlock(home: &Path) -> Result<()> {
    if !apt::has("npm") {
        apt::install(&["nodejs", "npm"])?;
    }
    // Node looks for packages beside the program.
    for file in ["package.json", "peer.js"] {
        std::fs::copy(sources("node-redlock").join(file), home.join(file))?;
    }
    shell::run(Command::new("npm").args(["install", "--silent", "--no-audit", "--no-fund"]).current_dir(home))
}

pub(super) fn show_node_redlock(show: &mut Show) -> Result<()> {
    let script = show.home.join("peer.js");
    show_plain(show, &|port| Peer::start(Command::new("node").arg(&script).arg(port)))
}

/// The same lock on five nodes, and on the three that are left when two of them are down.
pub(super) fn show_node_redlock_quorum(show: &mut Show) -> Result<()> {
    let script = show.home.join("peer.js");
    let start = |ports: &str| Peer::start(Command::new("node").arg(&script).arg(ports));
    show_plain(show, &start)?;
    let sides = Sides { layout: "plain", start: &start };
    for port in ports(show)?.into_iter().skip(3).map(str::to_owned).collect::<Vec<_>>() {
        let mut node = std::net::TcpStream::connect(format!("127.0.0.1:{port}"))?;
        std::io::Write::write_all(&mut node, b"SHUTDOWN NOSAVE\r\n")?;
    }
    show_turns(show, &sides, "two of five nodes are down: both take turns in one lock");
    Ok(())
}

pub(super) fn install_redisson(home: &Path) -> Result<()> {
    if !apt::has("mvn") || !apt::has("javac") {
        apt::install(&["maven", "default-jdk-headless"])?;
    }
    let (lib, classes) = (home.join("lib"), home.join("classes"));
    let mut fetch = Command::new("mvn");
    fetch.args(["--quiet", "--batch-mode", "dependency:copy-dependencies", "--file"]);
    fetch.arg(sources("redisson").join("pom.xml")).arg(format!("-DoutputDirectory={}", lib.display()));
    shell::run(&mut fetch)?;
    let jars = format!("{}/*", lib.display());
    let source = sources("redisson").join("Peer.java");
    shell::run(Command::new("javac").args(["-cp", &jars, "-d"]).arg(&classes).arg(source))
}

/// The lease of Redisson's watchdog, short enough that its renewals are seen.
const WATCHDOG: Duration = Duration::from_secs(3);

pub(super) fn show_redisson(show: &mut Show) -> Result<()> {
    let classes = format!("{0}/classes:{0}/lib/*", show.home.display());
    let start = |port: &str| {
        let watchdog = WATCHDOG.as_millis().to_string();
        let quiet = std::process::Stdio::null();
        Peer::start(Command::new("java").args(["-cp", &classes, "Peer", port, &watchdog]).stderr(quiet))
    };
    let sides = Sides { layout: "redisson", start: &start };
    show_both_ways(show, &sides)?;
    show_extension_by_watchdog(show, &sides);
    show_wake_up(show, &sides);
    show_hold_count(show, &sides);
    show_fence(show, &Sides { layout: "redisson-fenced", start: &start });
    show_fair_lock_refusal(show, &sides);
    Ok(())
}

/// The ports of the servers, all on this machine.
fn ports(show: &Show) -> Result<Vec<&str>> {
    let (_, rest) = show.url.split_once("://").context("no address")?;
    let hosts = rest.split(['?', '/']).next().context("no hosts")?;
    hosts.split(',').map(|host| host.rsplit(':').next().context("no port")).collect()
}

/// Takes the ports of the servers, with commas between them.
type Start<'a> = &'a dyn Fn(&str) -> Result<Peer>;

/// How to start each side.
struct Sides<'a> {
    layout: &'static str,
    start: Start<'a>,
}

impl Sides<'_> {
    fn theirs(&self, show: &Show) -> Result<Peer> {
        (self.start)(&ports(show)?.join(","))
    }

    fn ours(&self, show: &Show, lease: Duration) -> Result<Lockline> {
        let url = format!("{}&layout={}", show.url, self.layout);
        Lockline::start(&show.lockline, &url, lease)
    }

    fn both(&self, show: &Show, lease: Duration) -> Result<(Lockline, Peer)> {
        Ok((self.ours(show, lease)?, self.theirs(show)?))
    }
}

fn show_plain(show: &mut Show, start: Start<'_>) -> Result<()> {
    let sides = Sides { layout: "plain", start };
    show_both_ways(show, &sides)?;
    show.row("they extend, we wait", |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let name = show.name("extend");
        they.expect(&format!("lock {name} {} 0", SHORT.as_millis()), "held")?;
        for _ in 0..4 {
            we.is_busy(&name, SHORT / 2)?;
            they.expect(&format!("extend {name} {}", SHORT.as_millis()), "held")?;
        }
        they.expect(&format!("unlock {name}"), "free")?;
        we.hold(&name)?;
        Ok(format!("held for {:?} on a lease of {SHORT:?}", SHORT * 2))
    });
    Ok(())
}

/// What every client must show: exclusion, handing over, expiry after `kill -9`, our extension; both directions.
fn show_both_ways(show: &mut Show, sides: &Sides<'_>) -> Result<()> {
    show.row("they hold, we are busy", |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let name = show.name("theirs");
        they.expect(&format!("lock {name} {} 0", LONG.as_millis()), "held")?;
        we.is_busy(&name, Duration::ZERO)?;
        we.is_busy(&name, MOMENT)?;
        they.expect(&format!("unlock {name}"), "free")?;
        Ok("at once, and for as long as we asked".to_owned())
    });
    show.row("we hold, they are busy", |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let name = show.name("ours");
        we.hold(&name)?;
        they.expect(&format!("lock {name} {} 0", LONG.as_millis()), "busy")?;
        they.expect(&format!("lock {name} {} {}", LONG.as_millis(), MOMENT.as_millis()), "busy")?;
        we.is_valid(&name)?;
        we.release(&name)?;
        they.expect(&format!("lock {name} {} 0", LONG.as_millis()), "held")?;
        Ok("at once, and for as long as they asked".to_owned())
    });
    show_turns(show, sides, "both take turns in one lock, as fast as they can");
    show.row("they let go, we get it", |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let name = show.name("handover");
        they.expect(&format!("lock {name} {} 0", LONG.as_millis()), "held")?;
        we.begin(&name, LONG)?;
        std::thread::sleep(MOMENT);
        they.expect(&format!("unlock {name}"), "free")?;
        let (token, took) = timed(|| we.answer())?;
        ensure!(token.is_some(), "we did not get it");
        Ok(format!("after {} ms", took.as_millis()))
    });
    show.row("we let go, they get it", |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let name = show.name("handover");
        we.hold(&name)?;
        they.begin(&format!("lock {name} {} 20000", LONG.as_millis()))?;
        std::thread::sleep(MOMENT);
        we.release(&name)?;
        let (answer, took) = timed(|| they.answer())?;
        ensure!(answer == "held", "they said {answer:?}");
        Ok(format!("after {} ms", took.as_millis()))
    });
    show.row("they are killed with -9, we get it when their lease has ended", |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let name = show.name("killed");
        let ((), took) = timed(|| {
            they.expect(&format!("lock {name} {} 0", SHORT.as_millis()), "held")?;
            they.kill()?;
            we.hold(&name).map(drop)
        })?;
        ensure!(
            took >= SHORT - MOMENT && took <= SHORT * 2,
            "we got it after {took:?} of a lease of {SHORT:?}"
        );
        Ok(format!("after {} ms of a lease of {} ms", took.as_millis(), SHORT.as_millis()))
    });
    show.row("we are killed with -9, they get it when our lease has ended", |show| {
        let (mut we, mut they) = sides.both(show, SHORT)?;
        let name = show.name("killed");
        let (answer, took) = timed(|| {
            we.hold(&name)?;
            we.kill()?;
            they.ask(&format!("lock {name} {} 20000", LONG.as_millis()))
        })?;
        ensure!(answer == "held", "they said {answer:?}");
        ensure!(
            took >= SHORT - MOMENT && took <= SHORT * 2,
            "they got it after {took:?} of a lease of {SHORT:?}"
        );
        Ok(format!("after {} ms of a lease of {} ms", took.as_millis(), SHORT.as_millis()))
    });
    show.row("we extend, they wait", |show| {
        let (mut we, mut they) = sides.both(show, SHORT)?;
        let name = show.name("extend");
        we.hold(&name)?;
        they.expect(&format!("lock {name} {} {}", LONG.as_millis(), (SHORT * 3).as_millis()), "busy")?;
        we.is_valid(&name)?;
        we.release(&name)?;
        Ok(format!("held for {:?} on a lease of {SHORT:?}", SHORT * 3))
    });
    Ok(())
}

/// Both take the lock again and again; a file says whether two were inside.
fn show_turns(show: &mut Show, sides: &Sides<'_>, what: &str) {
    show.row(what, |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let name = show.name("turns");
        let (ours, theirs) = take_turns(&mut we, &mut they, &name)?;
        Ok(format!("{ours} turns for us, {theirs} for them, never two inside"))
    });
}

fn show_extension_by_watchdog(show: &mut Show, sides: &Sides<'_>) {
    show.row("their watchdog extends, we wait", |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let name = show.name("watchdog");
        they.expect(&format!("lock {name} 0 0"), "held")?;
        we.is_busy(&name, WATCHDOG * 2)?;
        they.expect(&format!("unlock {name}"), "free")?;
        we.hold(&name)?;
        Ok(format!("held for {:?} on a lease of {WATCHDOG:?}", WATCHDOG * 2))
    });
    show.row("their watchdog dies with -9, we get it when its lease has ended", |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let name = show.name("watchdog-killed");
        they.expect(&format!("lock {name} 0 0"), "held")?;
        they.kill()?;
        let (_, took) = timed(|| we.hold(&name))?;
        ensure!(took <= WATCHDOG + MOMENT * 2, "only after {took:?}");
        Ok(format!("after {} ms", took.as_millis()))
    });
}

/// A waiter that only looked again would look within a second at best; a message comes at once, every time.
fn show_wake_up(show: &mut Show, sides: &Sides<'_>) {
    show.row("their message wakes us", |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let name = show.name("wake-us");
        let mut slowest = Duration::ZERO;
        for _ in 0..HANDOVERS {
            they.expect(&format!("lock {name} {} 0", LONG.as_millis()), "held")?;
            we.begin(&name, LONG)?;
            std::thread::sleep(MOMENT);
            they.expect(&format!("unlock {name}"), "free")?;
            let (token, took) = timed(|| we.answer())?;
            ensure!(token.is_some(), "we did not get it");
            slowest = slowest.max(took);
            we.release(&name)?;
        }
        ensure!(slowest < Duration::from_millis(150), "once only after {slowest:?}");
        Ok(format!("{HANDOVERS} times, the slowest after {:.1} ms", slowest.as_secs_f64() * 1e3))
    });
    show.row("our message wakes them", |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let name = show.name("wake-them");
        let mut slowest = Duration::ZERO;
        for _ in 0..HANDOVERS {
            we.hold(&name)?;
            they.begin(&format!("lock {name} {} 20000", LONG.as_millis()))?;
            std::thread::sleep(MOMENT);
            we.release(&name)?;
            let (answer, took) = timed(|| they.answer())?;
            ensure!(answer == "held", "they said {answer:?}");
            slowest = slowest.max(took);
            they.expect(&format!("unlock {name}"), "free")?;
        }
        // Without the message they sleep for as long as our lease lasts. (The first time a JVM does anything it is slow.)
        ensure!(slowest < LONG / 10, "once only after {slowest:?}");
        Ok(format!("{HANDOVERS} times, the slowest after {:.1} ms", slowest.as_secs_f64() * 1e3))
    });
}

fn show_hold_count(show: &mut Show, sides: &Sides<'_>) {
    show.row("they hold twice and let go once: still theirs", |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let name = show.name("count");
        let lock = format!("lock {name} {} 0", LONG.as_millis());
        they.expect(&lock, "held")?;
        they.expect(&lock, "held")?;
        they.expect(&format!("count {name}"), "2")?;
        they.expect(&format!("unlock {name}"), "free")?;
        we.is_busy(&name, MOMENT)?;
        they.expect(&format!("count {name}"), "1")?;
        they.expect(&format!("unlock {name}"), "free")?;
        we.hold(&name)?;
        they.expect(&format!("unlock {name}"), "lost")?;
        they.expect(&format!("locked {name}"), "true")?;
        we.is_valid(&name)?;
        we.release(&name)?;
        they.expect(&format!("locked {name}"), "false")?;
        Ok("2, 1, ours, free".to_owned())
    });
}

fn show_fence(show: &mut Show, sides: &Sides<'_>) {
    show.row("tokens rise from RFencedLock to us and back", |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let name = show.name("fenced");
        let (mut tokens, fenced) = (Vec::new(), format!("fenced {name} {} 1000", LONG.as_millis()));
        for _ in 0..3 {
            let theirs = they.ask(&fenced)?;
            tokens.push(theirs.parse::<u64>().with_context(|| theirs)?);
            they.expect(&format!("unlock {name}"), "free")?;
            tokens.push(we.hold(&name)?);
            we.release(&name)?;
        }
        ensure!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
        Ok(format!("{tokens:?}"))
    });
}

fn show_fair_lock_refusal(show: &mut Show, sides: &Sides<'_>) {
    show.row("a name with waiters of a fair lock is refused", |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let mut second = sides.theirs(show)?;
        let name = show.name("fair");
        let fair = format!("fair {name} {}", LONG.as_millis());
        they.expect(&format!("{fair} 0"), "held")?;
        second.begin(&format!("{fair} 20000"))?;
        std::thread::sleep(MOMENT * 5);
        let error = we.lock(&name, Duration::ZERO).err().context("we were not refused")?.to_string();
        ensure!(error.contains("fair lock"), "{error}");
        they.expect(&format!("unlock-fair {name}"), "free")?;
        let got = second.answer()?;
        ensure!(got == "held", "the fair waiter said {got:?}");
        Ok("with an error that says so".to_owned())
    });
}
