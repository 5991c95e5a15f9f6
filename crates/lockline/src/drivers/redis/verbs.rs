//! The verbs as the scripts take them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use redis::{Cmd, Value};
use sha2::{Digest, Sha256};

use super::answers::{line, number, standing};
use super::cluster::all;
use super::connection::Connection;
use super::error::nonsense;
use super::incarnation::micros;
use super::lent::{IDLE_MS, Leaving, Loan};
use super::live::Live;
use super::scripts::Script;
use crate::driver::Query;
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, ClaimId, LineView, Mode, Place, Standing, Ticket, Who};
use crate::name::Name;

/// How many lines one call looks at: short enough that nobody waits behind it.
const LINES: usize = 64;

/// The key of a line. All its keys share one hash tag, so that a cluster keeps them together; a name is data, so
/// only its hash is part of a key. Half of SHA-256 is more than anyone can find two names for.
pub(super) fn line_key(space: &str, name: &str) -> String {
    key_of(space, hash_of(name))
}

pub(super) fn hash_of(name: &str) -> u128 {
    let hash = Sha256::digest(name.as_bytes());
    u128::from_be_bytes(hash[..16].try_into().unwrap_or_default())
}

pub(super) fn key_of(space: &str, hash: u128) -> String {
    let mut key = String::with_capacity(space.len() + 40);
    key.push_str(space);
    key.push_str(":{");
    push_hex(&mut key, hash);
    key.push('}');
    key
}

impl Connection {
    pub(super) fn key(&self, name: &str) -> String {
        line_key(&self.config.space, name)
    }

    pub(super) async fn join(&self, claim: &Claim, wait: bool) -> Result<Standing> {
        self.config.check_lease("join", claim.lease)?;
        let line = hash_of(claim.name.as_str());
        let lends = self.lends().filter(|_| is_common(claim) && claim.mode == Mode::Exclusive);
        if let Some(live) = &lends
            && let Some(loan) = self.lent.take(line, live)
            && let Some(ticket) = self.use_loan(line, loan, live, claim).await?
        {
            return Ok(Standing::In { ticket });
        }
        // In a box, as in `leave`: who has a loan need not make room for all of it.
        Box::pin(self.join_line(line, claim, wait, lends.is_some())).await
    }

    async fn join_line(&self, line: u128, claim: &Claim, wait: bool, lends: bool) -> Result<Standing> {
        if wait
            && is_common(claim)
            && claim.mode == Mode::Exclusive
            && let Some(standing) = self.join_along(line, claim).await?
        {
            return Ok(standing);
        }
        // With any script the line comes back.
        self.lent.forget(line);
        let (answer, live) = self.ask_to_join(line, claim, wait, None).await?;
        if let Value::Array(parts) = &answer
            && let [Value::Int(4)] = parts.as_slice()
        {
            return Err(would_wait_for_itself(&claim.name, &self.address));
        }
        let standing = standing(&answer).ok_or_else(|| nonsense("join", &self.address))?;
        let was_free = lends && matches!(standing, Standing::In { .. });
        if was_free && self.quiet.has(line) {
            self.lent.wanted(line, claim.id);
        }
        self.quiet.note(line, was_free);
        self.busy.note(line, matches!(standing, Standing::Waiting { .. }));
        self.confirm_grant(claim, standing, &live).await
    }

    /// The ticket that a claim will have that joins now, if its line is lent.
    #[cfg(test)]
    pub(super) fn next_lent_ticket(&self, claim: &Claim) -> Option<u64> {
        let line = hash_of(claim.name.as_str());
        if is_common(claim) && claim.mode == Mode::Exclusive { self.lent.next_ticket(line) } else { None }
    }

    /// Asks a node of a quorum for a place on this ticket; the answer as its script gives it.
    pub(in crate::drivers) async fn propose(
        &self,
        claim: &Claim,
        wait: bool,
        ticket: Ticket,
    ) -> Result<Value> {
        self.config.check_lease("join", claim.lease)?;
        Ok(self.ask_to_join(hash_of(claim.name.as_str()), claim, wait, Some(ticket)).await?.0)
    }

    /// A join as its script answers it, and the connection it ran on.
    async fn ask_to_join(
        &self,
        line: u128,
        claim: &Claim,
        wait: bool,
        ticket: Option<Ticket>,
    ) -> Result<(Value, Arc<Live>)> {
        let key = key_of(&self.config.space, line);
        let text = self.as_stored(None, claim);
        // As join.lua takes it.
        let may_wait = match (is_common(claim), wait) {
            (true, true) if ticket.is_none() && self.busy.has(line) => "2",
            (true, true) => "1",
            (true, false) => "0",
            (false, true) => "w",
            (false, false) => "n",
        };
        let fill = |cmd: &mut Cmd| {
            self.add_keys(cmd, [&key]);
            cmd.arg(&text).arg(may_wait);
            if let Some(ticket) = ticket {
                cmd.arg(ticket.get());
            }
        };
        self.run("join", Script::Join, &key, fill).await
    }

    /// A claim as line.lua takes it apart; behind its ticket, and since when it has it, if those are not the server's to say.
    pub(super) fn as_stored(&self, ticket: Option<(Ticket, u64)>, claim: &Claim) -> String {
        let name = claim.name.as_str();
        let mut text = String::with_capacity(260 + name.len());
        // Writing to a string does not fail.
        if let Some((ticket, since)) = ticket {
            let _ = write!(text, "{} {since} ", ticket.get());
        }
        push_hex(&mut text, claim.id.as_u128());
        let _ = write!(text, " {} {} {name} ", micros(claim.lease), name.len());
        self.push_tail(&mut text, claim);
        text
    }

