//! Who is in: the rule of a line, on what the store says.

use std::time::Duration;

use super::Inner;
use super::place::{Keys, Seen, is_place, ticket};
use super::proto::{KeyValue, RangeRequest, RangeResponse};
use crate::line::{Claim, Front, Mode, Standing, look_again};
use crate::sync::locked;
use crate::time::BootClock;

/// A waiter looks again after this at the latest, whoever lapses.
const LOOKS_ANYWAY: Duration = Duration::from_secs(1);

/// Where a place stands, and whose going would change that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    In,
    Waits {
        ahead: u32,
        on: Keys,
    },
    /// What was read is not enough.
    Unclear,
}

/// The read that tells whether a claim is in, for the ticket of its place.
///
/// Who wants to be alone needs only the place right before its own, and waits for that one only, as `concurrency` does.
/// Others need the modes of all that stand before them.
pub(super) fn question(line: &Keys, mode: Mode, ticket: i64) -> RangeRequest {
    match mode {
        Mode::Exclusive => RangeRequest { max_create_revision: ticket - 1, ..line.newest(1) },
        Mode::Shared | Mode::Permits { .. } => whole_line(line, ticket),
    }
}

/// The cheap question for a claim that waits: is what it waits for still there? The line is not read again before that
/// goes, or a thousand who wait would have a server read a thousand places for each of them, every second.
pub(super) fn cheap_question(line: &Keys, mode: Mode, ticket: i64, waits_for: Option<&Keys>) -> RangeRequest {
    match waits_for.filter(|keys| keys.end.is_empty()) {
        Some(one) => RangeRequest { keys_only: true, ..one.read() },
        None => question(line, mode, ticket),
    }
}

/// What the answer to the cheap question says.
pub(super) fn judge_cheaply(
    line: &Keys,
    mode: Mode,
    ticket: i64,
    waits_for: Option<&Keys>,
    answer: RangeResponse,
) -> Found {
    match waits_for.filter(|keys| keys.end.is_empty()) {
        Some(one) if answer.kvs.iter().any(|kv| kv.create_revision < ticket) => {
            Found::Waits { ahead: u32::MAX, on: one.clone() }
        }
        Some(_) => Found::Unclear,
        None => judge(line, mode, ticket, answer, false),
    }
}

/// The same for a claim whose place is made in the same step, and so is the newest.
pub(super) fn first_question(line: &Keys, mode: Mode) -> RangeRequest {
    match mode {
        Mode::Exclusive => line.newest(2),
        Mode::Shared | Mode::Permits { .. } => line.in_order(),
    }
}

/// All that stand up to a ticket, in order.
pub(super) fn whole_line(line: &Keys, ticket: i64) -> RangeRequest {
    RangeRequest { max_create_revision: ticket, ..line.in_order() }
}

/// What the answer to one of these says about the place with this ticket.
pub(super) fn judge(line: &Keys, mode: Mode, ticket: i64, answer: RangeResponse, whole: bool) -> Found {
    let before = |kv: &KeyValue| kv.create_revision < ticket;
    if mode != Mode::Exclusive || whole {
        let places = Seen::all(line, answer.kvs.into_iter().filter(|kv| before(kv)).collect());
        return stands_behind(line, mode, &places);
    }
    let others = u32::try_from(answer.count - 1).unwrap_or_default().max(1);
    match answer.kvs.into_iter().find(before) {
        None => Found::In,
        Some(kv) if is_place(line, &kv) => Found::Waits { ahead: others, on: Keys::one(kv.key) },
        // A lock whose name begins with ours and a slash, or a stranger's key: somebody may stand before it.
        Some(_) => Found::Unclear,
    }
}

/// Where a claim stands behind these places, which are in line order.
pub(super) fn stands_behind(line: &Keys, mode: Mode, places: &[Seen]) -> Found {
    let mut front = Front::default();
    let all_in = places.iter().map(Seen::mode).all(|standing| front.admit(standing));
    if all_in && front.admit(mode) {
        return Found::In;
    }
    // Of its own kind nobody is in its way, except that permits run out: then any that go may make room.
    let blocks = |standing: Mode| match mode {
        Mode::Exclusive => true,
        Mode::Shared => standing != Mode::Shared,
        Mode::Permits { .. } => !matches!(standing, Mode::Permits { .. }),
    };
    let on = places.iter().rev().find(|place| blocks(place.mode()));
    let on = on.map_or_else(|| line.clone(), |place| Keys::one(place.kv.key.clone()));
    Found::Waits { ahead: u32::try_from(places.len()).unwrap_or(u32::MAX), on }
}

