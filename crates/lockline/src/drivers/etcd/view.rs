//! Lines as people see them, and showing a claim out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tonic::Status;

use super::Inner;
use super::error::is_full;
use super::place::{Keys, Seen, message, revision};
use super::proto::{Compare, DeleteRangeRequest, PutRequest, RequestOp};
use super::verbs::TRIES;
use crate::driver::Query;
use crate::error::{Error, ErrorKind, Result};
use crate::line::{ClaimView, Front, LineView, Ticket};
use crate::name::Name;
use crate::sync::locked;
use crate::time::BootClock;

/// How many leases are asked about at once.
const AT_ONCE: usize = 64;

/// Holds by the key of the place they are on.
type Holds = HashMap<Vec<u8>, Vec<Seen>>;

impl Inner {
    pub(super) async fn view(self: &Arc<Self>, query: &Query) -> Result<Vec<LineView>> {
        if let Query::Name(name) = query {
            self.drop_lapsed(name).await;
        }
        let (lines, holds) = match query {
            Query::Name(name) => {
                let line = self.layout.line(name);
                let (kvs, holds) = self.read(&line, "view").await?;
                (HashMap::from([(name.clone(), Seen::all(&line, kvs))]), holds)
            }
            Query::Prefix(prefix) => {
                let keys = Keys::beginning(format!("{}{prefix}", self.layout.space).into_bytes());
                let (kvs, holds) = self.read(&keys, "view").await?;
                let mut lines: HashMap<Name, Vec<Seen>> = HashMap::new();
                for kv in kvs {
                    if let Some(name) = self.layout.name_of(&kv).filter(|name| query.matches(name.as_str())) {
                        lines.entry(name).or_default().push(Seen::new(kv));
                    }
                }
                (lines, holds)
            }
        };
        let remaining = self.remaining(lines.values().flatten().chain(holds.values().flatten())).await?;
        let mut views: Vec<LineView> = lines
            .into_iter()
            .map(|(name, places)| view_of(name, &places, &holds, &remaining))
            .filter(|line| !line.holders.is_empty() || !line.waiters.is_empty())
            .collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(views)
    }

    /// Places in line order, and the holds on the shared ones, at one moment.
    async fn read(
        &self,
        keys: &Keys,
        operation: &'static str,
    ) -> Result<(Vec<super::proto::KeyValue>, Holds)> {
        let holds = self.layout.holds_beginning(if keys.key == [0] { &[] } else { &keys.key });
        let reads = vec![keys.in_order().into(), holds.in_order().into()];
        let answer = self.read_all(reads).await;
        let mut answer = answer.map_err(|status| self.fail(operation, &status, false))?;
        let places = answer.range(0).kvs;
        let mut holds = Holds::new();
        for kv in answer.range(1).kvs {
            if let Some(place) = self.layout.place_of_hold(&kv.key) {
                holds.entry(place.to_vec()).or_default().push(Seen::new(kv));
            }
        }
        Ok((places, holds))
    }

