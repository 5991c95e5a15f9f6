//! What servers can do at least: a round trip, and the barest lock that is taken and given back.

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redlock;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Result, bail};

use crate::engine::{Engine, Site};
use crate::workers::{Arena, Contest};

/// A future of a server's bare operation.
pub type Soon<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A connection like the driver's, shared by all who use it.
pub type Shared = Arc<dyn Server>;

/// More workers than any row has, for servers where each has something of its own.
#[cfg(any(feature = "mysql", feature = "postgres"))]
const MOST_WORKERS: usize = 1_024;

/// A server's bare operations.
pub trait Server: fmt::Debug + Send + Sync + 'static {
    /// What a round trip is, for people.
    fn round_trip_is(&self) -> &'static str;

    /// The cheapest command there is.
    fn round_trip(&self) -> Soon<'_, ()>;

    /// What a pair is, for people.
    fn pair_is(&self) -> &'static str;

    /// Takes the barest lock that people make on this engine, on the worker's own name, and gives it back.
    fn pair(&self, worker: usize) -> Soon<'_, ()>;

    /// The lock that people would use otherwise, a library's or the server's own, if one is measured: what it is called.
    fn peer(&self) -> Option<&'static str> {
        None
    }

    /// With how many workers on one name it is still measured: with more, some have no turn in a minute.
    fn peer_up_to(&self) -> usize {
        usize::MAX
    }

    /// Takes the peer's lock of this name, does what is to be done inside, and gives it back.
    fn peer_turn<'a>(&'a self, _worker: usize, _name: &'a str, inside: Soon<'a, ()>) -> Soon<'a, ()> {
        inside
    }

    /// Its version and whether a commit waits for the disk, in its own words, if it tells.
    fn settings(&self) -> Soon<'_, Option<String>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// How many commands for locks the server has counted, if it counts.
    fn commands(&self) -> Soon<'_, Option<u64>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// How many sessions Lockline has now, if the server tells.
    fn sessions(&self) -> Soon<'_, Option<u64>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// How many bytes of memory the server uses, if it tells.
    fn memory(&self) -> Soon<'_, Option<u64>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// What the engine's own tool for measuring reaches with 64 connections, if there is one: its name, and a rate.
    fn own_tool(&self) -> Soon<'_, Option<(&'static str, f64)>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// A connection to the server of a site.
///
/// # Errors
/// If it does not answer, or the engine is no server.
pub async fn connect(site: &Site) -> Result<Shared> {
    match site.engine {
        #[cfg(feature = "redis")]
        Engine::Redis => Ok(Arc::new(redis::Bare::connect(site).await?)),
        #[cfg(feature = "redis")]
        Engine::Redlock => Ok(Arc::new(redlock::Bare::connect(site).await?)),
        #[cfg(feature = "zookeeper")]
        Engine::Zookeeper | Engine::ZookeeperEnsemble => Ok(Arc::new(zookeeper::Bare::connect(site).await?)),
        #[cfg(feature = "etcd")]
        Engine::Etcd => Ok(Arc::new(etcd::Bare::connect(site).await?)),
        #[cfg(feature = "postgres")]
        Engine::Postgres => Ok(Arc::new(postgres::Bare::connect(site).await?)),
        #[cfg(feature = "mysql")]
        Engine::Mysql => Ok(Arc::new(mysql::Bare::connect(site).await?)),
        Engine::Memory => bail!("the engine is in this process"),
        #[allow(unreachable_patterns)] // Without any server there is nothing left.
        _ => bail!("the engine is a file"),
    }
}

/// Workers that take and give back the barest locks.
#[derive(Debug)]
pub struct Pairs {
    /// Where.
    pub server: Shared,
    /// Where to go with them.
    pub arena: Arc<Arena>,
}

/// Workers that take turns on a peer's locks.
#[derive(Debug)]
pub struct Peers {
    /// Where: one for all workers, or one for each.
    pub servers: Vec<Shared>,
    /// Where to go with them.
    pub arena: Arc<Arena>,
    /// On how many names.
    pub names: usize,
    /// How long to stay.
    pub hold: std::time::Duration,
}

impl Contest for Peers {
    async fn turn(&self, me: usize) -> Result<()> {
        let name = (me % self.names).to_string();
        let inside = Box::pin(async {
            self.arena.visit(me, None, self.hold).await;
            Ok(())
        });
        self.servers[me % self.servers.len()].peer_turn(me, &name, inside).await
    }
}

impl Contest for Pairs {
    async fn turn(&self, me: usize) -> Result<()> {
        self.server.pair(me).await?;
        self.arena.visit(me, None, std::time::Duration::ZERO).await;
        Ok(())
    }
}
