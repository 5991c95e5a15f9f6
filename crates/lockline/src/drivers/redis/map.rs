//! Which node of a cluster keeps which slots: what the nodes say.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;

use super::address::Address;
use super::answers::text;
use super::dial;
use super::error::explain;
use super::live::Context;
use super::slots::SLOTS;
use crate::error::{Error, ErrorKind, Result};

/// How many nodes are asked for the map at once: enough for some to be down.
const ASKED: usize = 5;
/// How long a node may take to tell the map.
const MAP_WITHIN: Duration = Duration::from_secs(1);

/// A primary, its replicas, and the slots they keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) server: Address,
    /// What the cluster calls the primary, for as long as that is one of its nodes.
    pub(super) id: String,
    pub(super) replicas: Vec<Address>,
    pub(super) ranges: Vec<(u16, u16)>,
}

impl Shard {
    /// Whether they keep, or kept, a slot in common.
    pub(super) fn overlaps(&self, other: &Shard) -> bool {
        let meets = |a: &(u16, u16)| other.ranges.iter().any(|b| a.0 <= b.1 && b.0 <= a.1);
        self.ranges.iter().any(meets)
    }
}

/// The map, as the node knows it that has seen the latest change and can reach most of the others.
pub(super) async fn ask(context: &Arc<Context>, known: Vec<Address>) -> Result<Vec<Shard>> {
    let unavailable =
        |message: &'static str| Error::new(ErrorKind::Unavailable, "connect", message).at(&context.address);
    let mut asked = JoinSet::new();
    for server in some_of(known) {
        let context = context.clone();
        asked.spawn(async move {
            let answer = tokio::time::timeout(MAP_WITHIN, ask_one(&context, &server)).await;
            answer.unwrap_or_else(|_| {
                let error = Error::new(ErrorKind::Unavailable, "connect", "a node does not answer");
                Err(error.at(&context.address))
            })
        });
    }
    let mut best: Option<(bool, u64, Vec<Shard>)> = None;
    let mut failed = None;
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok(Ok(answer)) if best.as_ref().is_none_or(|best| (best.0, best.1) < (answer.0, answer.1)) => {
                best = Some(answer);
            }
            Ok(Err(error)) if failed.as_ref().is_none_or(|known: &Error| known.kind().is_transient()) => {
                failed = Some(error);
            }
            _ => {}
        }
    }
    match best {
        Some((_, _, shards)) if !shards.is_empty() => Ok(shards),
        Some(_) => Err(unavailable("the cluster has no slots yet")),
        None => Err(failed.unwrap_or_else(|| unavailable("no node answers"))),
    }
}

/// Any of them: not always the same, because those may be down.
fn some_of(mut servers: Vec<Address>) -> Vec<Address> {
    let bits = crate::line::ClaimId::random().as_u128();
    let by = usize::try_from(bits % servers.len().max(1) as u128).unwrap_or(0);
    servers.rotate_left(by);
    servers.truncate(ASKED);
    servers
}

/// Whether a node can reach most of the others, the latest change that it knows of, and the map.
async fn ask_one(context: &Context, server: &Address) -> Result<(bool, u64, Vec<Shard>)> {
    let Context { config, address, .. } = context;
    let fail = |e: &redis::RedisError| explain("connect", address, e, false);
    let mut connection = dial::server(config, server, dial::patient(), address).await?;
    let state: String =
        redis::cmd("CLUSTER").arg("INFO").query_async(&mut connection).await.map_err(|e| {
            if e.to_string().contains("cluster support disabled") {
                return Error::new(
                    ErrorKind::Unsupported,
                    "connect",
                    "the server is not a node of a cluster",
                )
                .hint("write redis://host for one server")
                .at(address);
            }
            fail(&e)
        })?;
    let is_well = state.lines().any(|line| line == "cluster_state:ok");
    let epoch = state.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:")?.parse().ok());
    let slots: Value =
        redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await.map_err(|e| fail(&e))?;
    let shards = shards(&slots, server)
        .ok_or_else(|| Error::new(ErrorKind::Unavailable, "connect", "the map makes no sense").at(address))?;
    Ok((is_well, epoch.unwrap_or(0), shards))
}

