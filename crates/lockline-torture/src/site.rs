//! Where the torture takes place: an engine, the ways to it, and what can be done to them.

use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

use crate::proxy::{Flow, Proxy};

/// Long enough that a loaded machine, and a server that was stopped for a moment, do not lose it for no reason.
const SERVER_LEASE: Duration = Duration::from_secs(2);
/// Short, so that many leases end in a run.
const FILE_LEASE: Duration = Duration::from_millis(500);

/// An engine under torture.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) engine: String,
    /// For the conductor, past all faults but those of the servers themselves.
    pub(crate) direct: String,
    /// For the clients.
    pub(crate) url: String,
    pub(crate) lease: Duration,
    proxies: Vec<Proxy>,
    servers: Vec<Pid>,
    /// What is wrong, until when.
    wrong: Option<(Wrong, Instant)>,
}

#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// On the way to this server.
    Way(usize, Flow, Flow),
    /// This server is stopped.
    Server(usize),
}

impl Site {
    /// A file of its own.
    pub(crate) fn file(folder: &std::path::Path) -> Site {
        let url = format!("sqlite:{}", folder.join("locks.db").display());
        let url = with_lease(&url, FILE_LEASE);
        Site {
            engine: "sqlite".to_owned(),
            direct: url.clone(),
            url,
            lease: FILE_LEASE,
            proxies: Vec::new(),
            servers: Vec::new(),
            wrong: None,
        }
    }

    /// Servers that somebody started for it. Those that tell clients the addresses of others are reached directly.
    pub(crate) async fn servers(engine: &str, url: &str, pids: &[i32]) -> anyhow::Result<Site> {
        let url = with_lease(url, SERVER_LEASE);
        let mut site = Site {
            engine: engine.to_owned(),
            direct: url.clone(),
            url,
            lease: SERVER_LEASE,
            proxies: Vec::new(),
            servers: pids.iter().filter_map(|&pid| Pid::from_raw(pid)).collect(),
            wrong: None,
        };
        if !["redis-sentinel", "redis-cluster"].contains(&engine) {
            site.put_proxies_between().await?;
        }
        Ok(site)
    }

    async fn put_proxies_between(&mut self) -> anyhow::Result<()> {
        let (scheme, rest) = self.url.split_once("://").context("the engine's address has no host")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (hosts, tail) = rest.split_at(end);
        let (login, hosts) = match hosts.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), hosts),
        };
        for host in hosts.split(',') {
            self.proxies.push(Proxy::to(host).await?);
        }
        let hosts: Vec<_> = self.proxies.iter().map(|proxy| proxy.address.as_str()).collect();
        self.url = format!("{scheme}://{login}{}{tail}", hosts.join(","));
        Ok(())
    }

    /// A quorum cannot count permits: see its page.
    pub(crate) fn has_permits(&self) -> bool {
        !self.engine.starts_with("redlock")
    }

    /// Does something to the servers or the ways to them, if there is anything that can be done, and says what.
    pub(crate) fn hurt(&mut self, chance: &mut fastrand::Rng) -> Option<&'static str> {
        if self.wrong.is_some() || (self.proxies.is_empty() && self.servers.is_empty()) {
            return None;
        }
        // Mostly shorter than a lease, so that holders can outlive it; sometimes longer.
        let until = Instant::now() + self.lease.mul_f64(0.05 + 1.2 * chance.f64() * chance.f64());
        if self.proxies.is_empty() || (!self.servers.is_empty() && chance.u8(..5) == 0) {
            let server = chance.usize(..self.servers.len());
            self.signal(server, Signal::STOP);
            self.wrong = Some((Wrong::Server(server), until));
            return Some("server stopped");
        }
        let way = chance.usize(..self.proxies.len());
        let (fault, requests, answers) = match chance.u8(..6) {
            0 | 1 => {
                self.proxies[way].cut();
                return Some("connections cut");
            }
            2 => ("nothing passes", Flow::IsHeld, Flow::IsHeld),
            3 => ("answers held back", Flow::Passes, Flow::IsHeld),
            4 => ("answers swallowed", Flow::Passes, Flow::IsSwallowed),
            _ => {
                let slow = Flow::Takes(Duration::from_millis(chance.u64(1..60)));
                ("slow", slow, slow)
            }
        };
        self.proxies[way].turns(requests, answers);
        self.wrong = Some((Wrong::Way(way, requests, answers), until));
        Some(fault)
    }

    pub(crate) fn is_hurt(&self) -> bool {
        self.wrong.is_some()
    }

    /// Puts right what has been wrong for long enough, or everything.
    pub(crate) fn heal(&mut self, all: bool) {
        let Some((wrong, _)) = self.wrong.take_if(|(_, until)| all || *until <= Instant::now()) else {
            return;
        };
        match wrong {
            Wrong::Server(server) => self.signal(server, Signal::CONT),
            Wrong::Way(way, requests, answers) => {
                if [requests, answers].contains(&Flow::IsSwallowed) {
                    // What is missing will not come any more: such a connection cannot go on.
                    self.proxies[way].cut();
                }
                self.proxies[way].turns(Flow::Passes, Flow::Passes);
            }
        }
    }

    fn signal(&self, server: usize, signal: Signal) {
        // Whoever started it looks after it.
        let _ = kill_process(self.servers[server], signal);
    }

    /// By when nothing of a client is left that has ended: its lease, or the session that stands for it.
    pub(crate) fn gone_after(&self) -> Duration {
        if self.servers.is_empty() { self.lease * 5 / 4 } else { self.lease * 2 + Duration::from_secs(2) }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // A stopped server could not be ended by whoever started it.
        self.heal(true);
    }
}

fn with_lease(url: &str, lease: Duration) -> String {
    let sign = if url.contains('?') { '&' } else { '?' };
    format!("{url}{sign}lease={}ms", lease.as_millis())
}
