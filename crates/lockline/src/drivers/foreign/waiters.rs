//! Who waits here. Other clients' formats have no line on the server, so a waiting claim stands in this process only.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::line::{Claim, ClaimId, ClaimView, Mode, Ticket, Who};
use crate::name::Name;
use crate::sync::locked;

/// The waiting claims of one client, in order for each name. Only the first one asks the server: a thousand waiters cost
/// as much as one, and within this client it is first come, first served.
#[derive(Debug, Default)]
pub(in crate::drivers) struct Waiters {
    lines: Mutex<HashMap<Name, VecDeque<Waiter>>>,
}

#[derive(Debug)]
struct Waiter {
    id: ClaimId,
    who: Who,
    /// What to write when it gets in.
    text: String,
    since: Instant,
    /// Like a place in a line it ends unless it is renewed: one that was given up without a word must not stay first.
    lapses: Instant,
    /// How often it asked in vain.
    tries: u32,
}

/// Where a waiting claim stands among those of this client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// First: it may ask, with this text; it has asked so often.
    First { text: String, tries: u32 },
    /// So many stand before it.
    Behind(u32),
    /// Nowhere.
    Gone,
}

impl Waiters {
    /// Adds a claim, or finds it, and tells how many of this client stand before it.
    pub(super) fn stand(&self, claim: &Claim, text: &str) -> u32 {
        let now = Instant::now();
        let mut lines = locked(&self.lines);
        let line = lines.entry(claim.name.clone()).or_default();
        drop_lapsed(line, now);
        let place = line.iter().position(|waiter| waiter.id == claim.id).unwrap_or_else(|| {
            line.push_back(Waiter {
                id: claim.id,
                who: (*claim.who).clone(),
                text: text.to_owned(),
                since: now,
                lapses: now,
                tries: 0,
            });
            line.len() - 1
        });
        line[place].lapses = now + claim.lease;
        ahead(place)
    }

    /// Renews a waiting claim, and counts the question it may now ask.
    pub(super) fn renew(&self, name: &Name, id: ClaimId, lease: Duration) -> Turn {
        let now = Instant::now();
        let mut lines = locked(&self.lines);
        let Some(line) = lines.get_mut(name) else { return Turn::Gone };
        drop_lapsed(line, now);
        let Some(place) = line.iter().position(|waiter| waiter.id == id) else { return Turn::Gone };
        let waiter = &mut line[place];
        waiter.lapses = now + lease;
        if place > 0 {
            return Turn::Behind(ahead(place));
        }
        waiter.tries += 1;
        Turn::First { text: waiter.text.clone(), tries: waiter.tries }
    }

    /// Takes a claim out, in or given up. `true` if nobody waits for that name any more.
    pub(super) fn remove(&self, name: &Name, id: ClaimId) -> bool {
        let mut lines = locked(&self.lines);
        let Some(line) = lines.get_mut(name) else { return true };
        line.retain(|waiter| waiter.id != id);
        let empty = line.is_empty();
        if empty {
            lines.remove(name);
        }
        empty
    }

    /// How many of this client stand before a claim; `None` if it does not stand here.
    pub(super) fn place(&self, name: &Name, id: ClaimId) -> Option<u32> {
        let mut lines = locked(&self.lines);
        let line = lines.get_mut(name)?;
        drop_lapsed(line, Instant::now());
        line.iter().position(|waiter| waiter.id == id).map(ahead)
    }

    /// Whether anybody waits for this name here.
    pub(super) fn any(&self, name: &Name) -> bool {
        locked(&self.lines).contains_key(name)
    }

    /// Who asks next for this name.
    pub(in crate::drivers) fn first(&self, name: &Name) -> Option<ClaimId> {
        locked(&self.lines).get(name)?.front().map(|waiter| waiter.id)
    }

    /// The names that somebody waits for here.
    pub(super) fn names(&self) -> Vec<Name> {
        locked(&self.lines).keys().cloned().collect()
    }

    /// Those who wait for this name here, for people.
    pub(super) fn view(&self, name: &Name) -> Vec<ClaimView> {
        let now = Instant::now();
        let mut lines = locked(&self.lines);
        let Some(line) = lines.get_mut(name) else { return Vec::new() };
        drop_lapsed(line, now);
        line.iter()
            .map(|waiter| ClaimView {
                ticket: Ticket::ZERO,
                mode: Mode::Exclusive,
                who: waiter.who.clone(),
                remaining: waiter.lapses.saturating_duration_since(now),
                since: now.saturating_duration_since(waiter.since),
                held: None,
                evicted: false,
            })
            .collect()
    }
}

fn drop_lapsed(line: &mut VecDeque<Waiter>, now: Instant) {
    line.retain(|waiter| waiter.lapses > now);
}

fn ahead(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::testing::claim;

    const LEASE: Duration = Duration::from_secs(10);

    #[test]
    fn first_come_first_asks() {
        let waiters = Waiters::default();
        let [one, two] = ["a", "a"].map(|name| claim(name, Mode::Exclusive, LEASE));
        let ask = |claim: &Claim| waiters.renew(&claim.name, claim.id, LEASE);
        assert_eq!((waiters.stand(&one, "1"), waiters.stand(&two, "2"), waiters.stand(&two, "2")), (0, 1, 1));
        assert_eq!(ask(&one), Turn::First { text: "1".to_owned(), tries: 1 });
        assert_eq!(ask(&two), Turn::Behind(1));
        assert_eq!(waiters.view(&one.name).len(), 2);
        assert!(!waiters.remove(&one.name, one.id));
        assert_eq!(ask(&one), Turn::Gone, "renewing makes no place");
        assert_eq!(
            (ask(&two), waiters.first(&two.name)),
            (Turn::First { text: "2".to_owned(), tries: 1 }, Some(two.id))
        );
        assert!(waiters.remove(&two.name, two.id));
        assert!(waiters.names().is_empty());
    }

    #[test]
    fn one_that_nobody_renews_holds_nobody_up() {
        let waiters = Waiters::default();
        let [gone, alive] = ["a", "a"].map(|name| claim(name, Mode::Exclusive, LEASE));
        let gone = Claim { lease: Duration::ZERO, ..gone };
        waiters.stand(&gone, "1");
        assert_eq!(waiters.stand(&alive, "2"), 0);
        assert_eq!(waiters.renew(&gone.name, gone.id, LEASE), Turn::Gone);
    }
}
