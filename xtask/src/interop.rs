//! `cargo xtask interop`: our locks and other clients' are the same locks, shown with the real clients.
//!
//! Not part of the tests: the peers are large, and come from other package managers. A new peer is a row in [`PEERS`]: how
//! to install it, and a function that shows what there is to show. The peers' own programs are in `xtask/interop/NAME`,
//! and all speak the words of [`peer`].

mod etcd;
mod peer;
mod redis;
mod shedlock;
mod zookeeper;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::engines::{self, Fleet};
use crate::{shell, workspace};

/// Another client that shares our locks.
struct OtherClient {
    /// As people type it, and as its folder is called.
    name: &'static str,
    /// The engine they share, as in `cargo xtask test --engines`.
    engine: &'static str,
    /// Installs what is missing into a folder of its own.
    install: fn(&Path) -> Result<()>,
    /// Shows everything.
    show: fn(&mut Show) -> Result<()>,
}

/// All of them.
const PEERS: &[OtherClient] = &[
    OtherClient {
        name: "redis-py",
        engine: "redis",
        install: redis::install_redis_py,
        show: redis::show_redis_py,
    },
    OtherClient {
        name: "node-redlock",
        engine: "redis",
        install: redis::install_node_redlock,
        show: redis::show_node_redlock,
    },
    OtherClient {
        name: "node-redlock-quorum",
        engine: "redlock",
        install: redis::install_node_redlock,
        show: redis::show_node_redlock_quorum,
    },
    OtherClient {
        name: "redisson",
        engine: "redis",
        install: redis::install_redisson,
        show: redis::show_redisson,
    },
    OtherClient {
        name: "kazoo",
        engine: "zookeeper",
        install: zookeeper::install_kazoo,
        show: zookeeper::show_kazoo,
    },
    OtherClient {
        name: "curator",
        engine: "zookeeper",
        install: zookeeper::install_curator,
        show: zookeeper::show_curator,
    },
    OtherClient { name: "etcdctl", engine: "etcd", install: etcd::install_etcdctl, show: etcd::show_etcdctl },
    OtherClient { name: "etcd-go", engine: "etcd", install: etcd::install_go, show: etcd::show_go },
    OtherClient {
        name: "shedlock",
        engine: "mysql",
        install: shedlock::install,
        show: shedlock::show_on_mariadb,
    },
    OtherClient {
        name: "shedlock-mysql",
        engine: "mysql-9",
        install: shedlock::install,
        show: shedlock::show_on_mysql,
    },
    OtherClient {
        name: "shedlock-postgres",
        engine: "postgres",
        install: shedlock::install,
        show: shedlock::show_on_postgres,
    },
];

/// What one peer is shown with: the engine, its programs, and the table.
pub(crate) struct Show {
    /// The engine's address.
    pub(crate) url: String,
    /// Where the peer is installed.
    pub(crate) home: PathBuf,
    /// Our side's program.
    pub(crate) lockline: PathBuf,
    peer: &'static str,
    rows: Vec<Row>,
}

struct Row {
    peer: &'static str,
    what: String,
    outcome: Result<String>,
}

impl Show {
    /// Shows one thing; `how` answers with what was measured. A failure is a row too, and the rest is shown all the same.
    pub(crate) fn row(&mut self, what: impl Into<String>, how: impl FnOnce(&Show) -> Result<String>) {
        let (what, start) = (what.into(), Instant::now());
        let outcome = how(self);
        let verdict = outcome.as_ref().map_or_else(|error| format!("FAILED: {error:#}"), Clone::clone);
        shell::say(&format!("{}: {what}: {verdict} ({:.1} s)", self.peer, start.elapsed().as_secs_f32()));
        self.rows.push(Row { peer: self.peer, what, outcome });
    }

    /// A name that nobody has used.
    pub(crate) fn name(&self, of: &str) -> String {
        let unique = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        format!("interop/{}/{of}/{unique:x}", self.peer)
    }
}

/// Shows the peers of these names; all of them if none is named.
pub(crate) fn interop(names: &[String]) -> Result<()> {
    let peers = named(names)?;
    let lockline = lockline(&peers)?;
    let mut rows = Vec::new();
    for other in peers {
        let home = workspace::target_dir()?.join("interop").join(other.name);
        std::fs::create_dir_all(&home)?;
        (other.install)(&home).with_context(|| format!("cannot install {}", other.name))?;
        // An engine for each, so that nobody finds what another left.
        let fleet = Fleet::start(&engines::named(&[other.engine.to_owned()])?)?;
        let url = fleet.url(other.engine).context("the engine has no address")?;
        let mut show = Show { url, home, lockline: lockline.clone(), peer: other.name, rows: Vec::new() };
        (other.show)(&mut show).with_context(|| other.name)?;
        rows.append(&mut show.rows);
    }
    table(&rows)?;
    let failed = rows.iter().filter(|row| row.outcome.is_err()).count();
    ensure!(failed == 0, "{failed} of {} were not shown", rows.len());
    Ok(())
}

fn named(names: &[String]) -> Result<Vec<&'static OtherClient>> {
    if names.is_empty() {
        return Ok(PEERS.iter().collect());
    }
    let one = |name: &String| {
        PEERS.iter().find(|peer| peer.name == name).with_context(|| {
            let known: Vec<_> = PEERS.iter().map(|peer| peer.name).collect();
            format!("no peer is called {name:?}; there are {}", known.join(", "))
        })
    };
    names.iter().map(one).collect()
}

/// Builds our side, with the engines that are needed.
fn lockline(peers: &[&OtherClient]) -> Result<PathBuf> {
    let names: Vec<String> = peers.iter().map(|peer| peer.engine.to_owned()).collect();
    let mut features: Vec<&str> =
        engines::named(&names)?.into_iter().filter_map(|engine| engine.feature).collect();
    features.dedup();
    let features = features.join(",");
    let program = "lockline-test-peer";
    let args =
        ["build", "--quiet", "--package", "lockline-testkit", "--bin", program, "--features", &features];
    shell::run(&mut shell::cargo(args))?;
    Ok(workspace::target_dir()?.join("debug").join(program))
}

fn table(rows: &[Row]) -> Result<()> {
    let width = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
    let (peers, whats) = (width(|row| row.peer), width(|row| &row.what));
    shell::put("")?;
    for Row { peer, what, outcome } in rows {
        let (mark, detail) = match outcome {
            Ok(detail) => ("shown ", detail.clone()),
            Err(error) => ("FAILED", format!("{error:#}")),
        };
        shell::put(&format!("{peer:<peers$}  {what:<whats$}  {mark}  {detail}"))?;
    }
    Ok(())
}
