//! The way to the servers, whichever they are: one, the one that Sentinels name, or those of a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Cmd, RedisError, Value};

use super::address::Topology;
use super::cluster::{self, Cluster};
use super::config::{RedisConfig, Replicas, RestartGuard};
use super::error::{explain, nonsense};
use super::lent::Lent;
use super::link::Link;
use super::live::{Context, Goal, Live};
use super::pass::Joined;
use super::scripts::Script;
use super::slots::slot_of;
use crate::driver::{Bells, Exclusion, Fencing, Guarantees};
use crate::drivers::partners::Partners;
use crate::drivers::quiet::QuietLines;
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, ClaimId, Place, Shut, Standing};
use crate::name::Name;

/// A way to the servers.
#[derive(Debug)]
pub(in crate::drivers) struct Connection {
    pub(in crate::drivers) config: RedisConfig,
    pub(in crate::drivers) address: Arc<str>,
    /// What this process's channel ends with.
    pub(super) process: String,
    /// Whether the server writes before it answers, as it was last known.
    keeps_its_data: AtomicBool,
    pub(super) bells: Bells,
    way: Way,
    /// Lines that were free when we last came: those are worth borrowing.
    pub(super) quiet: QuietLines,
    /// Lines where somebody had to wait when we last came.
    pub(super) busy: QuietLines,
    pub(super) lent: Lent,
    /// Who leaves together with whom comes.
    pub(super) partners: Partners<Joined>,
}

#[derive(Debug)]
enum Way {
    One(Link),
    Cluster(Cluster),
}

impl Connection {
    pub(in crate::drivers) async fn open(config: RedisConfig, bells: Bells) -> Result<Connection> {
        config.check()?;
        let context = Arc::new(Context {
            address: config.address().into(),
            // Twice as many bits as needed for it never to be that of another process.
            process: format!("{:032x}", ClaimId::random().as_u128()),
            bells: bells.clone(),
            config,
        });
        let way = match &context.config.topology {
            Topology::One(server) => Way::One(Link::open(&context, Goal::Server(server.clone())).await?),
            Topology::Sentinel(sentinels, primary) => {
                let goal = Goal::Watched(sentinels.clone(), primary.clone());
                Way::One(Link::open(&context, goal).await?)
            }
            Topology::Cluster(nodes) => Way::Cluster(Cluster::open(&context, nodes).await?),
        };
        let keeps_its_data = match &way {
            Way::One(link) => link.live("connect").await?.info.keeps_its_data(),
            Way::Cluster(_) => false,
        };
        Ok(Connection {
            keeps_its_data: AtomicBool::new(keeps_its_data),
            config: context.config.clone(),
            address: context.address.clone(),
            process: context.process.clone(),
            bells,
            way,
            quiet: QuietLines::new(),
            busy: QuietLines::new(),
            lent: Lent::default(),
            partners: Partners::default(),
        })
    }

    /// What can be promised now. While there is no connection, what was known last.
    pub(in crate::drivers) fn guarantees(&self) -> Guarantees {
        if let Way::One(link) = &self.way
            && let Some(live) = link.live_now()
        {
            self.keeps_its_data.store(live.info.keeps_its_data(), Ordering::Relaxed);
        }
        guarantees(&self.config, self.keeps_its_data.load(Ordering::Relaxed))
    }

    /// Whether nobody gets this lock yet, or any. While there is no connection nobody knows, and whoever asks is told that.
    pub(in crate::drivers) fn shut(&self, name: Option<&Name>) -> Option<Shut> {
        match &self.way {
            Way::One(link) => link.shut(),
            Way::Cluster(cluster) => match name {
                Some(name) => cluster.shut(&self.key(name.as_str())),
                None => cluster.shut_everywhere(),
            },
        }
    }

    /// Runs a script where the key is, and tells on which connection. `fill` adds the number of keys, the keys and the
    /// arguments.
    pub(super) async fn run(
        &self,
        operation: &'static str,
        script: Script,
        key: &str,
        fill: impl Fn(&mut Cmd) + Sync,
    ) -> Result<(Value, Arc<Live>)> {
        let (answer, live) = match &self.way {
            Way::One(link) => link.run(operation, script, &fill).await?,
            Way::Cluster(cluster) => Box::pin(cluster.run(operation, script, key, &fill)).await?,
        };
        Ok((answer.map_err(|e| self.explain(operation, &e))?, live))
    }

