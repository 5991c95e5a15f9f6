//! How a claim is written into a row, and who it is that stands there.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::{Kind, Row};
use crate::drivers::foreign::{Format, Holder, another, signature, signed};
use crate::line::{Claim, ClaimId};

/// What stands before the owner of a row that was evicted, and for it where there is no room.
const EVICTED: &str = "evicted ";

/// A format whose locks are rows.
pub(in crate::drivers) trait SharedFormat: Format {
    /// Who holds the lock of this row. One of ours is named by its mark.
    fn holder(&self, row: &Row) -> Holder;
    /// How long a mark is.
    fn mark_len(&self) -> usize;
}

impl Kind {
    /// The format of its rows.
    pub(in crate::drivers) fn format(self) -> &'static dyn SharedFormat {
        match self {
            Kind::Table => &Table,
            Kind::Shedlock => &Shedlock,
        }
    }
}

/// The owner is our mark, which fits 20 letters; the hold ids are ours alone to read, and say who it is.
#[derive(Clone, Copy, Debug)]
struct Table;

/// Letters that are the same in upper and lower case to a server, and so stand only once.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// What marks of ours begin with.
const OURS: &str = "ll";
const MARK: usize = 20;

impl Format for Table {
    /// 90 bits of the id's hash: nobody finds two ids for one mark by chance.
    fn mark(&self, id: ClaimId) -> String {
        let hash = Sha256::digest(id.as_u128().to_be_bytes());
        let bits = u128::from_be_bytes(hash[..16].try_into().unwrap_or_default());
        let letter = |n: usize| char::from(LETTERS[(bits >> (5 * n) & 31) as usize]);
        OURS.chars().chain((0..MARK - OURS.len()).map(letter)).collect()
    }

    fn text(&self, claim: &Claim) -> String {
        signature(claim)
    }
}

impl SharedFormat for Table {
    fn holder(&self, row: &Row) -> Holder {
        let evicted = row.last.strip_prefix(EVICTED).filter(|_| row.owner == EVICTED.trim_end());
        let (owner, text) = match evicted {
            Some(rest) => rest.split_once(' ').unwrap_or((rest, "")),
            None => (row.owner.as_str(), row.last.as_str()),
        };
        let is_ours = owner.len() == MARK
            && owner.strip_prefix(OURS).is_some_and(|rest| rest.bytes().all(|byte| LETTERS.contains(&byte)));
        let mut named_by = owner.to_owned();
        let who = if is_ours {
            signed(text).map_or_else(|| another("lockline"), |(_, who)| who)
        } else {
            // One owner of theirs holds it again and again, with other hold ids.
            let _ = write!(named_by, "\n{text}");
            another(owner)
        };
        Holder { named_by, who, evicted: evicted.is_some() }
    }

    fn mark_len(&self) -> usize {
        MARK
    }
}

/// `locked_by` has room for everything: our id, and who it is.
#[derive(Clone, Copy, Debug)]
struct Shedlock;

impl Format for Shedlock {
    fn mark(&self, id: ClaimId) -> String {
        format!("{:032x} ", id.as_u128())
    }

    fn text(&self, claim: &Claim) -> String {
        signature(claim)
    }
}

impl SharedFormat for Shedlock {
    fn holder(&self, row: &Row) -> Holder {
        let (text, evicted) =
            row.owner.strip_prefix(EVICTED).map_or((row.owner.as_str(), false), |rest| (rest, true));
        match signed(text) {
            Some((mark, who)) => Holder { named_by: mark.to_owned(), who, evicted },
            // Theirs is the name of a host, as a rule: only since when it is held tells one hold from the next.
            None => Holder { named_by: format!("{text}\n{}", row.last), who: another(text), evicted },
        }
    }

    fn mark_len(&self) -> usize {
        33
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::drivers::testing::claim;
    use crate::line::Mode;

    fn row(owner: &str, last: &str) -> Row {
        let (rest, since) = (Duration::from_secs(1), Duration::ZERO);
        Row { nth: 0, is_free: false, rest, since, owner: owner.to_owned(), last: last.to_owned() }
    }

    #[test]
    fn our_rows_are_known_by_their_marks() {
        let claim = claim("a", Mode::Exclusive, Duration::from_secs(1));
        let (mark, text) = (Table.mark(claim.id), Table.text(&claim));
        assert_eq!((mark.len(), mark.as_str()), (Table.mark_len(), Table.mark(claim.id).as_str()));
        assert_ne!(mark, Table.mark(ClaimId::from_u128(7)));
        let held = Table.holder(&row(&mark, &text));
        assert_eq!((held.named_by.as_str(), &held.who, held.evicted), (mark.as_str(), &*claim.who, false));
        let evicted = Table.holder(&row("evicted", &format!("evicted {mark} {text}")));
        assert_eq!((evicted.named_by, &evicted.who, evicted.evicted), (mark, &*claim.who, true));

        let (mark, text) = (Shedlock.mark(claim.id), Shedlock.text(&claim));
        assert_eq!((mark.len(), text.starts_with(&mark)), (Shedlock.mark_len(), true));
        for (owner, expected) in [(text.clone(), false), (format!("evicted {text}"), true)] {
            let holder = Shedlock.holder(&row(&owner, "2026-01-01"));
            assert_eq!((&holder.named_by, holder.who.pid), (&mark, std::process::id()));
            assert_eq!(holder.evicted, expected);
        }
    }

    #[test]
    fn others_are_named_by_what_they_wrote() {
        let (one, two) = (Table.holder(&row("host-1", "7")), Table.holder(&row("host-1", "8")));
        assert_eq!((one.who.owner.as_str(), one.who.pid, one.evicted), ("host-1", 0, false));
        assert_ne!(one.named_by, two.named_by);
        let (one, two) = (Shedlock.holder(&row("host-1", "12:00")), Shedlock.holder(&row("host-1", "13:00")));
        assert_eq!(one.who.owner, "host-1");
        assert_ne!(one.named_by, two.named_by);
    }
}
