//! Which nodes there are, and how to treat them.

use std::collections::HashSet;
use std::time::Duration;

use super::super::redis::address::Topology;
use super::super::redis::{Layout, RedisConfig};
use crate::error::{Error, ErrorKind, Result};
use crate::url::EngineUrl;

/// The independent servers that decide together.
///
/// ```
/// # use lockline::drivers::redis::RedisConfig;
/// # use lockline::drivers::redlock::RedlockConfig;
/// let nodes = ["red-1", "red-2", "red-3"].map(|host| RedisConfig::new(host, 6379).login("locks", "secret"));
/// let config = RedlockConfig::new(nodes);
/// ```
#[derive(Clone, Debug)]
pub struct RedlockConfig {
    pub(super) nodes: Vec<RedisConfig>,
}

impl RedlockConfig {
    /// A quorum of these servers: 3, 5 or 7 that know nothing of each other. They must agree on name space, longest lease
    /// and restart guard.
    pub fn new(nodes: impl IntoIterator<Item = RedisConfig>) -> RedlockConfig {
        let nodes = nodes.into_iter().map(|mut node| {
            node.of_a_quorum = true;
            node
        });
        RedlockConfig { nodes: nodes.collect() }
    }

    /// What an address says; `lease=` and `prefix=`, which are the client's, must have been taken out of it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an address that makes no sense, [`Unsupported`](ErrorKind::Unsupported) for
    /// options that only one server has.
    pub fn from_url(mut url: EngineUrl) -> Result<RedlockConfig> {
        if url.take("replicas").is_some() {
            let message = "a quorum has no option replicas=";
            return Err(Error::new(ErrorKind::Unsupported, "url", message)
                .hint("leave it out, or use one server: redis://host"));
        }
        let nodes = url.one_by_one("redis").into_iter().map(RedisConfig::from_url);
        let config = RedlockConfig::new(nodes.collect::<Result<Vec<_>>>()?);
        config.check()?;
        Ok(config)
    }

    /// Everything that can be refused before a server is touched.
    pub(super) fn check(&self) -> Result<()> {
        let bad = |problem: &'static str, hint: &'static str| {
            Err(Error::new(ErrorKind::Invalid, "url", problem).hint(hint))
        };
        let Some(first) = self.nodes.first().filter(|_| [3, 5, 7].contains(&self.nodes.len())) else {
            let message =
                "a quorum has 3, 5 or 7 nodes: an even number survives no more losses than one less";
            return bad(message, "write redlock://host:port,host:port,host:port");
        };
        let addresses: HashSet<String> = self.nodes.iter().map(RedisConfig::address).collect();
        if addresses.len() < self.nodes.len() {
            return bad("a node is named twice: it would vote twice", "name independent servers");
        }
        let alike = |node: &RedisConfig| {
            (&node.space, node.max_lease, node.restart_guard, node.layout)
                == (&first.space, first.max_lease, first.restart_guard, first.layout)
        };
        if !self.nodes.iter().all(alike) {
            let message = "the nodes do not agree on space, max_lease, restart_guard and layout";
            return bad(message, "say the same for all of them");
        }
        self.nodes.iter().try_for_each(|node| {
            if !matches!(node.topology, Topology::One(_)) || node.replicas.is_some() {
                let message = "a node of a quorum is one server, and waits for no replicas";
                return Err(Error::new(ErrorKind::Unsupported, "url", message)
                    .hint("name single servers: independent nodes are what makes a quorum safe"));
            }
            if !matches!(node.layout, Layout::Line | Layout::Plain) {
                let message = "a quorum keeps Lockline's own layout, or the plain one";
                return Err(Error::new(ErrorKind::Unsupported, "url", message)
                    .hint("Redisson's locks are on one server: redis://host?layout=redisson"));
            }
            node.check()
        })
    }

    /// That of all nodes.
    pub(super) fn layout(&self) -> Layout {
        self.nodes.first().map_or(Layout::Line, |node| node.layout)
    }

    pub(super) fn check_lease(&self, operation: &'static str, lease: Duration) -> Result<()> {
        self.nodes.iter().try_for_each(|node| node.check_lease(operation, lease))
    }

    /// As people see it: no secret, no user.
    pub(super) fn address(&self) -> String {
        let hosts = self.nodes.iter().map(RedisConfig::address);
        let hosts: Vec<String> = hosts
            .map(|address| address.trim_start_matches("redis://").trim_start_matches("rediss://").to_owned())
            .collect();
        format!("redlock://{}", hosts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::redis::Replicas;
    use super::*;

    fn config(text: &str) -> Result<RedlockConfig> {
        RedlockConfig::from_url(EngineUrl::parse(text)?)
    }

    #[test]
    fn addresses() {
        let all =
            config("redlock://me:c4nary@a:1,b:2,[::1]:3/2?space=s&max_lease=5m&restart_guard=off").unwrap();
        assert_eq!(all.address(), "redlock://a:1/2,b:2/2,[::1]:3/2");
        assert!(
            all.nodes
                .iter()
                .all(|node| node.of_a_quorum && node.space == "s" && node.max_lease.as_secs() == 300)
        );
        assert!(!format!("{all:?}").contains("c4nary"));
        assert_eq!(config("redlock://a,b,c,d,e").unwrap().nodes.len(), 5);
    }

    #[test]
    fn what_is_refused() {
        for text in [
            "redlock://",
            "redlock://a",
            "redlock://a,b",
            "redlock://a,b,c,d",
            "redlock://a,b,a:6379",
            "redlock://a,b,c?x=1",
            "redlock://a,b,c?sentinel_password=x",
            "redlock://me@a,b,c",
        ] {
            assert_eq!(config(text).unwrap_err().kind(), ErrorKind::Invalid, "{text}");
        }
        for text in ["redlock://a,b,c?layout=redisson", "redlock://a,b,c?replicas=all"] {
            assert_eq!(config(text).unwrap_err().kind(), ErrorKind::Unsupported, "{text}");
        }
        let mut nodes = ["a", "b", "c"].map(|host| RedisConfig::new(host, 1));
        assert!(RedlockConfig::new(nodes.clone()).check().is_ok());
        for odd in [
            RedisConfig::new("d", 1).replicas(Replicas::All),
            RedisConfig::cluster([("d", 1)]),
            RedisConfig::sentinel([("d", 1)], "primary"),
        ] {
            let quorum = RedlockConfig::new([nodes[0].clone(), nodes[1].clone(), odd]);
            assert_eq!(quorum.check().unwrap_err().kind(), ErrorKind::Unsupported, "{quorum:?}");
        }
        let odd = RedisConfig::new("d", 1).layout(Layout::Plain).space("lockline");
        let mixed = RedlockConfig::new([nodes[0].clone(), nodes[1].clone(), odd]);
        assert_eq!(mixed.check().unwrap_err().kind(), ErrorKind::Invalid);
        nodes[1] = nodes[1].clone().space("other");
        assert!(RedlockConfig::new(nodes).check().is_err());
        assert_eq!(config("redlock://a,b,c?layout=plain").unwrap().layout(), Layout::Plain);
    }

    #[test]
    fn broken_addresses_show_no_secret() {
        let examples = ["redlock://me:c4nary@a:1,b:2,[::1]:3/2?space=s&max_lease=5m&restart_guard=off"];
        crate::hostile::addresses(&examples, config);
    }
}
