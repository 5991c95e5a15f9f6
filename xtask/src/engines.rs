//! The engines that tests run on: how to install, start and stop each.
//!
//! A new engine is a row in [`ENGINES`] and two functions: one that installs what is missing, one that starts it in an
//! empty folder, on a free port, as processes of its own.

pub(crate) mod apt;
mod etcd;
mod fleet;
mod launch;
mod mysql;
mod postgres;
mod redis;
/// Shared with the tests that kill servers.
#[path = "../../crates/lockline-testkit/src/redis_servers.rs"]
#[allow(dead_code, unreachable_pub)]
mod redis_servers;
mod zookeeper;

use std::path::Path;
use std::process::Child;

use anyhow::{Context, Result};

pub(crate) use self::fleet::{Fleet, down, install, up};
use self::launch::Launch;

/// An engine that tests run on.
#[derive(Debug)]
pub(crate) struct Engine {
    /// As in URLs, and in `LOCKLINE_TEST_ENGINES`.
    pub(crate) name: &'static str,
    /// The cargo feature that its driver needs, if it is not built in by default.
    pub(crate) feature: Option<&'static str>,
    /// Whether the torturer knows it.
    pub(crate) tortured: bool,
    /// Installs what is missing, and does nothing if nothing is.
    install: fn() -> Result<()>,
    /// Starts it with its data in this folder.
    start: fn(&Path) -> Result<Started>,
}

/// All of them.
pub(crate) const ENGINES: &[Engine] = &[
    Engine::embedded("memory").spared(),
    Engine::embedded("sqlite"),
    Engine::server("redis", "redis", redis::install, redis::one),
    Engine::server("redis-tls", "redis", redis::install, redis::tls).spared(),
    Engine::server("redis-sentinel", "redis", redis::install, redis::sentinel),
    Engine::server("redis-cluster", "redis", redis::install, redis::cluster),
    Engine::server("redis-replicas", "redis", redis::install, redis::replicas),
    Engine::server("zookeeper", "zookeeper", zookeeper::install, zookeeper::start),
    Engine::server("zookeeper-ensemble", "zookeeper", zookeeper::install, zookeeper::start_three),
    Engine::server("etcd", "etcd", etcd::install, etcd::start),
    Engine::server("etcd-cluster", "etcd", etcd::install, etcd::start_cluster),
    Engine::server("postgres", "postgres", postgres::install, postgres::start),
    Engine::server("postgres-pooled", "postgres", postgres::install_pooled, postgres::start_pooled),
    Engine::server("postgres-standby", "postgres", postgres::install, postgres::start_with_standby),
    Engine::server("mysql", "mysql", mysql::install, mysql::start),
    Engine::server("redlock", "redis", redis::install, redis::quorum_of_five),
    Engine::server("redlock-3", "redis", redis::install, redis::quorum_of_three),
];

impl Engine {
    const fn embedded(name: &'static str) -> Engine {
        Engine { name, feature: None, tortured: true, install: nothing_to_install, start: in_the_process }
    }

    const fn server(
        name: &'static str,
        feature: &'static str,
        install: fn() -> Result<()>,
        start: fn(&Path) -> Result<Started>,
    ) -> Engine {
        Engine { name, feature: Some(feature), tortured: true, install, start }
    }

    /// One that the torturer has no use for.
    const fn spared(self) -> Engine {
        Engine { tortured: false, ..self }
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
}

fn nothing_to_install() -> Result<()> {
    Ok(())
}

fn in_the_process(_: &Path) -> Result<Started> {
    Ok(Started::default())
}

/// The engines of these names; all of them if none is named.
pub(crate) fn named(names: &[String]) -> Result<Vec<&'static Engine>> {
    if names.is_empty() {
        return Ok(ENGINES.iter().collect());
    }
    let one = |name: &String| {
        ENGINES.iter().find(|engine| engine.name == name).with_context(|| {
            let known: Vec<_> = ENGINES.iter().map(|engine| engine.name).collect();
            format!("no engine is called {name:?}; there are {}", known.join(", "))
        })
    };
    names.iter().map(one).collect()
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
