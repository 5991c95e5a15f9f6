//! The verbs as the scripts take them, and their answers as `Line` would give them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use sha2::{Digest, Sha256};

use super::cluster::all;
use super::connection::Connection;
use super::error::nonsense;
use super::incarnation::micros;
use super::link::Live;
use super::scripts::Script;
use crate::driver::Query;
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, ClaimId, ClaimView, LineView, Mode, Place, Standing, Ticket, Who, look_again};
use crate::name::Name;
use crate::time::Time;

/// How many lines one call looks at: short enough that nobody waits behind it.
const LINES: usize = 64;

/// The key of a line. All its keys share one hash tag, so that a cluster keeps them together; a name is data, so
/// only its hash is part of a key. Half of SHA-256 is more than anyone can find two names for.
pub(super) fn line_key(space: &str, name: &str) -> String {
    let hash = Sha256::digest(name.as_bytes());
    let half = u128::from_be_bytes(hash[..16].try_into().unwrap_or_default());
    format!("{space}:{{{half:032x}}}")
}

impl Connection {
    pub(super) fn key(&self, name: &str) -> String {
        line_key(&self.config.space, name)
    }

    pub(super) async fn join(&self, claim: &Claim, wait: bool) -> Result<Standing> {
        let (answer, live) = self.ask_to_join(claim, wait, None).await?;
        if let Value::Array(parts) = &answer
            && let [Value::Int(4)] = parts.as_slice()
        {
            return Err(would_wait_for_itself(&claim.name, &self.address));
        }
        let standing = standing(&answer).ok_or_else(|| nonsense("join", &self.address))?;
        self.confirm_grant(claim, standing, &live).await
    }

    /// Asks a node of a quorum for a place on this ticket; the answer as its script gives it.
    pub(in crate::drivers) async fn propose(
        &self,
        claim: &Claim,
        wait: bool,
        ticket: Ticket,
    ) -> Result<Value> {
        Ok(self.ask_to_join(claim, wait, Some(ticket)).await?.0)
    }

    /// A join as its script answers it, and the connection it ran on.
    async fn ask_to_join(
        &self,
        claim: &Claim,
        wait: bool,
        ticket: Option<Ticket>,
    ) -> Result<(Value, Arc<Live>)> {
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
        self.run("join", Script::Join, &key, fill).await
    }

    pub(in crate::drivers) async fn renew(&self, places: &[Place]) -> Result<Vec<Standing>> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let parts = self.together(places, |place| self.key(place.name.as_str()));
        if parts.len() == 1 {
            return self.renew_together(&places.iter().collect::<Vec<_>>()).await;
        }
        // One part of a cluster that fails must not cost the others their leases.
        let renewals = parts.iter().map(|part| async {
            let places: Vec<&Place> = part.iter().map(|&index| &places[index]).collect();
            self.renew_together(&places).await
        });
        let (mut standings, mut failed) = (vec![Standing::Unsure; places.len()], None);
        for (part, answer) in parts.iter().zip(all(renewals).await) {
            match answer {
                Ok(some) => part.iter().zip(some).for_each(|(&index, standing)| standings[index] = standing),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if standings.iter().all(|one| *one == Standing::Unsure) => Err(error),
            _ => Ok(standings),
        }
    }

    /// Renews places whose lines can go into one call.
    async fn renew_together(&self, places: &[&Place]) -> Result<Vec<Standing>> {
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
        let (answer, live) = self.run("renew", Script::Renew, &keys[0], fill).await?;
        let standings = match answer {
            Value::Array(answers) if answers.len() == places.len() => answers.iter().map(standing).collect(),
            _ => None,
        };
        let standings = standings.ok_or_else(|| nonsense("renew", &self.address))?;
        self.confirm_renewals(places, standings, &live).await
    }

    pub(in crate::drivers) async fn leave(&self, place: &Place) -> Result<()> {
        let key = self.key(place.name.as_str());
        let fill = |cmd: &mut Cmd| {
            cmd.arg(1).arg(&key).arg(hex(place.id)).arg(place.name.as_str());
        };
        self.run("leave", Script::Leave, &key, fill).await.map(drop)
    }

