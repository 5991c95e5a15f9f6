//! Redis: one server that keeps nothing, one with TLS and a user of few rights, a primary with replicas, Sentinels, a
//! cluster, and quorums of servers that know nothing of each other.

use std::path::Path;

use anyhow::{Context, Result};

use super::launch::Launch;
use super::redis_servers::{self as servers, Programs, Server, WATCHED};
use super::toolchain::Toolchain;
use super::{Started, apt};
use crate::workspace;

/// A new server guards what a former one may have forgotten; here there was none.
const NO_GUARD: &str = "restart_guard=off";

pub(super) fn install() -> Result<()> {
    let missing = !apt::has("redis-server") || !apt::has("redis-cli") || !apt::has("openssl");
    if missing { apt::install(&["redis-server", "redis-tools", "openssl"]) } else { Ok(()) }
}

/// Redis', or Valkey's: they are the same but for their names.
fn programs(tools: &Toolchain) -> Result<Programs> {
    let (server, cli) = match tools.is_for("valkey-server") {
        true => ("valkey-server", "valkey-cli"),
        false => ("redis-server", "redis-cli"),
    };
    Ok(Programs { server: tools.program(server)?, cli: tools.program(cli)? })
}

fn started(url: String, servers: impl IntoIterator<Item = Server>) -> Started {
    let mut started = Started { url: Some(url), ..Started::default() };
    for server in servers {
        if started.version.is_empty() {
            started.version = version(&server).unwrap_or_default();
        }
        let role = if server.home().join("sentinel.conf").exists() { "sentinel" } else { "redis" };
        let launch = Launch::of(role, server.port, &server.command(), server.home(), &server.log());
        if let Some(process) = server.let_go() {
            started.processes.push(process);
            started.launches.push(launch);
        }
    }
    started
}

/// Valkey says which Redis it is like, too.
fn version(server: &Server) -> Option<String> {
    let says = server.cli(&["INFO", "server"]).ok()?;
    let of =
        |key: &str| says.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned());
    of("valkey_version:").or_else(|| of("redis_version:"))
}

fn hosts(servers: &[Server]) -> String {
    servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect::<Vec<_>>().join(",")
}

pub(super) fn one(tools: &Toolchain, home: &Path) -> Result<Started> {
    let server = programs(tools)?.start(home, "server", &[])?;
    Ok(started(format!("redis://127.0.0.1:{}?{NO_GUARD}", server.port), [server]))
}

/// A quorum of five.
pub(super) fn quorum_of_five(tools: &Toolchain, home: &Path) -> Result<Started> {
    quorum(tools, home, 5)
}

/// A quorum of three.
pub(super) fn quorum_of_three(tools: &Toolchain, home: &Path) -> Result<Started> {
    quorum(tools, home, 3)
}

fn quorum(tools: &Toolchain, home: &Path, nodes: usize) -> Result<Started> {
    let programs = programs(tools)?;
    let nodes = (0..nodes).map(|node| programs.start(home, &format!("node-{node}"), &[]));
    let nodes = nodes.collect::<std::io::Result<Vec<_>>>()?;
    Ok(started(format!("redlock://{}?{NO_GUARD}", hosts(&nodes)), nodes))
}

pub(super) fn tls(tools: &Toolchain, home: &Path) -> Result<Started> {
    let (server, options) = programs(tools)?.encrypted(home, &access_list()?)?;
    Ok(started(format!("rediss://locks:secret@127.0.0.1:{}{options}&{NO_GUARD}", server.port), [server]))
}

/// The access list of the driver's guide, for the name spaces of tests.
fn access_list() -> Result<Vec<String>> {
    let guide = workspace::root().join("crates/lockline/src/drivers/redis/GUIDE.md");
    let guide = std::fs::read_to_string(&guide).with_context(|| guide.display().to_string())?;
    let block = guide.split("```text\nACL SETUSER ").nth(1).and_then(|rest| rest.split("```").next());
    let block = block.context("the guide has no access list")?;
    let words = block.replace("\\\n", " ").replace("lockline:", "test-*:");
    Ok(words.split_whitespace().map(str::to_owned).collect())
}

pub(super) fn replicas(tools: &Toolchain, home: &Path) -> Result<Started> {
    let all = programs(tools)?.replicated(home, 2)?;
    Ok(started(format!("redis://127.0.0.1:{}?replicas=all&{NO_GUARD}", all[0].port), all))
}

pub(super) fn sentinel(tools: &Toolchain, home: &Path) -> Result<Started> {
    let (all, sentinels) = programs(tools)?.watched(home, servers::PATIENT)?;
    let url = format!("redis-sentinel://{}/{WATCHED}?{NO_GUARD}", hosts(&sentinels));
    Ok(started(url, all.into_iter().chain(sentinels)))
}

pub(super) fn cluster(tools: &Toolchain, home: &Path) -> Result<Started> {
    let nodes = programs(tools)?.cluster(home, servers::PATIENT)?;
    Ok(started(format!("redis-cluster://{}?{NO_GUARD}", hosts(&nodes[..3])), nodes))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn every_kind_of_server_starts_and_ends() {
        if !apt::has("redis-server") || !apt::has("openssl") {
            // `cargo xtask test` installs it before it runs this. Written past the test harness.
            std::io::stderr().write_all(b"left out: there is no redis-server or openssl\n").unwrap();
            return;
        }
        for (start, scheme, processes) in [
            (one as fn(&Toolchain, &Path) -> Result<Started>, "redis://127.0.0.1:", 1),
            (tls, "rediss://locks:secret@127.0.0.1:", 1),
            (replicas, "redis://127.0.0.1:", 3),
            (sentinel, "redis-sentinel://127.0.0.1:", 6),
            (cluster, "redis-cluster://127.0.0.1:", 6),
        ] {
            let home = tempfile::tempdir().unwrap();
            let mut started = start(&Toolchain::system(), home.path()).unwrap();
            assert!(started.url.unwrap().starts_with(scheme));
            assert_eq!(started.processes.len(), processes);
            for process in &mut started.processes {
                assert!(process.try_wait().unwrap().is_none(), "{scheme}: it ended");
                process.kill().unwrap();
                process.wait().unwrap();
            }
        }
    }
}