    /// Adds the keys of lines that one call is about.
    pub(super) fn add_keys<'a>(
        &self,
        cmd: &mut Cmd,
        lines: impl IntoIterator<Item = &'a String, IntoIter: ExactSizeIterator>,
    ) {
        match self.way {
            Way::One(_) => {
                let lines = lines.into_iter();
                cmd.arg(lines.len());
                for line in lines {
                    cmd.arg(line);
                }
            }
            Way::Cluster(_) => cluster::add_keys(cmd, lines),
        }
    }

    /// The connection on which lines may be lent: there is one, it leads to one server, and nobody waits for replicas.
    pub(super) fn lends(&self) -> Option<Arc<Live>> {
        match &self.way {
            Way::One(link) => link.live_now().filter(|live| live.witness.is_none()),
            Way::Cluster(_) => None,
        }
    }

    /// Whether an answer may be a bell, too: not where it must be confirmed first, nor on a cluster, whose bells come another way.
    pub(super) fn rings_by_answer(&self) -> bool {
        matches!(self.way, Way::One(_)) && self.config.replicas.is_none()
    }

    /// Whether verbs still go over this connection. What is behind another one may no longer be the primary.
    pub(super) fn is_current(&self, live: &Arc<Live>) -> bool {
        match &self.way {
            Way::One(link) => link.live_now().is_some_and(|now| Arc::ptr_eq(&now, live)),
            Way::Cluster(_) => false,
        }
    }

    pub(super) fn explain(&self, operation: &'static str, error: &RedisError) -> Error {
        explain(operation, &self.address, error, true)
    }

    /// Parts that can go into one call: all, or what a cluster keeps together.
    pub(super) fn together<'a, T>(
        &self,
        items: &'a [T],
        key_of: impl Fn(&'a T) -> String,
    ) -> Vec<Vec<usize>> {
        match self.way {
            Way::One(_) => vec![(0..items.len()).collect()],
            Way::Cluster(_) => {
                let mut parts: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
                for (index, item) in items.iter().enumerate() {
                    parts.entry(slot_of(key_of(item).as_bytes())).or_default().push(index);
                }
                parts.into_values().collect()
            }
        }
    }

    /// Sends a command that is no script to every primary.
    async fn primaries(&self, operation: &'static str) -> Result<Vec<Arc<Live>>> {
        match &self.way {
            Way::One(link) => Ok(vec![link.live(operation).await?]),
            Way::Cluster(cluster) => cluster.primaries(operation).await,
        }
    }

    /// All keys that look like this: the servers are walked through, a little at a time.
    pub(super) async fn all_keys(&self, pattern: &str) -> Result<Vec<String>> {
        let mut keys = Vec::new();
        for live in self.primaries("view").await? {
            let mut cursor: Vec<u8> = b"0".to_vec();
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000);
                let answer = live.send(&scan).await.map_err(|e| self.explain("view", &e))?;
                let Value::Array(answer) = answer else { return Err(nonsense("view", &self.address)) };
                let [Value::BulkString(next), Value::Array(found)] = answer.as_slice() else {
                    return Err(nonsense("view", &self.address));
                };
                keys.extend(found.iter().filter_map(|key| match key {
                    Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
                    _ => None,
                }));
                cursor.clone_from(next);
                if cursor == b"0" {
                    break;
                }
            }
        }
        // A walk may meet a key twice.
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// A grant counts once enough replicas have it. Otherwise the claim leaves.
    pub(super) async fn confirm_grant(
        &self,
        claim: &Claim,
        standing: Standing,
        live: &Live,
    ) -> Result<Standing> {
        let (Some(witness), Standing::In { ticket }) = (&live.witness, standing) else { return Ok(standing) };
        let error = match Box::pin(witness.confirm("join", claim.lease)).await {
            Ok(replicas) => {
                self.bells.acknowledged(claim.id, replicas);
                return Ok(standing);
            }
            Err(error) => error,
        };
        if witness.is_gone() {
            live.give_up();
        }
        let place = Place {
            name: claim.name.clone(),
            id: claim.id,
            ticket: Some(ticket),
            lease: claim.lease,
            last: false,
        };
        match Box::pin(self.leave(&place)).await {
            Ok(()) => Err(error),
            Err(_) => {
                let hint = "ask again; what was done ends with the lease";
                Err(Error::new(ErrorKind::Unknown, "join", error.message().to_owned())
                    .hint(hint)
                    .at(&self.address))
            }
        }
    }

    /// A renewal of a holder counts once enough replicas have it.
    pub(super) async fn confirm_renewals(
        &self,
        places: &[&Place],
        mut standings: Vec<Standing>,
        live: &Live,
    ) -> Result<Vec<Standing>> {
        let is_in = |standing: &Standing| matches!(standing, Standing::In { .. });
        let Some(witness) = live.witness.as_ref().filter(|_| standings.iter().any(is_in)) else {
            return Ok(standings);
        };
        let shortest = places.iter().map(|place| place.lease).min().unwrap_or_default();
        match witness.confirm("renew", shortest).await {
            Ok(replicas) => {
                for (place, _) in places.iter().zip(&standings).filter(|(_, standing)| is_in(standing)) {
                    self.bells.acknowledged(place.id, replicas);
                }
            }
            Err(error) => {
                if witness.is_gone() {
                    live.give_up();
                }
                if standings.iter().all(is_in) {
                    return Err(error);
                }
                tracing::debug!(%error, "cannot renew what is held");
                standings
                    .iter_mut()
                    .filter(|standing| is_in(standing))
                    .for_each(|one| *one = Standing::Unsure);
            }
        }
        Ok(standings)
    }

    /// From now on every line that can be had is asked for, and all others are taken for busy.
    #[cfg(test)]
    pub(super) fn always_borrow(&self) {
        self.quiet.guess();
        self.busy.guess();
    }

    /// Sends a command that is no script to the one server there is.
    #[cfg(test)]
    pub(in crate::drivers) async fn plain(&self, operation: &'static str, cmd: &Cmd) -> Result<Value> {
        let live = self.primaries(operation).await?.remove(0);
        live.send(cmd).await.map_err(|e| self.explain(operation, &e))
    }
}

