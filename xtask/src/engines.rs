//! The engines that tests run on: how to install, start and stop each.
//!
//! A new engine is a row in [`ENGINES`] and two functions: one that installs what is missing, one that starts it in an
//! empty folder, on a free port, as processes of its own. A release of it that the machine does not have is a row in
//! [`CELLS`].

pub(crate) mod apt;
mod cache;
mod cells;
mod elf;
mod etcd;
mod fleet;
mod launch;
mod mariadb;
mod mysql;
mod postgres;
mod redis;
/// Shared with the tests that kill servers.
#[path = "../../crates/lockline-testkit/src/redis_servers.rs"]
#[allow(dead_code, unreachable_pub)]
mod redis_servers;
mod release;
mod suite;
mod toolchain;
mod zookeeper;

use std::path::Path;
use std::process::Child;

use anyhow::{Context, Result};

pub(crate) use self::cells::{CELLS, cells};
pub(crate) use self::fleet::{Fleet, down, install, up};
use self::launch::Launch;
use self::release::Release;
pub(crate) use self::toolchain::Toolchain;

/// An engine that tests run on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engine {
    /// As people type it.
    pub(crate) name: &'static str,
    /// The engine whose tests it takes, as in `LOCKLINE_TEST_ENGINES`: itself, unless it is another release of that one.
    pub(crate) like: &'static str,
    /// The cargo feature that its driver needs, if it is not built in by default.
    pub(crate) feature: Option<&'static str>,
    /// Whether the torturer knows it.
    pub(crate) tortured: bool,
    /// The release that it must be of; `None` for the one that the machine's distribution has.
    release: Option<&'static Release>,
    /// Installs what is missing of the distribution's, and does nothing if nothing is.
    install: fn() -> Result<()>,
    /// Starts it with its data in this folder.
    start: fn(&Toolchain, &Path) -> Result<Started>,
}

const REDIS: Engine = Engine::server("redis", "redis", redis::install, redis::one);
const REDIS_SENTINEL: Engine = Engine::server("redis-sentinel", "redis", redis::install, redis::sentinel);
const REDIS_CLUSTER: Engine = Engine::server("redis-cluster", "redis", redis::install, redis::cluster);
const REDIS_REPLICAS: Engine = Engine::server("redis-replicas", "redis", redis::install, redis::replicas);
const ZOOKEEPER: Engine = Engine::server("zookeeper", "zookeeper", zookeeper::install, zookeeper::start);
const ZOOKEEPER_ENSEMBLE: Engine =
    Engine::server("zookeeper-ensemble", "zookeeper", zookeeper::install, zookeeper::start_three);
const ETCD: Engine = Engine::server("etcd", "etcd", etcd::install, etcd::start);
const ETCD_CLUSTER: Engine = Engine::server("etcd-cluster", "etcd", etcd::install, etcd::start_cluster);
const POSTGRES: Engine = Engine::server("postgres", "postgres", postgres::install, postgres::start);
const POSTGRES_POOLED: Engine =
    Engine::server("postgres-pooled", "postgres", postgres::install_pooled, postgres::start_pooled);
const POSTGRES_STANDBY: Engine =
    Engine::server("postgres-standby", "postgres", postgres::install, postgres::start_with_standby);
const MARIADB: Engine = Engine::server("mysql", "mysql", mariadb::install, mariadb::start);
/// MySQL itself, which the distribution does not have.
const MYSQL: Engine = Engine { start: mysql::start, ..MARIADB.release("mysql-9", &release::MYSQL_9) };

/// All of them.
pub(crate) const ENGINES: &[Engine] = &[
    Engine::embedded("memory").spared(),
    Engine::embedded("sqlite"),
    REDIS,
    Engine::server("redis-tls", "redis", redis::install, redis::tls).spared(),
    REDIS_SENTINEL,
    REDIS_CLUSTER,
    REDIS_REPLICAS,
    ZOOKEEPER,
    ZOOKEEPER_ENSEMBLE,
    ETCD,
    ETCD_CLUSTER,
    POSTGRES,
    POSTGRES_POOLED,
    POSTGRES_STANDBY,
    MARIADB,
    MYSQL,
    Engine::server("redlock", "redis", redis::install, redis::quorum_of_five),
    Engine::server("redlock-3", "redis", redis::install, redis::quorum_of_three),
];

impl Engine {
    const fn embedded(name: &'static str) -> Engine {
        Engine {
            name,
            like: name,
            feature: None,
            tortured: true,
            release: None,
            install: nothing_to_install,
            start: in_the_process,
        }
    }

    const fn server(
        name: &'static str,
        feature: &'static str,
        install: fn() -> Result<()>,
        start: fn(&Toolchain, &Path) -> Result<Started>,
    ) -> Engine {
        Engine { name, like: name, feature: Some(feature), tortured: true, release: None, install, start }
    }

    /// One that the torturer has no use for.
    const fn spared(self) -> Engine {
        Engine { tortured: false, ..self }
    }

    /// The same engine in another release.
    const fn release(self, name: &'static str, release: &'static Release) -> Engine {
        Engine { name, release: Some(release), ..self }
    }

    /// Its programs, which are installed or fetched if they are missing.
    pub(crate) fn toolchain(&self) -> Result<Toolchain> {
        match self.release {
            Some(release) => release.toolchain(),
            None => (self.install)().map(|()| Toolchain::system()),
        }
        .with_context(|| format!("cannot install {}", self.name))
    }

    /// Installs the distribution's own, for its clients: the torturer asks servers with them, of whatever release these are.
    pub(crate) fn install_clients(&self) -> Result<()> {
        (self.install)()
    }

    /// Whether the distribution's own engine is of this release, so that the usual tests are the tests of this.
    pub(crate) fn is_the_usual_one(&self) -> bool {
        self.release.is_some_and(|release| release.of_the_machine().is_some())
    }
}

/// An engine that runs.
#[derive(Debug, Default)]
struct Started {
    /// Where it listens; `None` if it is embedded and every test makes its own.
    url: Option<String>,
    /// Its processes.
    processes: Vec<Child>,
    /// The same, in the same order: how each is started again. Empty for what nobody tortures.
    launches: Vec<Launch>,
    /// The version that the server says it has.
    version: String,
}

fn nothing_to_install() -> Result<()> {
    Ok(())
}

fn in_the_process(_: &Toolchain, _: &Path) -> Result<Started> {
    Ok(Started::default())
}

/// The engines of these names; all of them if none is named.
pub(crate) fn named(names: &[String]) -> Result<Vec<&'static Engine>> {
    if names.is_empty() {
        return Ok(ENGINES.iter().collect());
    }
    let one = |name: &String| {
        named_one(name).with_context(|| {
            let known: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
            let cells: Vec<_> = CELLS.iter().map(|cell| cell.name).collect();
            format!(
                "no engine is called {name:?}; there are {}; and by release {}",
                known.join(", "),
                cells.join(", ")
            )
        })
    };
    names.iter().map(one).collect()
}

/// The engine, or the cell of the matrix, of this name.
pub(crate) fn named_one(name: &str) -> Option<&'static Engine> {
    ENGINES.iter().chain(CELLS).find(|engine| engine.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_does_not_exist_is_refused_by_name() {
        assert_eq!(named(&[]).unwrap().len(), ENGINES.len());
        assert_eq!(named(&["sqlite".to_owned()]).unwrap()[0].name, "sqlite");
        assert!(named(&["oracle".to_owned()]).unwrap_err().to_string().contains("memory, sqlite, redis"));
    }
}