    pub(in crate::drivers) async fn evict(&self, name: &Name, ticket: Ticket, at_once: bool) -> Result<bool> {
        let key = self.key(name.as_str());
        let fill = |cmd: &mut Cmd| {
            cmd.arg(1).arg(&key).arg(ticket.get()).arg(u8::from(at_once)).arg(name.as_str());
        };
        match self.run("evict", Script::Evict, &key, fill).await?.0 {
            Value::Int(found) => Ok(found == 1),
            _ => Err(nonsense("evict", &self.address)),
        }
    }

    pub(in crate::drivers) async fn view(&self, query: &Query) -> Result<Vec<LineView>> {
        let keys = match query {
            Query::Name(name) => vec![self.key(name.as_str())],
            Query::Prefix(_) => {
                let found = self.all_keys(&format!("{}:{{*}}:c", self.config.space)).await?;
                found.iter().filter_map(|key| key.strip_suffix(":c").map(str::to_owned)).collect()
            }
        };
        let mut lines = Vec::new();
        let parts = self.together(&keys, String::clone);
        let calls: Vec<&[usize]> = parts.iter().flat_map(|part| part.chunks(LINES)).collect();
        for some in calls.chunks(if parts.len() > 1 { LINES } else { 1 }) {
            let views =
                some.iter().map(|call| self.view_together(call.iter().map(|&index| &keys[index]).collect()));
            for view in all(views).await {
                lines.extend(view?);
            }
        }
        lines.retain(|line| query.matches(line.name.as_str()));
        lines.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(lines)
    }

    /// Lines that can go into one call.
    async fn view_together(&self, keys: Vec<&String>) -> Result<Vec<LineView>> {
        let fill = |cmd: &mut Cmd| {
            cmd.arg(keys.len()).arg(&keys);
        };
        let Value::Array(answers) = self.run("view", Script::View, keys[0], fill).await?.0 else {
            return Err(nonsense("view", &self.address));
        };
        let there =
            answers.iter().filter(|answer| !matches!(answer, Value::Array(parts) if parts.is_empty()));
        there.map(|answer| line(answer).ok_or_else(|| nonsense("view", &self.address))).collect()
    }
}

/// Whether a line, as view.lua writes it, has the place with this ticket, and it is in.
pub(super) fn is_in(answer: &Value, ticket: Ticket) -> bool {
    let Value::Array(lines) = answer else { return false };
    lines.iter().filter_map(line).any(|line| line.holders.iter().any(|holder| holder.ticket == ticket))
}

fn hex(id: ClaimId) -> String {
    format!("{:032x}", id.as_u128())
}

pub(super) fn text(value: &Value) -> Option<&str> {
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

/// An answer that nobody meant to give: built of what answers are built of.
#[cfg(test)]
pub(super) fn any_value(depth: u64) -> Value {
    use crate::hostile::any_of;
    use crate::simulation::chance::below;
    let numbers = [0, 1, 2, 3, 4, 7, -1, 5_460, 16_383, 16_384, 60_000, 1 << 40, i64::MAX, i64::MIN];
    let texts = [
        "",
        "a",
        "-1",
        "7",
        "18446744073709551615",
        "127.0.0.1",
        "ü",
        "17 10000000 0 5 x 0 0 0 p1 42 2 1 mehi",
        "17 1 2 5 p 2 4 1 p1 42 1 1 üh",
        "1 1 0 1 s 0 0 0 p 1 99 1 x",
    ];
    match below(if depth == 0 { 3 } else { 8 }) {
        0 => Value::Int(numbers[below(numbers.len() as u64) as usize]),
        1 => Value::BulkString(any_of(&texts).into()),
        2 => Value::Nil,
        _ => Value::Array((0..below(7)).map(|_| any_value(depth - 1)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_answers_are_refused_or_understood() {
        crate::hostile::cases_of(|| {
            let answer = any_value(3);
            let _ = (standing(&answer), number(&answer), is_in(&answer, Ticket::new(7)));
        });
    }

    #[test]
    fn broken_claims_are_refused_or_understood() {
        let stored = ["17 10000000 0 5 x 0 0 0 p1 42 2 1 mehi", "17 1 2 5 p 2 4 1 p1 42 2 1 üh"];
        crate::hostile::texts(&stored, |text| {
            if let Some(claim) = claim(text, Time::from_micros(u64::MAX), Time::from_micros(9)) {
                assert!(text.contains(&claim.who.owner));
            }
        });
    }
}
