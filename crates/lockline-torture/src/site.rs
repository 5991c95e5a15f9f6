//! Where the torture takes place: an engine, the ways to it, and what can be done to them.

mod setting;

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::Signal;
use serde::Deserialize;

use crate::disk::Disk;
use crate::faults::{self, Fault};
use crate::probes;
use crate::proxy::{Flow, Proxy};
use crate::redis_servers::ask;
use crate::servers::{Launch, Role, Server};

/// How long servers may take to come back.
const PATIENCE: Duration = Duration::from_secs(90);

/// What `cargo xtask torture` started.
#[derive(Debug, Deserialize)]
pub(crate) struct Description {
    url: String,
    servers: Vec<Launch>,
}

/// An engine under torture.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) engine: String,
    /// For the conductor, past all faults but those of the servers themselves.
    pub(crate) direct: String,
    /// For the clients.
    pub(crate) url: String,
    pub(crate) lease: Duration,
    ways: Vec<Proxy>,
    servers: Vec<Server>,
    /// Where the file lies, for an engine without servers.
    disk: Option<Disk>,
    /// What is wrong, until when.
    wrong: Option<(Wrong, Instant)>,
}

#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// On the way to this server.
    Way(usize, Flow),
    /// This server is stopped.
    Stopped(usize),
    /// This server is killed.
    Down(usize),
    /// This server was started again, and does not answer yet.
    Starting(usize),
    /// This server takes nothing new.
    OutOfMemory(usize),
    /// This server's disk is full, and it may have died of it.
    OutOfDisk(usize),
    /// The file's disk is full.
    FileOutOfDisk,
}

impl Site {
    /// A quorum cannot count permits: see its page.
    pub(crate) fn has_permits(&self) -> bool {
        !self.engine.starts_with("redlock")
    }

