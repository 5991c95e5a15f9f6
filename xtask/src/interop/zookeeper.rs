//! Clients that share locks on ZooKeeper: kazoo, and Curator's mutex and read-write lock.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Show;
use super::peer::{Lockline, Peer, take_turns, timed};
use crate::engines::apt;
use crate::{shell, workspace};

/// Our lease, and their session, where nothing ends.
const LONG: Duration = Duration::from_secs(30);
/// Our lease, and their session, where somebody is killed.
const SHORT: Duration = Duration::from_millis(2000);
/// A moment in which a lock that is held stays held.
const MOMENT: Duration = Duration::from_millis(300);
/// A wait that is long enough for everything.
const WAIT: Duration = Duration::from_secs(20);
/// How often somebody hands over to somebody else, where the time that takes is measured.
const HANDOVERS: usize = 5;

fn sources(peer: &str) -> std::path::PathBuf {
    workspace::root().join("xtask/interop").join(peer)
}

pub(super) fn install_kazoo(home: &Path) -> Result<()> {
    if !apt::has("python3") {
        apt::install(&["python3", "python3-venv"])?;
    }
    let venv = home.join("venv");
    if !venv.join("bin/pip").exists() {
        shell::run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    }
    let requirements = sources("kazoo").join("requirements.txt");
    let mut install = Command::new(venv.join("bin/pip"));
    shell::run(install.args(["install", "--quiet", "--requirement"]).arg(requirements))
}

pub(super) fn install_curator(home: &Path) -> Result<()> {
    if !apt::has("mvn") || !apt::has("javac") {
        apt::install(&["maven", "default-jdk-headless"])?;
    }
    let (lib, classes) = (home.join("lib"), home.join("classes"));
    let mut fetch = Command::new("mvn");
    fetch.args(["--quiet", "--batch-mode", "dependency:copy-dependencies", "--file"]);
    fetch.arg(sources("curator").join("pom.xml")).arg(format!("-DoutputDirectory={}", lib.display()));
    shell::run(&mut fetch)?;
    let jars = format!("{}/*", lib.display());
    let source = sources("curator").join("Peer.java");
    shell::run(Command::new("javac").args(["-cp", &jars, "-d"]).arg(&classes).arg(source))
}

pub(super) fn show_kazoo(show: &mut Show) -> Result<()> {
    let (program, script) = (show.home.join("venv/bin/python"), sources("kazoo").join("peer.py"));
    let start = |servers: &str, session: &str| {
        Peer::start(Command::new(&program).arg(&script).args([servers, session]).stderr(Stdio::null()))
    };
    show_all(show, &start);
    Ok(())
}

pub(super) fn show_curator(show: &mut Show) -> Result<()> {
    let classes = format!("{0}/classes:{0}/lib/*", show.home.display());
    let start = |servers: &str, session: &str| {
        let mut java = Command::new("java");
        Peer::start(java.args(["-cp", &classes, "Peer", servers, session]).stderr(Stdio::null()))
    };
    show_all(show, &start);
    Ok(())
}

type Start<'a> = &'a dyn Fn(&str, &str) -> Result<Peer>;

/// Both sides, ours with this lease, theirs with a session of the same length.
fn both(show: &Show, start: Start<'_>, length: Duration) -> Result<(Lockline, Peer)> {
    let servers = show.url.strip_prefix("zookeeper://").context("no servers")?;
    let they = start(servers, &length.as_millis().to_string())?;
    Ok((Lockline::start(&show.lockline, &show.url, length)?, they))
}

