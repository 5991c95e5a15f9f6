//! The verbs as the scripts take them, and their answers as `Line` would give them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use sha2::{Digest, Sha256};

use super::connection::Connection;
use super::error::nonsense;
use super::incarnation::micros;
use super::scripts::Script;
use crate::driver::Query;
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, ClaimId, ClaimView, LineView, Mode, Place, Standing, Ticket, Who, look_again};
use crate::name::Name;
use crate::time::Time;

/// How many lines one call looks at: short enough that nobody waits behind it.
const LINES: usize = 64;

impl Connection {
    /// The key of a line. All its keys share one hash tag, so that a cluster keeps them together; a name is data, so
    /// only its hash is part of a key. Half of SHA-256 is more than anyone can find two names for.
    pub(super) fn key(&self, name: &str) -> String {
        let hash = Sha256::digest(name.as_bytes());
        let half = u128::from_be_bytes(hash[..16].try_into().unwrap_or_default());
        format!("{}:{{{half:032x}}}", self.config.space)
    }

    pub(super) async fn join(&self, claim: &Claim, wait: bool) -> Result<Standing> {
        let answer = self.ask_to_join(claim, wait, None).await?;
        if let Value::Array(parts) = &answer
            && let [Value::Int(4)] = parts.as_slice()
        {
            return Err(would_wait_for_itself(&claim.name, &self.address));
        }
        standing(&answer).ok_or_else(|| nonsense("join", &self.address))
    }

    /// A join as its script answers it. A node of a quorum wants a ticket.
    pub(in crate::drivers) async fn ask_to_join(
        &self,
        claim: &Claim,
        wait: bool,
        ticket: Option<Ticket>,
    ) -> Result<Value> {
        self.config.check_lease("join", claim.lease)?;
        let key = self.key(claim.name.as_str());
        let (mode, count, limit) = match claim.mode {
            Mode::Exclusive => ("x", 0, 0),
            Mode::Shared => ("s", 0, 0),
            Mode::Permits { count, limit } => ("p", count, limit),
        };
        let identity = claim.identity.as_deref().unwrap_or_default();
        let Who { owner, host, pid } = &*claim.who;
        let shared = u8::from(!identity.is_empty());
        // As `parse` in line.lua, and `claim` below, take it apart.
        let rest = format!(
            "{mode} {count} {limit} {shared} {} {pid} {} {} {owner}{host}{identity}",
            self.process,
            owner.len(),
            host.len()
        );
        let fill = |cmd: &mut Cmd| {
            cmd.arg(1).arg(&key).arg(hex(claim.id)).arg(micros(claim.lease)).arg(u8::from(wait));
            cmd.arg(claim.name.as_str()).arg(mode).arg(count).arg(limit).arg(identity).arg(&rest);
            if let Some(ticket) = ticket {
                cmd.arg(ticket.get());
            }
        };
        self.run("join", Script::Join, fill).await
    }

    pub(in crate::drivers) async fn renew(&self, places: &[Place]) -> Result<Vec<Standing>> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let mut lines: HashMap<&Name, usize> = HashMap::new();
        let mut names: Vec<&Name> = Vec::new();
        let mut which = Vec::with_capacity(places.len());
        for place in places {
            self.config.check_lease("renew", place.lease)?;
            which.push(*lines.entry(&place.name).or_insert_with(|| {
                names.push(&place.name);
                names.len()
            }));
        }
        let keys: Vec<String> = names.iter().map(|name| self.key(name.as_str())).collect();
        let fill = |cmd: &mut Cmd| {
            cmd.arg(keys.len()).arg(&keys).arg(places.len());
            for name in &names {
                cmd.arg(name.as_str());
            }
            for (place, line) in places.iter().zip(&which) {
                let ticket = place.ticket.map_or(0, Ticket::get);
                cmd.arg(*line)
                    .arg(hex(place.id))
                    .arg(ticket)
                    .arg(micros(place.lease))
                    .arg(u8::from(place.last));
            }
        };
        match self.run("renew", Script::Renew, fill).await? {
            Value::Array(answers) if answers.len() == places.len() => answers.iter().map(standing).collect(),
            _ => None,
        }
        .ok_or_else(|| nonsense("renew", &self.address))
    }

    pub(in crate::drivers) async fn leave(&self, place: &Place) -> Result<()> {
        let key = self.key(place.name.as_str());
        let fill = |cmd: &mut Cmd| {
            cmd.arg(1).arg(&key).arg(hex(place.id)).arg(place.name.as_str());
        };
        self.run("leave", Script::Leave, fill).await.map(drop)
    }

    pub(in crate::drivers) async fn evict(&self, name: &Name, ticket: Ticket, at_once: bool) -> Result<bool> {
        let key = self.key(name.as_str());
        let fill = |cmd: &mut Cmd| {
            cmd.arg(1).arg(&key).arg(ticket.get()).arg(u8::from(at_once)).arg(name.as_str());
        };
        match self.run("evict", Script::Evict, fill).await? {
            Value::Int(found) => Ok(found == 1),
            _ => Err(nonsense("evict", &self.address)),
        }
    }

    pub(in crate::drivers) async fn view(&self, query: &Query) -> Result<Vec<LineView>> {
        let keys = match query {
            Query::Name(name) => vec![self.key(name.as_str())],
            Query::Prefix(_) => self.all_keys().await?,
        };
        let mut lines = Vec::new();
        for some in keys.chunks(LINES) {
            let fill = |cmd: &mut Cmd| {
                cmd.arg(some.len()).arg(some);
            };
            let Value::Array(answers) = self.run("view", Script::View, fill).await? else {
                return Err(nonsense("view", &self.address));
            };
            for answer in &answers {
                match answer {
                    Value::Array(parts) if parts.is_empty() => {}
                    answer => lines.push(line(answer).ok_or_else(|| nonsense("view", &self.address))?),
                }
            }
        }
        lines.retain(|line| query.matches(line.name.as_str()));
        lines.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(lines)
    }

    /// The keys of all lines: the server is walked through, a little at a time.
    async fn all_keys(&self) -> Result<Vec<String>> {
        let mut keys = Vec::new();
        let mut cursor: Vec<u8> = b"0".to_vec();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor)
                .arg("MATCH")
                .arg(format!("{}:{{*}}:c", self.config.space))
                .arg("COUNT")
                .arg(1000);
            let Value::Array(answer) = self.plain("view", &scan).await? else { break };
            let [Value::BulkString(next), Value::Array(found)] = answer.as_slice() else { break };
            let line = |key| text(key)?.strip_suffix(":c").map(str::to_owned);
            keys.extend(found.iter().filter_map(line));
            cursor.clone_from(next);
            if cursor == b"0" {
                // A walk may meet a key twice.
                keys.sort_unstable();
                keys.dedup();
                return Ok(keys);
            }
        }
        Err(nonsense("view", &self.address))
    }
}