    /// Does something to the servers or the ways to them, if there is anything that can be done, and says what.
    pub(crate) fn hurt(&mut self, chance: &mut fastrand::Rng) -> anyhow::Result<Option<&'static str>> {
        self.revive();
        if self.wrong.is_some() {
            return Ok(None);
        }
        if self.servers.is_empty() {
            return self.fill_file_disk(chance);
        }
        // Mostly shorter than a lease, so that holders can outlive it; sometimes longer.
        let until = Instant::now() + self.lease.mul_f64(0.03 + 1.2 * chance.f64().powi(3));
        if !self.ways.is_empty() && chance.bool() {
            return Ok(Some(self.hurt_way(until, chance)));
        }
        self.hurt_server(until, chance).map(Some)
    }

    fn hurt_way(&mut self, until: Instant, chance: &mut fastrand::Rng) -> &'static str {
        let way = chance.usize(..self.ways.len());
        let (fault, requests, answers) = match chance.u8(..7) {
            0 | 1 => {
                self.ways[way].cut();
                return "connections cut";
            }
            2 => ("nothing passes", Flow::IsHeld, Flow::IsHeld),
            3 => ("answers held back", Flow::Passes, Flow::IsHeld),
            4 => ("answers swallowed", Flow::Passes, Flow::IsSwallowed),
            5 if self.ways[way].protocol.is_some() => ("bells lost", Flow::Passes, Flow::LosesBells),
            _ => {
                let slow = Flow::Takes(Duration::from_millis(chance.u64(1..60)));
                ("slow", slow, slow)
            }
        };
        self.ways[way].turns(requests, answers);
        self.wrong = Some((Wrong::Way(way, answers), until));
        fault
    }

    fn hurt_server(&mut self, until: Instant, chance: &mut fastrand::Rng) -> anyhow::Result<&'static str> {
        let index = chance.usize(..self.servers.len());
        let leads = probes::leads(&self.engine, &self.servers[index], &self.servers);
        let fault = faults::choose(&self.engine, &self.servers[index], leads, chance);
        let server = &mut self.servers[index];
        match fault {
            Fault::Stop => {
                server.signal_all(Signal::STOP);
                self.wrong = Some((Wrong::Stopped(index), until));
            }
            Fault::KillAndKeep => {
                if !server.durable {
                    faults::keep_data(server)?;
                }
                server.kill()?;
                self.wrong = Some((Wrong::Down(index), until));
            }
            Fault::KillAndLose => {
                server.kill()?;
                faults::lose_data(server);
                self.wrong = Some((Wrong::Down(index), until));
            }
            Fault::FlushScripts => drop(ask(server.port(), &["SCRIPT", "FLUSH"])?),
            Fault::KillSessions => faults::kill_sessions(&self.servers[index], &self.servers)?,
            Fault::StepClock(by) => server.step_clock(by)?,
            Fault::Promote => return self.promote(),
            Fault::RunOutOfMemory => {
                faults::limit_memory(server, true)?;
                self.wrong = Some((Wrong::OutOfMemory(index), until));
            }
            Fault::FillDisk(spare) => {
                server.disk.as_ref().map_or(Ok(()), |disk| disk.fill(spare))?;
                // Databases reuse the room that they have for a while.
                self.wrong = Some((Wrong::OutOfDisk(index), until + self.lease / 2));
            }
        }
        Ok(faults::name(fault, leads))
    }

    /// Now and then: it is not to be full most of the time.
    fn fill_file_disk(&mut self, chance: &mut fastrand::Rng) -> anyhow::Result<Option<&'static str>> {
        let Some(disk) = self.disk.as_ref().filter(|_| chance.u8(..4) == 0) else { return Ok(None) };
        let spare = faults::spare(chance);
        disk.fill(spare)?;
        let until = Instant::now() + self.lease.mul_f64(0.1 + 1.5 * chance.f64());
        self.wrong = Some((Wrong::FileOutOfDisk, until));
        Ok(Some(faults::name(Fault::FillDisk(spare), None)))
    }

    /// A server may die of a full disk after the disk was freed.
    fn revive(&mut self) {
        if self.wrong.is_none()
            && let Some(dead) = self.servers.iter_mut().position(|server| !server.is_alive())
        {
            self.wrong = Some((Wrong::Starting(dead), Instant::now()));
        }
    }

    /// Only a standby that has everything may take over: that is what its row says.
    fn promote(&mut self) -> anyhow::Result<&'static str> {
        let primary = probes::primary(&self.servers).context("no server takes writes")?;
        if !probes::is_in_step(primary, &self.servers) {
            faults::kill_sessions(primary, &self.servers)?;
            return Ok(faults::name(Fault::KillSessions, Some(true)));
        }
        let primary = primary.address.clone();
        let old = self.servers.iter().position(|server| server.address == primary).unwrap_or_default();
        faults::promote(&mut self.servers, old)?;
        Ok(faults::name(Fault::Promote, None))
    }

    /// Whether somebody may not answer just now. Who is merely full does.
    pub(crate) fn may_be_silent(&self) -> bool {
        !matches!(self.wrong, None | Some((Wrong::FileOutOfDisk | Wrong::OutOfMemory(_), _)))
    }

    /// Puts right what has been wrong for long enough, or everything.
    pub(crate) fn heal(&mut self, all: bool) -> anyhow::Result<()> {
        let Some((wrong, until)) = self.wrong else { return Ok(()) };
        if !all && Instant::now() < until {
            return Ok(());
        }
        self.wrong = None;
        match wrong {
            Wrong::Stopped(server) => self.servers[server].signal_all(Signal::CONT),
            Wrong::Way(way, answers) => {
                if answers == Flow::IsSwallowed {
                    // What is missing will not come any more: such a connection cannot go on.
                    self.ways[way].cut();
                }
                self.ways[way].turns(Flow::Passes, Flow::Passes);
            }
            Wrong::OutOfMemory(server) => faults::limit_memory(&self.servers[server], false)?,
            Wrong::FileOutOfDisk => self.disk.as_ref().map_or(Ok(()), Disk::free)?,
            Wrong::OutOfDisk(index) => {
                let server = &mut self.servers[index];
                server.disk.as_ref().map_or(Ok(()), Disk::free)?;
                if server.role == Role::Zookeeper {
                    // What could not write its log may stay half dead: its operator has to see to it.
                    server.kill()?;
                }
                self.wrong = Some((Wrong::Starting(index), Instant::now()));
            }
            Wrong::Down(index) => {
                self.start(index)?;
                self.wrong = Some((Wrong::Starting(index), Instant::now()));
            }
            Wrong::Starting(index) => {
                if !self.servers[index].is_alive() {
                    // PostgreSQL does not start while a part of its former self is still there.
                    self.start(index)?;
                }
                if !probes::answers(&self.servers[index], &self.servers) {
                    self.wrong = Some((wrong, until));
                } else if self.servers[index].role == Role::Sentinel {
                    self.hurry()?;
                }
            }
        }
        Ok(())
    }

    /// A server that Sentinels watch comes back as a replica, if another one has taken its place.
    fn start(&mut self, index: usize) -> anyhow::Result<()> {
        if self.engine == "redis-sentinel" && self.servers[index].role == Role::Redis {
            let primary =
                probes::watched_primary(&self.servers).filter(|port| *port != self.servers[index].port());
            let primary = primary.map(|port| port.to_string());
            let follows: Vec<&str> = primary.iter().flat_map(|port| ["127.0.0.1", port]).collect();
            self.servers[index].set_option("--replicaof", &follows);
        }
        self.servers[index].start()
    }

    /// Heals everything, and waits until the servers are as they were at the start.
    pub(crate) async fn settle(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            self.heal(true)?;
            self.revive();
            if self.wrong.is_none() && probes::is_well(&self.engine, &self.servers) {
                return Ok(());
            }
            let last_words = || -> Vec<String> { self.servers.iter().map(Server::last_words).collect() };
            ensure!(
                start.elapsed() < PATIENCE,
                "the servers of {} do not come back; they said last:\n{}",
                self.engine,
                last_words().join("\n--\n")
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What the servers are doing.
    pub(crate) fn doings(&self) -> String {
        let each = self.servers.iter().map(|server| probes::doings(server, &self.servers));
        each.collect::<Vec<_>>().join("\n")
    }

    /// By when nothing of a client is left that has ended: its lease, or the session that stands for it.
    pub(crate) fn gone_after(&self) -> Duration {
        match self.servers.first().map(|server| server.role) {
            None => self.lease * 5 / 4,
            // One and a half leases, and a tick.
            Some(Role::Zookeeper) => self.lease * 3 / 2 + Duration::from_millis(400),
            // Whole seconds, and one until the server notices.
            Some(Role::Etcd) => self.lease + Duration::from_secs(1),
            Some(_) => self.lease,
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some((Wrong::Stopped(server), _)) = self.wrong {
            // It could not be ended by whoever started it.
            self.servers[server].signal_all(Signal::CONT);
        }
    }
}