/// Waits until so many claims stand in the line of a lock: on a busy machine a peer takes its time to ask for one.
fn until_in_line(show: &Show, name: &str, count: usize) -> Result<()> {
    let server = show.url.strip_prefix("zookeeper://").context("no servers")?;
    let path = format!("/lockline/{name}/");
    let start = Instant::now();
    loop {
        // One of ZooKeeper's four-letter words: all sessions and their ephemeral znodes.
        let mut stream = TcpStream::connect(server)?;
        stream.write_all(b"dump")?;
        let mut sessions = String::new();
        stream.read_to_string(&mut sessions)?;
        let claims = sessions.lines().filter(|line| line.trim_start().starts_with(&path)).count();
        if claims == count {
            return Ok(());
        }
        ensure!(start.elapsed() < WAIT / 2, "{claims} stand in line, not {count}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn show_all(show: &mut Show, start: Start<'_>) {
    show_exclusion(show, start);
    show_order(show, start);
    show_handover(show, start);
    show_kills(show, start);
    show_sides(show, start);
}

fn show_exclusion(show: &mut Show, start: Start<'_>) {
    show.row("they hold, we are busy; we hold, they are busy", |show| {
        let (mut we, mut they) = both(show, start, LONG)?;
        let name = show.name("busy");
        they.expect(&format!("lock {name} 0 1000"), "held")?;
        we.is_busy(&name, Duration::ZERO)?;
        we.is_busy(&name, MOMENT)?;
        they.expect(&format!("unlock {name}"), "free")?;
        we.hold(&name)?;
        they.expect(&format!("lock {name} 0 {}", MOMENT.as_millis()), "busy")?;
        we.is_valid(&name)?;
        we.release(&name)?;
        they.expect(&format!("lock {name} 0 1000"), "held")?;
        Ok("at once, and for as long as was asked".to_owned())
    });
    show.row("both take turns in one lock, as fast as they can", |show| {
        let (mut we, mut they) = both(show, start, LONG)?;
        let name = show.name("turns");
        let (ours, theirs) = take_turns(&mut we, &mut they, &name)?;
        Ok(format!("{ours} turns for us, {theirs} for them, never two inside"))
    });
}

/// One line: whoever came first gets in first, whichever program it is.
fn show_order(show: &mut Show, start: Start<'_>) {
    show.row("we, they, we, they stand in one line, and are served in that order", |show| {
        let (mut holder, mut second) = both(show, start, LONG)?;
        let (mut third, mut fourth) = both(show, start, LONG)?;
        let name = show.name("order");
        holder.hold(&name)?;
        second.begin(&format!("lock {name} 0 {}", WAIT.as_millis()))?;
        until_in_line(show, &name, 2)?;
        third.begin(&name, WAIT)?;
        until_in_line(show, &name, 3)?;
        fourth.begin(&format!("lock {name} 0 {}", WAIT.as_millis()))?;
        until_in_line(show, &name, 4)?;
        holder.release(&name)?;
        ensure!(second.answer()? == "held", "the second did not get it");
        second.expect(&format!("unlock {name}"), "free")?;
        ensure!(third.answer()?.is_some(), "the third did not get it");
        third.release(&name)?;
        ensure!(fourth.answer()? == "held", "the fourth did not get it");
        Ok("each held it before the next".to_owned())
    });
}

fn show_handover(show: &mut Show, start: Start<'_>) {
    show.row("they let go, we get it; we let go, they get it", |show| {
        let (mut we, mut they) = both(show, start, LONG)?;
        let name = show.name("handover");
        let (mut to_us, mut to_them) = (Duration::ZERO, Duration::ZERO);
        they.expect(&format!("lock {name} 0 1000"), "held")?;
        for _ in 0..HANDOVERS {
            we.begin(&name, WAIT)?;
            until_in_line(show, &name, 2)?;
            they.expect(&format!("unlock {name}"), "free")?;
            let (token, took) = timed(|| we.answer())?;
            ensure!(token.is_some(), "we did not get it");
            to_us = to_us.max(took);
            they.begin(&format!("lock {name} 0 {}", WAIT.as_millis()))?;
            until_in_line(show, &name, 2)?;
            we.release(&name)?;
            let (answer, took) = timed(|| they.answer())?;
            ensure!(answer == "held", "they said {answer:?}");
            to_them = to_them.max(took);
        }
        let slowest = to_us.max(to_them);
        // Whoever only looked again would look within a second; a watch tells at once.
        ensure!(slowest < Duration::from_millis(500), "once only after {slowest:?}");
        let ms = |took: Duration| took.as_secs_f64() * 1e3;
        Ok(format!("{HANDOVERS} times each, the slowest after {:.1} and {:.1} ms", ms(to_us), ms(to_them)))
    });
}

fn show_kills(show: &mut Show, start: Start<'_>) {
    show.row("they are killed with -9, we get it when their session has ended", |show| {
        let (mut we, mut they) = both(show, start, SHORT)?;
        let name = show.name("killed");
        they.expect(&format!("lock {name} 0 1000"), "held")?;
        we.begin(&name, WAIT)?;
        until_in_line(show, &name, 2)?;
        they.kill()?;
        let (token, took) = timed(|| we.answer())?;
        ensure!(token.is_some(), "we did not get it");
        // The session, a tick of 200 ms, and a busy machine.
        ensure!(took <= SHORT + Duration::from_millis(1000), "only after {took:?}");
        Ok(format!("after {} ms of a session of {} ms", took.as_millis(), SHORT.as_millis()))
    });
    show.row("we are killed with -9, they get it when our session has ended", |show| {
        let (mut we, mut they) = both(show, start, SHORT)?;
        let name = show.name("killed");
        we.hold(&name)?;
        they.begin(&format!("lock {name} 0 {}", WAIT.as_millis()))?;
        until_in_line(show, &name, 2)?;
        we.kill()?;
        let (answer, took) = timed(|| they.answer())?;
        ensure!(answer == "held", "they said {answer:?}");
        // Our session is half as long again as our lease.
        ensure!(took <= SHORT * 27 / 16 + Duration::from_millis(1000), "only after {took:?}");
        Ok(format!("after {} ms of a lease of {} ms", took.as_millis(), SHORT.as_millis()))
    });
    show.row("a waiter is killed with -9 on either side, and holds nobody up", |show| {
        let (mut holder, mut they) = both(show, start, SHORT)?;
        let (mut we, mut last) = both(show, start, SHORT)?;
        let name = show.name("killed-waiters");
        holder.hold(&name)?;
        they.begin(&format!("lock {name} 0 {}", WAIT.as_millis()))?;
        until_in_line(show, &name, 2)?;
        we.begin(&name, WAIT)?;
        until_in_line(show, &name, 3)?;
        last.begin(&format!("lock {name} 0 {}", WAIT.as_millis()))?;
        until_in_line(show, &name, 4)?;
        they.kill()?;
        we.kill()?;
        holder.release(&name)?;
        let (answer, took) = timed(|| last.answer())?;
        ensure!(answer == "held", "the last said {answer:?}");
        ensure!(took <= SHORT * 27 / 16 + Duration::from_millis(1000), "only after {took:?}");
        Ok(format!("the last got it after {} ms", took.as_millis()))
    });
}

fn show_sides(show: &mut Show, start: Start<'_>) {
    show.row("read-write: readers of both kinds share, writers of both kinds wait", |show| {
        let (mut we, mut they) = both(show, start, LONG)?;
        let name = show.name("sides");
        let brief = MOMENT.as_millis();
        they.expect(&format!("read {name} 1000"), "held")?;
        ensure!(we.side(&name, false, MOMENT)?.is_some(), "we may read with them");
        they.expect(&format!("unlock {name}"), "free")?;
        they.expect(&format!("write {name} {brief}"), "busy")?;
        we.release(&name)?;
        they.expect(&format!("write {name} 1000"), "held")?;
        ensure!(we.side(&name, false, MOMENT)?.is_none(), "they write, we may not read");
        ensure!(we.side(&name, true, MOMENT)?.is_none(), "they write, we may not write");
        they.expect(&format!("unlock {name}"), "free")?;
        ensure!(we.side(&name, true, WAIT)?.is_some(), "we write");
        they.expect(&format!("read {name} {brief}"), "busy")?;
        they.expect(&format!("write {name} {brief}"), "busy")?;
        we.release(&name)?;
        they.expect(&format!("read {name} 1000"), "held")?;
        Ok("shared, and excluded, both ways".to_owned())
    });
    show.row("read-write: a reader behind a waiting writer waits for it", |show| {
        let (mut reader, mut writer) = both(show, start, LONG)?;
        let (mut late, mut later) = both(show, start, LONG)?;
        let name = show.name("behind");
        ensure!(reader.side(&name, false, WAIT)?.is_some(), "it is free");
        writer.begin(&format!("write {name} {}", WAIT.as_millis()))?;
        until_in_line(show, &name, 2)?;
        ensure!(late.side(&name, false, MOMENT)?.is_none(), "our reader passed their writer");
        later.expect(&format!("read {name} {}", MOMENT.as_millis()), "busy")?;
        reader.release(&name)?;
        ensure!(writer.answer()? == "held", "the writer did not get it");
        writer.expect(&format!("unlock {name}"), "free")?;
        ensure!(late.side(&name, false, WAIT)?.is_some(), "then we read");
        Ok("theirs before ours".to_owned())
    });
}
