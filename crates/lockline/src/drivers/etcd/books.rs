//! What this process knows of its own claims: on which lease each stands, what it waits for, and when it lapses.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use super::lease::{Idle, Lease};
use super::place::Keys;
use crate::line::{Claim, ClaimId};
use crate::name::Name;
use crate::time::Time;

/// A claim that this process has, or may have, in the store.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) claim: Claim,
    /// The lease its own key hangs on.
    pub(super) lease: Option<Lease>,
    /// Its own key: the place, or the hold on a shared one.
    pub(super) key: Vec<u8>,
    /// The shared place it is on.
    pub(super) shared: Option<SharedPlace>,
    /// The create revision of its place, once an answer named it.
    pub(super) ticket: Option<i64>,
    pub(super) is_in: bool,
    /// How many stood before it when it was last looked at.
    pub(super) ahead: u32,
    /// A request that may make its key was sent, and not answered.
    pub(super) unsure: bool,
    /// The lease of its own that a fixed hold ends with, and when. Once it is set nothing moves it.
    pub(super) fixed: Option<(Lease, Time)>,
    /// Its key is known to hang on that lease.
    pub(super) hung: bool,
    /// When it lapses, unless it is extended: never before its client stops believing in it.
    pub(super) deadline: Option<Time>,
    /// It has lapsed, and is being taken away.
    pub(super) lapsed: bool,
    /// Whose going it waits for.
    pub(super) waits_for: Option<Keys>,
}

/// The place of an identity, and the lease it hangs on, which all its holds keep alive.
#[derive(Clone, Debug)]
pub(super) struct SharedPlace {
    pub(super) key: Vec<u8>,
    pub(super) lease: i64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Books {
    records: HashMap<ClaimId, Record>,
    lines: HashMap<Name, HashSet<ClaimId>>,
    keys: HashMap<Vec<u8>, ClaimId>,
    /// The places of this process in each line, in line order; without those that several processes share.
    places: HashMap<Name, BTreeMap<i64, ClaimId>>,
    waiting: HashMap<Keys, HashSet<ClaimId>>,
    deadlines: BTreeSet<(Time, ClaimId)>,
    pub(super) idle: Idle,
    /// Until when the task sleeps that takes lapsed places away.
    pub(super) reaper_sleeps_until: Option<Time>,
}

impl Books {
    /// The record of a claim; a new one if there is none.
    pub(super) fn enter(&mut self, claim: &Claim) -> &mut Record {
        self.lines.entry(claim.name.clone()).or_default().insert(claim.id);
        self.records.entry(claim.id).or_insert_with(|| Record {
            claim: claim.clone(),
            lease: None,
            key: Vec::new(),
            shared: None,
            ticket: None,
            is_in: false,
            ahead: 0,
            unsure: false,
            fixed: None,
            hung: false,
            deadline: None,
            lapsed: false,
            waits_for: None,
        })
    }

    pub(super) fn get(&mut self, id: ClaimId) -> Option<&mut Record> {
        self.records.get_mut(&id)
    }

    /// A claim stands, or is going to, on a key of its own and this lease.
    pub(super) fn stands_on(&mut self, id: ClaimId, key: Vec<u8>, lease: Lease) {
        let Some(record) = self.records.get_mut(&id) else { return };
        self.keys.remove(&record.key);
        record.key.clone_from(&key);
        record.lease = Some(lease);
        self.keys.insert(key, id);
    }

    /// A claim has a place with this ticket, or none any more.
    pub(super) fn has_ticket(&mut self, id: ClaimId, ticket: Option<i64>) {
        let Some(record) = self.records.get_mut(&id) else { return };
        let before = std::mem::replace(&mut record.ticket, ticket);
        let (name, shared) = (record.claim.name.clone(), record.shared.is_some());
        if before != ticket {
            self.forget_ticket(&name, before, id);
            if let Some(ticket) = ticket.filter(|_| !shared) {
                self.places.entry(name).or_default().insert(ticket, id);
            }
        }
    }

    fn forget_ticket(&mut self, name: &Name, ticket: Option<i64>, id: ClaimId) {
        let Some((ticket, line)) = ticket.zip(self.places.get_mut(name)) else { return };
        if line.get(&ticket) == Some(&id) {
            line.remove(&ticket);
        }
        if line.is_empty() {
            self.places.remove(name);
        }
    }

    /// Forgets a claim; gives its record.
    pub(super) fn remove(&mut self, id: ClaimId) -> Option<Record> {
        self.wait_for(id, None);
        let record = self.records.remove(&id)?;
        if self.keys.get(&record.key) == Some(&id) {
            self.keys.remove(&record.key);
        }
        if let Some(deadline) = record.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        self.forget_ticket(&record.claim.name, record.ticket, id);
        if let Some(line) = self.lines.get_mut(&record.claim.name) {
            line.remove(&id);
            if line.is_empty() {
                self.lines.remove(&record.claim.name);
            }
        }
        Some(record)
    }

