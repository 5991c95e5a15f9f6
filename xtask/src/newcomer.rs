//! `cargo xtask newcomer`: what somebody does who has just found Lockline, in fresh folders.

mod http;
mod load;
mod service;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{shell, workspace};

/// One part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// The library resolves beside what people use.
    Resolve,
    /// What is published says where it comes from, and can be packed.
    Metadata,
    /// The library is built beside what people use. Takes minutes.
    Build,
    /// The first lock on a Redis that has just been started.
    Redis,
    /// A web service with locks, built in a fresh folder, started twice, loaded and killed. Takes minutes.
    Service,
}

/// What is cheap enough for every change.
pub(crate) const QUICK: [Part; 2] = [Part::Resolve, Part::Metadata];

/// Runs these parts, or all.
pub(crate) fn newcomer(only: &[Part]) -> Result<()> {
    let all = [Part::Resolve, Part::Metadata, Part::Redis, Part::Service, Part::Build];
    for part in all.into_iter().filter(|part| only.is_empty() || only.contains(part)) {
        shell::say(&format!("== newcomer: {part:?}"));
        match part {
            Part::Resolve => resolve()?,
            Part::Metadata => metadata()?,
            Part::Build => build()?,
            Part::Redis => fresh_redis()?,
            Part::Service => service::service()?,
        }
    }
    Ok(())
}

/// Somebody's manifest, and whether there is a version of everything that fits.
struct Neighbour {
    name: &'static str,
    dependencies: &'static str,
    features: &'static [&'static str],
    fits: bool,
}

const SERVERS: &[&str] = &["redis", "postgres", "mysql", "etcd-tls", "zookeeper-tls"];
const SQLITE: &[&str] = &["sqlite"];

const fn beside(
    name: &'static str,
    dependencies: &'static str,
    features: &'static [&'static str],
) -> Neighbour {
    Neighbour { name, dependencies, features, fits: true }
}

/// The README's table of features says the same.
const NEIGHBOURS: &[Neighbour] = &[
    beside("sqlx-0-8", "sqlx = { version = '0.8', features = ['runtime-tokio', 'postgres'] }", SERVERS),
    beside("sqlx-0-8-sqlite", "sqlx = { version = '0.8', features = ['runtime-tokio', 'sqlite'] }", SERVERS),
    beside("sqlx-0-9", "sqlx = { version = '0.9', features = ['runtime-tokio', 'postgres'] }", SERVERS),
    beside("sqlx-0-9-both", "sqlx = { version = '0.9', features = ['runtime-tokio', 'sqlite'] }", SQLITE),
    beside("sea-orm-1", "sea-orm = { version = '1', features = ['sqlx-postgres'] }", SERVERS),
    beside("sea-orm-2", "sea-orm = { version = '2.0.0-rc', features = ['sqlx-sqlite'] }", SQLITE),
    beside(
        "diesel-2",
        "diesel = { version = '2', features = ['sqlite'] }\nlibsqlite3-sys = { version = '*', features = ['bundled'] }",
        SQLITE,
    ),
    beside("deadpool-sqlite", "deadpool-sqlite = '0.14'", SQLITE),
    beside("rusqlite-0-37", "rusqlite = { version = '0.37', features = ['bundled'] }", SERVERS),
    beside("rusqlite-0-39", "rusqlite = { version = '0.39', features = ['bundled'] }", SQLITE),
    beside("rusqlite-0-40", "rusqlite = { version = '0.40', features = ['bundled'] }", SQLITE),
    beside("rusqlite-0-41", "rusqlite = { version = '0.41', features = ['bundled'] }", SQLITE),
    // Its SQLite corrupts files that several processes write: better no program than that one.
    Neighbour {
        name: "sqlx-0-8-and-sqlite",
        dependencies: "sqlx = { version = '0.8', features = ['runtime-tokio', 'postgres'] }",
        features: SQLITE,
        fits: false,
    },
];

impl Neighbour {
    /// Their project, in a fresh folder.
    fn project(&self, folder: &Path) -> Result<()> {
        let Neighbour { name, dependencies, features, .. } = self;
        let library = workspace::root().join("crates").join("lockline");
        std::fs::create_dir_all(folder.join("src"))?;
        std::fs::write(folder.join("src").join("lib.rs"), "pub use lockline::Locks;\n")?;
        let manifest = format!(
            "[package]\nname = '{name}'\nedition = '2024'\n\n[dependencies]\n{dependencies}\n\
             lockline = {{ path = {library:?}, features = {features:?} }}\n\n[workspace]\n"
        );
        Ok(std::fs::write(folder.join("Cargo.toml"), manifest)?)
    }

    fn cargo(&self, folder: &Path, words: &[&str]) -> Command {
        let mut command = shell::cargo(words);
        command.current_dir(folder);
        command
    }

