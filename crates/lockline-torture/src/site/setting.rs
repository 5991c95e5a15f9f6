//! How a place for the torture is made: from a file, or from servers that somebody started.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use super::{Description, Site};
use crate::conductor::Plan;
use crate::disk::Disk;
use crate::frames::Protocol;
use crate::proxy::Proxy;
use crate::redis_servers::{WATCHED, ask};
use crate::servers::{Role, Server};

/// Long enough that a loaded machine, and a server that was stopped for a moment, do not lose it for no reason.
const SERVER_LEASE: Duration = Duration::from_secs(2);
/// Short, so that many leases end in a run.
const FILE_LEASE: Duration = Duration::from_millis(500);

impl Site {
    /// A file of its own, on a disk of its own if there can be one.
    pub(crate) fn file(folder: &Path, own_mounts: bool) -> anyhow::Result<Site> {
        let disk = folder.join("disk");
        let (folder, disk) = match own_mounts {
            true => (disk.as_path(), Some(Disk::new(&disk)?)),
            false => (folder, None),
        };
        let url = format!("sqlite:{}?lease={}ms", folder.join("locks.db").display(), FILE_LEASE.as_millis());
        Ok(Site {
            engine: "sqlite".to_owned(),
            direct: url.clone(),
            url,
            lease: FILE_LEASE,
            ways: Vec::new(),
            servers: Vec::new(),
            disk,
            wrong: None,
        })
    }

    /// Servers that somebody started for it.
    pub(crate) async fn servers(plan: &Plan, description: Description, home: &Path) -> anyhow::Result<Site> {
        let engine = plan.engine.as_str();
        // A Redis server of its own loses its data now and then; if not, its clock is set back.
        let forgets = plan.seed.is_multiple_of(2);
        let url = adapted(engine, &description.url);
        let mut servers: Vec<_> =
            description.servers.into_iter().map(Server::new).collect::<anyhow::Result<_>>()?;
        for (index, server) in servers.iter_mut().enumerate() {
            server.forgetful &= match engine {
                "redis" => forgets,
                "redlock" | "redlock-3" => index % 2 == 0,
                _ => true,
            };
        }
        let mut site = Site {
            engine: engine.to_owned(),
            direct: url.clone(),
            url,
            lease: SERVER_LEASE,
            ways: Vec::new(),
            servers,
            disk: None,
            wrong: None,
        };
        site.prepare(home, plan.own_mounts)?;
        site.put_proxies_between().await?;
        site.settle().await?;
        Ok(site)
    }

    fn prepare(&mut self, home: &Path, own_mounts: bool) -> anyhow::Result<()> {
        match self.engine.as_str() {
            // They know each other by what was said to them while they ran.
            "redis-sentinel" | "redis-cluster" => return self.hurry(),
            "redis-replicas" => {
                let primary = self.servers[0].port().to_string();
                self.servers[1..]
                    .iter_mut()
                    .for_each(|server| server.set_option("--replicaof", &["127.0.0.1", &primary]));
            }
            _ => {}
        }
        for server in &mut self.servers {
            server.take_over(home, own_mounts)?;
        }
        Ok(())
    }

    /// Failovers in a second, not in twenty.
    pub(super) fn hurry(&self) -> anyhow::Result<()> {
        for server in &self.servers {
            let port = server.port();
            if server.role == Role::Sentinel {
                for option in ["info-period", "publish-period"] {
                    ask(port, &["SENTINEL", "DEBUG", option, "200"])?;
                }
                for (option, ms) in
                    [("ask-period", "100"), ("ping-period", "100"), ("election-timeout", "1000")]
                {
                    ask(port, &["SENTINEL", "DEBUG", option, ms])?;
                }
                ask(port, &["SENTINEL", "SET", WATCHED, "down-after-milliseconds", "500"])?;
            } else if self.engine == "redis-cluster" {
                ask(port, &["CONFIG", "SET", "cluster-node-timeout", "1000"])?;
            }
        }
        Ok(())
    }

    async fn put_proxies_between(&mut self) -> anyhow::Result<()> {
        let (scheme, rest) = self.url.split_once("://").context("the engine's address has no host")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (hosts, tail) = rest.split_at(end);
        let (login, hosts) = match hosts.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), hosts),
        };
        let protocol = match scheme {
            "redis" | "redis-sentinel" | "redis-cluster" | "redlock" => Some(Protocol::Resp),
            "postgres" => Some(Protocol::Postgres),
            "zookeeper" => Some(Protocol::Zookeeper),
            "etcd" => Some(Protocol::Etcd),
            "mysql" => Some(Protocol::Mysql),
            _ => None,
        };
        let named: Vec<_> = hosts.split(',').map(str::to_owned).collect();
        // Sentinels and nodes of a cluster send clients to others.
        let reached = match scheme {
            "redis-sentinel" | "redis-cluster" => {
                self.servers.iter().map(|server| server.address.clone()).collect()
            }
            _ => named.clone(),
        };
        self.ways = Proxy::to_all(&reached, protocol).await?;
        let ways = self.ways.iter().filter(|way| named.contains(&way.server));
        let hosts: Vec<_> = ways.map(|way| way.address.as_str()).collect();
        self.url = format!("{scheme}://{login}{}{tail}", hosts.join(","));
        Ok(())
    }
}

/// The address with a short lease, and where servers are killed, with what makes that safe.
fn adapted(engine: &str, url: &str) -> String {
    let lease = format!("lease={}ms", SERVER_LEASE.as_millis());
    // Tests switch the guard off, because they start servers and never lose one.
    let guarded = format!("restart_guard={0}ms&max_lease={0}ms", SERVER_LEASE.as_millis());
    let mut url = url.replace("restart_guard=off", &guarded);
    url.push(if url.contains('?') { '&' } else { '?' });
    url.push_str(&lease);
    if ["redis-sentinel", "redis-cluster"].contains(&engine) {
        // Otherwise their row promises nothing over a failover.
        url.push_str("&replicas=all");
    }
    url
}
