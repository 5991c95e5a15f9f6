//! ShedLock: Java's scheduled tasks, which lock in a table. With the clock of the database, and with their own.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Show;
use super::peer::{Lockline, Peer, take_turns, timed};
use crate::engines::apt;
use crate::{shell, workspace};

/// A lease that ends in no row.
const LONG: Duration = Duration::from_secs(30);
/// A lease that ends soon.
const SHORT: Duration = Duration::from_millis(1500);
/// A moment in which a lock that is held stays held.
const MOMENT: Duration = Duration::from_millis(300);
/// How much earlier than a lease says it may have ended: it began before it was answered.
const BEFORE: Duration = Duration::from_millis(200);

pub(super) fn install(home: &Path) -> Result<()> {
    if !apt::has("mvn") || !apt::has("javac") {
        apt::install(&["maven", "default-jdk-headless"])?;
    }
    let (lib, classes) = (home.join("lib"), home.join("classes"));
    let sources = workspace::root().join("xtask/interop/shedlock");
    let mut fetch = Command::new("mvn");
    fetch.args(["--quiet", "--batch-mode", "dependency:copy-dependencies", "--file"]);
    fetch.arg(sources.join("pom.xml")).arg(format!("-DoutputDirectory={}", lib.display()));
    shell::run(&mut fetch)?;
    let jars = format!("{}/*", lib.display());
    shell::run(Command::new("javac").args(["-cp", &jars, "-d"]).arg(&classes).arg(sources.join("Peer.java")))
}

/// With MariaDB's own driver.
pub(super) fn show_on_mariadb(show: &mut Show) -> Result<()> {
    show_on_either(show, "mariadb", "")
}

/// With MySQL's own driver, which logs in without TLS only if it may ask for the key that hides the password; and whose clock is
/// that of the server's zone only if it is told so.
pub(super) fn show_on_mysql(show: &mut Show) -> Result<()> {
    show_on_either(show, "mysql", "&sslMode=DISABLED&allowPublicKeyRetrieval=true&connectionTimeZone=SERVER")
}

fn show_on_either(show: &mut Show, jdbc: &str, options: &str) -> Result<()> {
    let port = port(show)?;
    let jdbc = format!("jdbc:{jdbc}://127.0.0.1:{port}/interop?createDatabaseIfNotExist=true{options}");
    let url = format!("mysql://root@127.0.0.1:{port}/interop?layout=shedlock");
    show_both_clocks(show, &Sides { jdbc, user: "root", driver: "mysql", url, clock: "database" });
    Ok(())
}

pub(super) fn show_on_postgres(show: &mut Show) -> Result<()> {
    let port = port(show)?;
    let jdbc = format!("jdbc:postgresql://127.0.0.1:{port}/postgres");
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?layout=shedlock");
    show_both_clocks(show, &Sides { jdbc, user: "postgres", driver: "postgres", url, clock: "database" });
    Ok(())
}

fn port(show: &Show) -> Result<String> {
    let (_, rest) = show.url.split_once("://").context("no address")?;
    let host = rest.split(['?', '/']).next().context("no host")?;
    Ok(host.rsplit(':').next().context("no port")?.to_owned())
}

/// How to start each side.
#[derive(Clone)]
struct Sides {
    jdbc: String,
    user: &'static str,
    /// Whose schema makes the table.
    driver: &'static str,
    url: String,
    /// Whose clock they use.
    clock: &'static str,
}

impl Sides {
    fn theirs(&self, show: &Show) -> Result<Peer> {
        let classes = format!("{0}/classes:{0}/lib/*", show.home.display());
        let table = format!("crates/lockline/src/drivers/{}/sql/shared/shedlock.sql", self.driver);
        let mut java = Command::new("java");
        java.args(["-cp", &classes, "Peer", &self.jdbc, self.user]);
        Peer::start(java.arg(workspace::root().join(table)).arg(self.clock).stderr(Stdio::null()))
    }

    /// Theirs first: it makes the table if there is none.
    fn both(&self, show: &Show, lease: Duration) -> Result<(Lockline, Peer)> {
        let they = self.theirs(show)?;
        Ok((Lockline::start(&show.lockline, &self.url, lease)?, they))
    }
}