fn hex(id: ClaimId) -> String {
    format!("{:032x}", id.as_u128())
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// The error for a claim whose identity stands in the line in another mode.
pub(in crate::drivers) fn would_wait_for_itself(name: &Name, address: &Arc<str>) -> Error {
    let message = "this owner already stands in the line in another mode and would wait for itself";
    Error::new(ErrorKind::Deadlock, "join", message)
        .hint("release what the owner has on this name first")
        .about(name)
        .at(address)
}

pub(in crate::drivers) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        other => text(other)?.parse().ok(),
    }
}

/// As `standing` in rules.lua writes it.
pub(in crate::drivers) fn standing(answer: &Value) -> Option<Standing> {
    let Value::Array(parts) = answer else { return None };
    Some(match parts.as_slice() {
        [Value::Int(0)] => Standing::Lapsed,
        [Value::Int(1), ticket] => Standing::In { ticket: Ticket::new(number(ticket)?) },
        [Value::Int(2), ticket, ahead, lease, lapse, guard] => Standing::Waiting {
            ticket: Ticket::new(number(ticket)?),
            ahead: u32::try_from(number(ahead)?).unwrap_or(u32::MAX),
            // -1, which is no number here, says that there is none.
            look_again: look_again(
                Duration::from_micros(number(lease)?),
                number(lapse).map(Duration::from_micros),
                number(guard).map(Duration::from_micros),
            ),
        },
        [Value::Int(3)] => Standing::Out,
        _ => return None,
    })
}

/// As view.lua writes it.
fn line(answer: &Value) -> Option<LineView> {
    let Value::Array(parts) = answer else { return None };
    let [name, through, now, claims @ ..] = parts.as_slice() else { return None };
    let (through, now) = (Ticket::new(number(through)?), Time::from_micros(number(now)?));
    let mut line = LineView::free(Name::new(text(name)?).ok()?);
    let mut all = Vec::new();
    for pair in claims.chunks_exact(2) {
        all.push(claim(text(&pair[0])?, Time::from_micros(number(&pair[1])?), now)?);
    }
    // Of the claims on one place the one that came first stands first.
    all.sort_by(|a, b| a.ticket.cmp(&b.ticket).then(b.since.cmp(&a.since)));
    (line.holders, line.waiters) = all.into_iter().partition(|claim| claim.ticket <= through);
    Some(line)
}

fn claim(stored: &str, deadline: Time, now: Time) -> Option<ClaimView> {
    let parts: Vec<&str> = stored.splitn(13, ' ').collect();
    let [ticket, _lease, flags, since, mode, count, limit, _shared, _process, pid, owner, host, names] =
        parts.as_slice()
    else {
        return None;
    };
    let (owner, rest) = names.split_at_checked(owner.parse().ok()?)?;
    let (host, _identity) = rest.split_at_checked(host.parse().ok()?)?;
    Some(ClaimView {
        ticket: Ticket::new(ticket.parse().ok()?),
        mode: match *mode {
            "s" => Mode::Shared,
            "p" => Mode::Permits { count: count.parse().ok()?, limit: limit.parse().ok()? },
            _ => Mode::Exclusive,
        },
        who: Who { owner: owner.to_owned(), host: host.to_owned(), pid: pid.parse().ok()? },
        remaining: deadline.since(now),
        since: now.since(Time::from_micros(since.parse().ok()?)),
        evicted: flags.parse::<u8>().ok()? >= 2,
    })
}