impl Inner {
    /// Notes where a claim stands, and says so. Once in, in until gone.
    pub(super) fn stands(&self, claim: &Claim, revision: i64, found: Found) -> Standing {
        let mut books = locked(&self.books);
        books.has_ticket(claim.id, Some(revision));
        let Some(record) = books.get(claim.id) else { return Standing::Lapsed };
        let (ahead, on) = match found {
            Found::Waits { ahead, on } if !record.is_in => (ahead, on),
            _ => {
                record.is_in = true;
                let free = books.wait_for(claim.id, None);
                self.no_longer_waited_for(free);
                return Standing::In { ticket: ticket(revision) };
            }
        };
        // The cheap question does not tell; it only shrinks.
        record.ahead = if record.ahead == 0 { ahead } else { ahead.min(record.ahead) };
        let ahead = record.ahead;
        let now = BootClock.now();
        let next_lapse = books.next_lapse(&claim.name, revision, now + LOOKS_ANYWAY);
        let next_lapse = next_lapse.map(|lapse| lapse.since(now));
        let free = books.wait_for(claim.id, Some(on.clone()));
        self.no_longer_waited_for(free);
        // The end of what this process made itself it notices by itself, without a word from the server.
        if !books.is_ours(&on.key) {
            self.bells.watch(&on);
        }
        Standing::Waiting {
            ticket: ticket(revision),
            ahead,
            look_again: look_again(claim.lease, next_lapse, None),
        }
    }

    fn no_longer_waited_for(&self, keys: Option<Keys>) {
        if let Some(keys) = keys {
            self.bells.unwatch(&keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::etcd::place::{Card, Layout};
    use crate::line::{ClaimId, Who};
    use crate::name::Name;
    use std::sync::Arc;

    fn place(line: &Keys, nth: u8, mode: Mode) -> Seen {
        let claim = Claim {
            name: Name::new("n").unwrap(),
            id: ClaimId::random(),
            mode,
            lease: Duration::from_secs(1),
            who: Arc::new(Who { owner: "o".into(), host: "h".into(), pid: 1 }),
            identity: None,
            primitive: crate::line::Primitive::Mutex,
        };
        let key = [line.key.as_slice(), &[b'0' + nth]].concat();
        let value = Card::of(&claim, "p").encode();
        Seen::new(KeyValue { key, create_revision: i64::from(nth), lease: 1, value, ..KeyValue::default() })
    }

    #[test]
    fn each_waits_for_what_is_in_its_way() {
        let line = Layout { space: String::new() }.line(&Name::new("n").unwrap());
        let permits = |count| Mode::Permits { count, limit: 3 };
        let found = |modes: &[Mode], mode| {
            let places: Vec<_> = (1..).zip(modes).map(|(nth, mode)| place(&line, nth, *mode)).collect();
            match stands_behind(&line, mode, &places) {
                Found::In => 0,
                Found::Waits { on, .. } if on == line => 99,
                Found::Waits { on, .. } => on.key[on.key.len() - 1] - b'0',
                Found::Unclear => panic!("it is clear"),
            }
        };
        let (x, s) = (Mode::Exclusive, Mode::Shared);
        assert_eq!(found(&[], x), 0);
        assert_eq!(found(&[s, s], x), 2, "for the one right before it");
        assert_eq!(found(&[s, s], s), 0);
        assert_eq!(found(&[s, x, s], s), 2, "for the writer");
        assert_eq!(found(&[permits(2)], permits(1)), 0);
        assert_eq!(found(&[permits(2), permits(1)], permits(1)), 99, "for any");
        assert_eq!(found(&[s, permits(1)], permits(1)), 1, "for the other kind");
    }
}