fn show_both_clocks(show: &mut Show, sides: &Sides) {
    show_exclusion(show, sides);
    show_handover(show, sides);
    show_crashes(show, sides);
    show_extension(show, sides);
    show.row("database clock: a late unlock of theirs frees nothing of ours", |show| {
        let (mut we, mut they) = late_unlock(show, sides)?;
        they.expect("unlock late", "free")?;
        std::thread::sleep(SHORT);
        we.is_valid("late")?;
        Ok("they ask for their own name".to_owned())
    });
    let own = Sides { clock: "own", ..sides.clone() };
    show_exclusion(show, &own);
    show_handover(show, &own);
    show_crashes(show, &own);
    show.row("own clock: a late unlock of theirs frees our lock, and our guard says so", |show| {
        let (mut we, mut they) = late_unlock(show, &own)?;
        they.expect("unlock late", "free")?;
        let (_, took) = timed(|| {
            let start = Instant::now();
            while we.is_valid("late").is_ok() {
                ensure!(start.elapsed() < LONG, "our guard says that it is valid");
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        })?;
        Ok(format!("after {} ms, with a lease of {SHORT:?}", took.as_millis()))
    });
}

fn show_exclusion(show: &mut Show, sides: &Sides) {
    let clock = sides.clock;
    show.row(format!("{clock} clock: they hold, we are busy"), |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let name = show.name("theirs");
        they.expect(&format!("lock {name} {} 0", LONG.as_millis()), "held")?;
        we.is_busy(&name, Duration::ZERO)?;
        we.is_busy(&name, MOMENT)?;
        they.expect(&format!("unlock {name}"), "free")?;
        we.hold(&name)?;
        Ok("until they unlock".to_owned())
    });
    show.row(format!("{clock} clock: we hold, their task is skipped"), |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let name = show.name("ours");
        let task = format!("task {name} {}", LONG.as_millis());
        they.expect(&task, "ran")?;
        we.hold(&name)?;
        they.expect(&task, "skipped")?;
        they.expect(&format!("lock {name} {} {}", LONG.as_millis(), MOMENT.as_millis()), "busy")?;
        we.is_valid(&name)?;
        we.release(&name)?;
        they.expect(&task, "ran")?;
        Ok("and runs before and after".to_owned())
    });
    show.row(format!("{clock} clock: both take turns in one lock, as fast as they can"), |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let (ours, theirs) = take_turns(&mut we, &mut they, &show.name("turns"))?;
        Ok(format!("{ours} turns for us, {theirs} for them, never two inside"))
    });
}

fn show_handover(show: &mut Show, sides: &Sides) {
    let clock = sides.clock;
    show.row(format!("{clock} clock: they let go, we get it"), |show| {
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
    show.row(format!("{clock} clock: lockAtLeastFor of theirs is respected"), |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let (name, start) = (show.name("least"), Instant::now());
        they.expect(&format!("lock {name} {} 0 {}", LONG.as_millis(), SHORT.as_millis()), "held")?;
        they.expect(&format!("unlock {name}"), "free")?;
        we.hold(&name)?;
        let took = start.elapsed();
        ensure!(took + BEFORE >= SHORT && took < LONG / 2, "we got it after {took:?}");
        Ok(format!("unlocked at once, ours after {} ms of {SHORT:?}", took.as_millis()))
    });
}

fn show_crashes(show: &mut Show, sides: &Sides) {
    let clock = sides.clock;
    show.row(format!("{clock} clock: they are killed with -9, we get it after lockAtMostFor"), |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let (name, start) = (show.name("killed"), Instant::now());
        they.expect(&format!("lock {name} {} 0", SHORT.as_millis()), "held")?;
        they.kill()?;
        we.hold(&name)?;
        let took = start.elapsed();
        ensure!(took + BEFORE >= SHORT && took < LONG / 2, "we got it after {took:?}");
        Ok(format!("after {} ms of {SHORT:?}", took.as_millis()))
    });
    show.row(format!("{clock} clock: we are killed with -9, they get it when our lease has ended"), |show| {
        let (mut we, mut they) = sides.both(show, SHORT)?;
        let name = show.name("killed");
        we.hold(&name)?;
        std::thread::sleep(SHORT * 2);
        we.is_valid(&name)?;
        we.kill()?;
        let lock = format!("lock {name} {} {}", LONG.as_millis(), LONG.as_millis());
        let (got, took) = timed(|| they.ask(&lock))?;
        ensure!(got == "held" && took < SHORT * 2, "{got} after {took:?}");
        Ok(format!("after {} ms; before, we kept it for {:?}", took.as_millis(), SHORT * 2))
    });
}

fn show_extension(show: &mut Show, sides: &Sides) {
    show.row("database clock: they extend, we wait", |show| {
        let (mut we, mut they) = sides.both(show, LONG)?;
        let name = show.name("extend");
        they.expect(&format!("lock {name} {} 0", SHORT.as_millis()), "held")?;
        for _ in 0..4 {
            we.is_busy(&name, SHORT / 2)?;
            they.expect(&format!("extend {name} {}", SHORT.as_millis()), "held")?;
        }
        they.expect(&format!("unlock {name}"), "free")?;
        we.hold(&name)?;
        Ok(format!("held for {:?} on a lockAtMostFor of {SHORT:?}", SHORT * 2))
    });
}

/// They hold the lock called `late` for too long; we have it by now, and they are about to unlock it.
fn late_unlock(show: &Show, sides: &Sides) -> Result<(Lockline, Peer)> {
    let (mut we, mut they) = sides.both(show, SHORT)?;
    // What the row before left ends by itself.
    they.expect(&format!("lock late {} {}", SHORT.as_millis(), LONG.as_millis()), "held")?;
    we.hold("late")?;
    Ok((we, they))
}
