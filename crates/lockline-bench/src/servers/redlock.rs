//! A quorum of Redis servers: the same command at all nodes at once, and rslock on the same nodes.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rslock::LockManager;

use super::redis::Bare as Node;
use super::{Server, Soon};
use crate::engine::Site;

/// A connection to each node, and the peer's own.
pub(super) struct Bare {
    nodes: Vec<Node>,
    peer: LockManager,
    /// A name space of its own.
    space: String,
}

impl Bare {
    pub(super) async fn connect(site: &Site) -> Result<Bare> {
        let rest = site.url.strip_prefix("redlock://").context("no quorum")?;
        let hosts = rest.split(['?', '/']).next().context("no address")?;
        let urls: Vec<String> = hosts.split(',').map(|host| format!("redis://{host}")).collect();
        let mut nodes = Vec::new();
        for url in &urls {
            nodes.push(Node::at(url, site).await?);
        }
        let space = site.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Bare { nodes, peer: LockManager::new(urls), space })
    }

    /// What all nodes have counted.
    async fn scripts(&self) -> Result<u64> {
        let mut all = 0;
        for node in &self.nodes {
            all += node.commands().await?.context("a node does not count")?;
        }
        Ok(all)
    }

    /// Asks all nodes at once, and waits for this many.
    async fn ask<'a>(&'a self, enough: usize, one: impl Fn(&'a Node) -> Soon<'a, ()>) -> Result<()> {
        let mut asked: Vec<_> = self.nodes.iter().map(one).collect();
        let mut answers = pin!(std::future::poll_fn(|context| {
            let mut failed = None;
            asked.retain_mut(|answer| match answer.as_mut().poll(context) {
                Poll::Ready(Err(error)) => {
                    failed = Some(error);
                    false
                }
                Poll::Ready(Ok(())) => false,
                Poll::Pending => true,
            });
            match failed {
                Some(error) => Poll::Ready(Err(error)),
                None if self.nodes.len() - asked.len() >= enough => Poll::Ready(Ok(())),
                None => Poll::Pending,
            }
        }));
        answers.as_mut().await
    }
}

impl std::fmt::Debug for Bare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bare").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

impl Server for Bare {
    fn round_trip_is(&self) -> &'static str {
        "PING at all nodes, until a majority has answered"
    }

    fn round_trip(&self) -> Soon<'_, ()> {
        Box::pin(self.ask(self.nodes.len() / 2 + 1, Node::round_trip))
    }

    fn pair_is(&self) -> &'static str {
        "SET NX PX + release script at all nodes, as many workers"
    }

    fn pair(&self, worker: usize) -> Soon<'_, ()> {
        Box::pin(async move {
            self.ask(self.nodes.len(), move |node| Box::pin(node.take(worker))).await?;
            self.ask(self.nodes.len(), move |node| Box::pin(node.give_back(worker))).await
        })
    }

    /// For each node, on average.
    fn commands(&self) -> Soon<'_, Option<u64>> {
        Box::pin(async {
            // Nobody waits for a node that is behind: it is counted when it has caught up.
            let mut before = self.scripts().await?;
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let after = self.scripts().await?;
                if after == before {
                    return Ok(Some(after / self.nodes.len() as u64));
                }
                before = after;
            }
            bail!("a node does not catch up")
        })
    }

    fn memory(&self) -> Soon<'_, Option<u64>> {
        self.nodes[0].memory()
    }

    fn peer(&self) -> Option<&'static str> {
        Some("rslock")
    }

    fn peer_up_to(&self) -> usize {
        64
    }

    fn peer_turn<'a>(&'a self, _worker: usize, name: &'a str, inside: Soon<'a, ()>) -> Soon<'a, ()> {
        Box::pin(async move {
            // As its own documents take a lock; it is never extended.
            let lease = Duration::from_secs(10);
            let held = self.peer.acquire(format!("{}:rslock:{name}", self.space).as_bytes(), lease).await?;
            ensure!(held.lock.validity_time > 0, "the peer's lock has no time left");
            inside.await?;
            held.release().await;
            Ok(())
        })
    }
}