    /// Sets when a claim lapses. `true`: that is sooner than the reaper will look.
    pub(super) fn lapses_at(&mut self, id: ClaimId, deadline: Time) -> bool {
        let Some(record) = self.records.get_mut(&id) else { return false };
        if let Some(before) = record.deadline.replace(deadline) {
            self.deadlines.remove(&(before, id));
        }
        self.deadlines.insert((deadline, id));
        self.reaper_sleeps_until.is_none_or(|until| deadline < until)
    }

    /// Extends a claim by a request sent at `sent`, unless its end is fixed; `kept` tells when the server's lease was begun
    /// anew. `true`: it lapses sooner than the reaper will look.
    pub(super) fn extended(&mut self, id: ClaimId, sent: Time, lease: Duration, kept: Option<Time>) -> bool {
        let Some(record) = self.records.get_mut(&id) else { return false };
        if let (Some(own), Some(kept)) = (record.lease.as_mut(), kept) {
            own.extended = own.extended.max(kept);
        }
        if record.fixed.is_some() || record.lapsed {
            return false;
        }
        let deadline = (sent + lease).max(record.deadline.unwrap_or(Time::ZERO));
        self.lapses_at(id, deadline)
    }

    /// Has a claim wait for the going of some keys, or for nothing any more. Gives the keys that nobody waits for now.
    pub(super) fn wait_for(&mut self, id: ClaimId, keys: Option<Keys>) -> Option<Keys> {
        let record = self.records.get_mut(&id)?;
        if record.waits_for == keys {
            return None;
        }
        let before = std::mem::replace(&mut record.waits_for, keys.clone());
        if let Some(keys) = keys {
            self.waiting.entry(keys).or_default().insert(id);
        }
        let before = before?;
        let others = self.waiting.get_mut(&before)?;
        others.remove(&id);
        if others.is_empty() {
            self.waiting.remove(&before);
            return Some(before);
        }
        None
    }

    /// Who waits for these keys.
    pub(super) fn waiting_for(&self, keys: &Keys) -> Vec<ClaimId> {
        self.waiting.get(keys).into_iter().flatten().copied().collect()
    }

    /// All that anybody waits for.
    pub(super) fn all_waited_for(&self) -> Vec<Keys> {
        self.waiting.keys().cloned().collect()
    }

    /// Whether a key is one that this process has made, and will notice the end of.
    pub(super) fn is_ours(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    /// Claims of a line that have lapsed and are still there.
    pub(super) fn lapsed(&self, name: &Name, now: Time) -> Vec<ClaimId> {
        let due = self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now).map(|(_, id)| *id);
        due.filter(|id| self.records.get(id).is_some_and(|record| record.claim.name == *name)).collect()
    }

    /// When the next claim of a line before this ticket lapses, if this process knows of one that does so by `until`.
    pub(super) fn next_lapse(&self, name: &Name, ticket: i64, until: Time) -> Option<Time> {
        let soon = self.deadlines.iter().take_while(|(deadline, _)| *deadline <= until);
        let before = |id: &ClaimId| {
            self.records.get(id).is_some_and(|record| {
                record.claim.name == *name && record.ticket.is_some_and(|other| other < ticket)
            })
        };
        soon.filter(|(_, id)| before(id)).map(|(deadline, _)| *deadline).next()
    }

    /// The key of the last place of this process in a line before a ticket, except that of one claim.
    pub(super) fn last_before(&self, name: &Name, ticket: i64, except: ClaimId) -> Option<Vec<u8>> {
        let before = self.places.get(name)?.range(..ticket).rev().map(|(_, id)| id);
        let record = before
            .filter(|id| **id != except)
            .find_map(|id| self.records.get(id).filter(|record| !record.lapsed));
        record.map(|record| record.key.clone())
    }

    /// Claims that stand on a place.
    pub(super) fn on_place(&self, name: &Name, ticket: i64) -> Vec<ClaimId> {
        let line = self.lines.get(name).into_iter().flatten();
        line.filter(|id| self.records.get(id).is_some_and(|record| record.ticket == Some(ticket)))
            .copied()
            .collect()
    }

    /// When the claim lapses whose own key this is; one whose join is being answered has all of its lease.
    pub(super) fn deadline_of(&self, key: &[u8], now: Time) -> Option<Time> {
        let record = self.records.get(self.keys.get(key)?)?;
        Some(record.deadline.unwrap_or(now + record.claim.lease))
    }

    /// What has lapsed by now, and when to look again.
    pub(super) fn due(&mut self, now: Time) -> (Vec<ClaimId>, Option<Time>) {
        let mut due = Vec::new();
        for &(deadline, id) in &self.deadlines {
            if deadline > now {
                self.reaper_sleeps_until = Some(deadline);
                return (due, Some(deadline));
            }
            due.push(id);
        }
        self.reaper_sleeps_until = None;
        (due, None)
    }
}