/// What `CLUSTER SLOTS` says. A node that does not know its own host leaves it empty.
fn shards(answer: &Value, asked: &Address) -> Option<Vec<Shard>> {
    let Value::Array(rows) = answer else { return None };
    let mut shards: Vec<Shard> = Vec::new();
    for row in rows {
        let Value::Array(row) = row else { return None };
        let [Value::Int(first), Value::Int(last), primary, replicas @ ..] = row.as_slice() else {
            return None;
        };
        let range = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        if range.0 > range.1 || range.1 >= SLOTS {
            return None;
        }
        let server = node_address(primary, asked)?;
        match shards.iter_mut().find(|shard| shard.server == server) {
            Some(shard) => shard.ranges.push(range),
            None => {
                let replicas =
                    replicas.iter().map(|node| node_address(node, asked)).collect::<Option<_>>()?;
                shards.push(Shard { server, id: node_id(primary), replicas, ranges: vec![range] });
            }
        }
    }
    Some(shards)
}

fn node_id(node: &Value) -> String {
    match node {
        Value::Array(parts) => parts.get(2).and_then(text).unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

fn node_address(node: &Value, asked: &Address) -> Option<Address> {
    let Value::Array(parts) = node else { return None };
    let [host, Value::Int(port), ..] = parts.as_slice() else { return None };
    let host = match (host, asked) {
        (Value::BulkString(host), _) if !host.is_empty() => String::from_utf8(host.clone()).ok()?,
        (_, Address::Tcp(host, _)) => host.clone(),
        _ => return None,
    };
    Some(Address::Tcp(host, u16::try_from(*port).ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::answers::any_value;
    use super::*;

    fn node(host: &str, port: i64) -> Value {
        Value::Array(vec![Value::BulkString(host.into()), Value::Int(port), Value::BulkString("id".into())])
    }

    #[test]
    fn maps_are_understood() {
        let asked = Address::Tcp("seed".into(), 1);
        let rows = Value::Array(vec![
            Value::Array(vec![Value::Int(0), Value::Int(5), node("", 7), node("b", 8)]),
            Value::Array(vec![Value::Int(9), Value::Int(16383), node("", 7), node("b", 8)]),
            Value::Array(vec![Value::Int(6), Value::Int(8), node("c", 9)]),
        ]);
        let map = shards(&rows, &asked).unwrap();
        assert_eq!(map.len(), 2);
        assert_eq!(map[0].server, Address::Tcp("seed".into(), 7));
        assert_eq!((map[0].ranges.len(), map[0].replicas.len(), map[1].replicas.len()), (2, 1, 0));
        assert_eq!((map[1].ranges.as_slice(), map[1].id.as_str()), ([(6, 8)].as_slice(), "id"));
        assert!(!map[0].overlaps(&map[1]));
        assert!(map[0].overlaps(&Shard { ranges: vec![(5, 6)], ..map[1].clone() }));
        assert!(shards(&Value::Nil, &asked).is_none());
        let too_far = Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(16384), node("c", 9)])]);
        assert!(shards(&too_far, &asked).is_none());
    }

    #[test]
    fn broken_maps_are_refused_or_whole() {
        let asked = Address::Tcp("seed".into(), 1);
        crate::hostile::cases_of(|| {
            if let Some(map) = shards(&any_value(4), &asked) {
                assert!(
                    map.iter()
                        .all(|shard| shard.ranges.iter().all(|range| range.0 <= range.1 && range.1 < SLOTS))
                );
            }
        });
        let row = |first, last| {
            Value::Array(vec![Value::Array(vec![Value::Int(first), Value::Int(last), node("c", 9)])])
        };
        assert!(shards(&row(5, 5), &asked).is_some());
        for (first, last) in [(6, 5), (60_000, 5), (-1, 5), (0, 16_384)] {
            assert!(
                shards(&row(first, last), &asked).is_none(),
                "{first}..{last}: such a slot would be looked for without end"
            );
        }
    }
}