    /// What each key has left. This process knows its own to the microsecond; servers tell of others in whole seconds.
    async fn remaining<'a>(
        self: &Arc<Self>,
        places: impl Iterator<Item = &'a Seen>,
    ) -> Result<HashMap<Vec<u8>, Duration>> {
        let now = BootClock.now();
        let mut remaining = HashMap::new();
        let mut unknown = Vec::new();
        {
            let books = locked(&self.books);
            for place in places {
                match books.deadline_of(&place.kv.key, now) {
                    Some(deadline) => drop(remaining.insert(place.kv.key.clone(), deadline.since(now))),
                    None => unknown.push((
                        place.kv.key.clone(),
                        place.kv.lease,
                        place.card.as_ref().map(|card| card.lease),
                    )),
                }
            }
        }
        for some in unknown.chunks(AT_ONCE) {
            let mut asked: JoinSet<(Vec<u8>, std::result::Result<Duration, Status>)> = JoinSet::new();
            for (key, lease, most) in some.iter().cloned() {
                let inner = self.clone();
                asked.spawn(async move {
                    let left = inner.time_to_live(lease).await;
                    (key, left.map(|(left, _)| left.min(most.unwrap_or(left))))
                });
            }
            while let Some(answer) = asked.join_next().await {
                let Ok((key, left)) = answer else { continue };
                let left = left.map_err(|status| self.fail("view", &status, false))?;
                remaining.insert(key, left);
            }
        }
        Ok(remaining)
    }

    pub(super) async fn evict(self: &Arc<Self>, name: &Name, ticket: Ticket, at_once: bool) -> Result<bool> {
        self.drop_lapsed(name).await;
        let line = self.layout.line(name);
        for _ in 0..TRIES {
            let (kvs, mut holds) = self.read(&line, "evict").await?;
            let places = Seen::all(&line, kvs);
            let Some(at) = places.iter().position(|place| place.kv.create_revision == revision(ticket))
            else {
                return Ok(false);
            };
            let mut front = Front::default();
            let is_in = places[..=at].iter().map(Seen::mode).all(|mode| front.admit(mode));
            let place = &places[at];
            let close = is_in && !at_once;
            if close && place.card.is_none() {
                return Err(self.cannot_close(name));
            }
            let holds = holds.remove(&place.kv.key).unwrap_or_default();
            let mut done = self.show_out(name, place, &holds, close, true).await;
            if !close && done.as_ref().is_err_and(is_full) {
                // A full server takes no messages, but lets go: the holder learns it from its next renewal.
                done = self.show_out(name, place, &holds, close, false).await;
            }
            if self.unsure("evict", done)? {
                self.went(name, &place.kv.key);
                return Ok(true);
            }
        }
        Err(self.too_busy("evict", name))
    }

    fn cannot_close(&self, name: &Name) -> Error {
        let message = "another client's program holds it, which cannot be told to stop";
        Error::new(ErrorKind::Unsupported, "evict", message)
            .hint("end that program; or take its place away at once (--now), and rely on the tokens")
            .about(name)
            .at(&self.wire.address)
    }

    /// Marks a place as evicted, or takes it away, and tells the processes that stand on it: one step. `false`: it changed
    /// meanwhile.
    async fn show_out(
        &self,
        name: &Name,
        place: &Seen,
        holds: &[Seen],
        close: bool,
        tell: bool,
    ) -> std::result::Result<bool, Status> {
        let Seen { kv, card } = place;
        let mut ops: Vec<RequestOp> = Vec::new();
        match card.clone().filter(|_| close) {
            Some(card) => {
                let value = super::place::Card { closed: true, ..card }.encode();
                let put =
                    PutRequest { key: kv.key.clone(), value, ignore_lease: true, ..PutRequest::default() };
                ops.push(put.into());
            }
            None => {
                let under = self.layout.holds(&kv.key);
                ops.push(DeleteRangeRequest { key: kv.key.clone(), range_end: Vec::new() }.into());
                ops.push(DeleteRangeRequest { key: under.key, range_end: under.end }.into());
            }
        }
        let mut processes: Vec<&str> = Vec::new();
        for card in holds.iter().chain([place]).filter_map(|seen| seen.card.as_ref()) {
            if !processes.contains(&card.process.as_str()) {
                processes.push(&card.process);
            }
        }
        for process in processes.into_iter().filter(|_| tell) {
            // On a lease of theirs, so that the message goes when they do.
            let put = PutRequest {
                key: self.layout.mailbox(process),
                value: message(kv.create_revision, name),
                lease: kv.lease,
                ..PutRequest::default()
            };
            ops.push(put.into());
        }
        Ok(self.txn(vec![Compare::written_at(&kv.key, kv.mod_revision)], ops, Vec::new()).await?.succeeded)
    }
}

fn view_of(name: Name, places: &[Seen], holds: &Holds, remaining: &HashMap<Vec<u8>, Duration>) -> LineView {
    let mut line = LineView::free(name);
    let mut front = Front::default();
    for place in places {
        let list = if front.admit(place.mode()) { &mut line.holders } else { &mut line.waiters };
        let closed = place.card.as_ref().is_some_and(|card| card.closed);
        let shared = place.card.as_ref().is_some_and(|card| card.shared);
        let own = std::slice::from_ref(place);
        let claims = if shared { holds.get(&place.kv.key).map_or(&[][..], Vec::as_slice) } else { own };
        list.extend(claims.iter().map(|claim| ClaimView {
            ticket: place.ticket(),
            mode: place.mode(),
            who: claim.who(),
            remaining: remaining.get(&claim.kv.key).copied().unwrap_or_default(),
            since: claim.card.as_ref().map_or(Duration::ZERO, super::place::Card::since),
            held: None,
            evicted: closed,
        }));
    }
    line
}