    fn resolve(&self, folder: &Path) -> Result<()> {
        self.project(folder)?;
        let mut command = self.cargo(folder, &["generate-lockfile", "--quiet"]);
        let output = command.output().context("cargo")?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !self.fits {
            ensure!(!output.status.success(), "{} should not resolve, and does", self.name);
            ensure!(said.contains("libsqlite3-sys"), "{} fails for another reason: {said}", self.name);
            return Ok(());
        }
        ensure!(output.status.success(), "{} does not resolve: {said}", self.name);
        let lock = std::fs::read_to_string(folder.join("Cargo.lock"))?;
        let copies = lock.matches("name = \"libsqlite3-sys\"").count();
        ensure!(copies <= 1, "{} has {copies} copies of SQLite", self.name);
        Ok(())
    }
}

fn resolve() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for neighbour in NEIGHBOURS {
        neighbour.resolve(&folder.path().join(neighbour.name))?;
        let word = if neighbour.fits { "resolves" } else { "is refused, as documented" };
        shell::say(&format!("   {} with {}: {word}", neighbour.name, neighbour.features.join(", ")));
    }
    Ok(())
}

fn build() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for neighbour in NEIGHBOURS.iter().filter(|neighbour| neighbour.fits) {
        let project = folder.path().join(neighbour.name);
        neighbour.resolve(&project)?;
        let start = Instant::now();
        let mut check = neighbour.cargo(&project, &["check", "--quiet"]);
        // One for all: most of what they need is the same.
        shell::run(check.env("CARGO_TARGET_DIR", folder.path().join("target")))?;
        shell::say(&format!("   {}: checked in {} s", neighbour.name, start.elapsed().as_secs()));
    }
    Ok(())
}

/// The crates that are published.
const PUBLISHED: [&str; 2] = ["lockline", "lockline-cli"];

fn metadata() -> Result<()> {
    for name in PUBLISHED {
        let package = workspace::package_data(name)?;
        for field in ["description", "license", "repository", "homepage", "readme", "rust_version"] {
            ensure!(package[field].as_str().is_some_and(|text| !text.is_empty()), "{name} has no {field}");
        }
        let listed =
            shell::output(&mut shell::cargo(["package", "--list", "--allow-dirty", "--package", name]))?;
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "Cargo.toml"] {
            ensure!(listed.lines().any(|line| line == file), "the package {name} has no {file}");
        }
        shell::say(&format!("   {name}: {} files", listed.lines().count()));
    }
    Ok(())
}

/// How long somebody waits for a first lock before they think that it does not work.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a person takes to start a server and to type the next command.
const TYPED: Duration = Duration::from_secs(2);

/// What the command itself may take on a busy machine: to start, to connect, and to be let in.
const OWN_TIME: Duration = Duration::from_millis(500);

/// The first lock on a Redis that has just been started comes soon, and the screen says why it does not come at once.
///
/// Whoever asks in the second in which the server was started waits for the whole restart guard, which is as long as the
/// patience: the server tells when it was started in whole seconds, and a guard must outlast the default lease.
fn fresh_redis() -> Result<()> {
    let lockline = lockline()?;
    for (asked_after, patience) in [(Duration::ZERO, PATIENCE + OWN_TIME), (TYPED, PATIENCE)] {
        let waited = first_lock(&lockline, asked_after)?;
        ensure!(
            waited <= patience,
            "asked {asked_after:?} after a Redis was started, the first lock came after {waited:?}"
        );
        let (asked_after, waited) = (asked_after.as_secs(), waited.as_secs_f64());
        shell::say(&format!(
            "   asked {asked_after} s after the server's start, the lock came after {waited:.2} s"
        ));
    }
    Ok(())
}

/// Starts a Redis as its package does, and asks for a lock so long after. Gives how long that took.
fn first_lock(lockline: &Path, asked_after: Duration) -> Result<Duration> {
    let folder = tempfile::tempdir()?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let started = Instant::now();
    let server = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .context("redis-server (cargo xtask engines up installs it)")?;
    let server = Ended(server);
    wait_for_port(port)?;
    std::thread::sleep(asked_after.saturating_sub(started.elapsed()));
    let start = Instant::now();
    let output = Command::new(lockline)
        .args(["run", "-v", "--on", &format!("redis://127.0.0.1:{port}"), "hello", "--", "echo", "mine"])
        .output()?;
    let waited = start.elapsed();
    drop(server);
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && output.stdout == b"mine\n", "the first lock failed: {said}");
    ensure!(
        waited < Duration::from_secs(2) || said.contains("redis restarted"),
        "it took {waited:?}, and nothing said why: {said}"
    );
    Ok(waited)
}

fn wait_for_port(port: u16) -> Result<()> {
    let start = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if start.elapsed() > PATIENCE {
            bail!("redis-server did not listen");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Builds the command.
fn lockline() -> Result<PathBuf> {
    shell::run(&mut shell::cargo(["build", "--quiet", "--package", "lockline-cli"]))?;
    Ok(workspace::target_dir()?.join("debug").join("lockline"))
}

/// A program that ends with this.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