    /// What of a claim does not change, without its name.
    pub(super) fn push_tail(&self, text: &mut String, claim: &Claim) {
        let (mode, count, limit) = match claim.mode {
            Mode::Exclusive => ('x', 0, 0),
            Mode::Shared => ('s', 0, 0),
            Mode::Permits { count, limit } => ('p', count, limit),
        };
        let identity = claim.identity.as_deref().unwrap_or_default();
        let Who { owner, host, pid } = &*claim.who;
        let (process, shared) = (&self.process, u8::from(!identity.is_empty()));
        let _ = write!(
            text,
            "{mode} {count} {limit} {shared} {process} {pid} {} {} {owner}{host}{identity}",
            owner.len(),
            host.len(),
        );
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
        let key = |name: &&Name| {
            let line = hash_of(name.as_str());
            // It comes back with this, and its claim leaves the usual way.
            self.lent.forget(line);
            key_of(&self.config.space, line)
        };
        let keys: Vec<String> = names.iter().map(key).collect();
        let fill = |cmd: &mut Cmd| {
            self.add_keys(cmd, &keys);
            cmd.arg(places.len());
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
        let line = hash_of(place.name.as_str());
        // Whoever has a loan is alone in its line.
        let mut asks = false;
        match (self.lent.leave(line, place.id), self.lends()) {
            (Leaving::Back(loan), Some(live)) if loan.is_on(&live) => {
                if self.write_loan("leave", &loan, &live, "", u128::from(IDLE_MS)).await? {
                    self.lent.idle(line, loan);
                    return Ok(());
                }
            }
            (Leaving::Asking, _) => asks = true,
            (Leaving::Back(_) | Leaving::Usual, _) => {}
        }
        Box::pin(self.leave_line(line, place, asks)).await
    }

    /// With `asks`, it asks for the line if it leaves alone.
    async fn leave_line(&self, line: u128, place: &Place, asks: bool) -> Result<()> {
        // Another one's leave may have its join in hand.
        self.partners.turns.over(place.id).await;
        let Some(partner) = self.partners.take(line) else {
            return self.leave_alone(line, place, asks).await;
        };
        match self.pass(line, place, &partner).await? {
            Some(joined) => partner.joined(joined),
            // It goes alone, when this has left.
            None => return self.leave_alone(line, place, asks).await.map(|()| drop(partner)),
        }
        Ok(())
    }

    async fn leave_alone(&self, line: u128, place: &Place, asks: bool) -> Result<()> {
        let more = if asks {
            Some("l")
        } else {
            self.lent.forget(line);
            self.busy.has(line).then_some("m")
        };
        let (key, sent) = (key_of(&self.config.space, line), Instant::now());
        let fill = |cmd: &mut Cmd| {
            self.add_keys(cmd, [&key]);
            cmd.arg(hex(place.id)).arg(place.name.as_str());
            if let Some(more) = more {
                cmd.arg(more);
            }
        };
        let (answer, live) = self.run("leave", Script::Leave, &key, fill).await?;
        // As leave.lua says.
        match number(&answer) {
            Some(1) => self.partners.got_in(line),
            Some(begins) => self.lent.idle(line, Loan::new(&live, &key, begins, sent)),
            None => self.partners.got_out(line),
        }
        Ok(())
    }

    pub(in crate::drivers) async fn evict(&self, name: &Name, ticket: Ticket, at_once: bool) -> Result<bool> {
        let line = hash_of(name.as_str());
        self.lent.forget(line);
        let key = key_of(&self.config.space, line);
        let fill = |cmd: &mut Cmd| {
            self.add_keys(cmd, [&key]);
            cmd.arg(ticket.get()).arg(u8::from(at_once)).arg(name.as_str());
        };
        match self.run("evict", Script::Evict, &key, fill).await?.0 {
            Value::Int(found) => Ok(found == 1),
            _ => Err(nonsense("evict", &self.address)),
        }
    }

    pub(in crate::drivers) async fn view(&self, query: &Query) -> Result<Vec<LineView>> {
        // Whoever looks at a line takes it back.
        let keys = match query {
            Query::Name(name) => {
                let line = hash_of(name.as_str());
                self.lent.forget(line);
                vec![key_of(&self.config.space, line)]
            }
            Query::Prefix(_) => {
                self.lent.forget_all();
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
            self.add_keys(cmd, keys.iter().copied());
        };
        let Value::Array(answers) = self.run("view", Script::View, keys[0], fill).await?.0 else {
            return Err(nonsense("view", &self.address));
        };
        let there =
            answers.iter().filter(|answer| !matches!(answer, Value::Array(parts) if parts.is_empty()));
        there.map(|answer| line(answer).ok_or_else(|| nonsense("view", &self.address))).collect()
    }
}

/// Whether it is a claim as most are, which join_fast.lua knows.
fn is_common(claim: &Claim) -> bool {
    claim.identity.is_none() && !matches!(claim.mode, Mode::Permits { count, limit } if count > limit)
}

pub(super) fn hex(id: ClaimId) -> String {
    let mut text = String::with_capacity(32);
    push_hex(&mut text, id.as_u128());
    text
}

/// As `{:032x}` does, in a fraction of the time.
fn push_hex(text: &mut String, bits: u128) {
    text.extend(
        bits.to_be_bytes()
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])),
    );
}

/// The error for a claim whose identity stands in the line in another mode.
pub(in crate::drivers) fn would_wait_for_itself(name: &Name, address: &Arc<str>) -> Error {
    let message = "this owner already stands in the line in another mode and would wait for itself";
    Error::new(ErrorKind::Deadlock, "join", message)
        .hint("release what the owner has on this name first")
        .about(name)
        .at(address)
}