/// The row of the guarantees page.
fn guarantees(config: &RedisConfig, keeps_its_data: bool) -> Guarantees {
    let guarded = config.restart_guard != RestartGuard::Off;
    match (&config.topology, config.replicas) {
        (Topology::One(_), None) => Guarantees {
            fencing: if keeps_its_data { Fencing::Always } else { Fencing::ClockBounded },
            exclusion: Exclusion::NoForwardStep,
        },
        // Only Sentinels and clusters know of replicas that are away when we come: one of those may be promoted.
        (Topology::One(_), Some(Replicas::All)) if guarded => {
            Guarantees { fencing: Fencing::ClockBounded, exclusion: Exclusion::NoForwardStep }
        }
        (_, Some(Replicas::All)) if guarded => {
            Guarantees { fencing: Fencing::ClockBounded, exclusion: Exclusion::NoForwardStepOverFailover }
        }
        // A failover may forget what was not copied, and two primaries may serve for a while.
        _ => Guarantees { fencing: Fencing::ClockBounded, exclusion: Exclusion::Probable },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_topology_promises() {
        let row = |config: &RedisConfig, keeps| {
            let Guarantees { fencing, exclusion } = guarantees(config, keeps);
            (fencing, exclusion)
        };
        let one = RedisConfig::new("h", 1);
        assert_eq!(row(&one, false), (Fencing::ClockBounded, Exclusion::NoForwardStep));
        assert_eq!(row(&one, true), (Fencing::Always, Exclusion::NoForwardStep));
        let all = one.clone().replicas(Replicas::All);
        assert_eq!(row(&all, true), (Fencing::ClockBounded, Exclusion::NoForwardStep));
        assert_eq!(row(&all.restart_guard(RestartGuard::Off), true).1, Exclusion::Probable);
        let watched = RedisConfig::sentinel([("h", 1)], "m");
        for config in [watched.clone(), RedisConfig::cluster([("h", 1)])] {
            assert_eq!(row(&config, false), (Fencing::ClockBounded, Exclusion::Probable));
            assert_eq!(row(&config.clone().replicas(Replicas::Majority), false).1, Exclusion::Probable);
            let all = config.replicas(Replicas::All);
            assert_eq!(row(&all, false), (Fencing::ClockBounded, Exclusion::NoForwardStepOverFailover));
            assert_eq!(row(&all.restart_guard(RestartGuard::Off), false).1, Exclusion::Probable);
        }
    }
}
