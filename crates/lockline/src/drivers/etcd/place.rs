//! How a line looks in the store: keys in the layout of etcd's `concurrency` package, and what our values say.
//!
//! A place is `SPACE NAME/HEX`, where HEX is the id of a lease, and hangs on a lease; its create revision is its ticket.
//! Whatever lies under the same prefix and is not that belongs to somebody else: `a/b/77` is a place of `a/b`, not of `a`.
//! What only Lockline needs lies under `SPACE NUL`, where no lock's key can lie, because names have no NUL.

use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sha2::{Digest, Sha256};

use super::proto::{KeyValue, RangeRequest, order};
use crate::line::{Claim, ClaimId, Mode, Ticket, Who};
use crate::name::Name;
use crate::time::wall_micros;

/// What our values have after the owner's label.
const MARK: &str = "\nlockline/1 ";

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Keys {
    pub(super) key: Vec<u8>,
    /// Empty: only that key.
    pub(super) end: Vec<u8>,
}

impl Keys {
    pub(super) fn one(key: Vec<u8>) -> Keys {
        Keys { key, end: Vec::new() }
    }

    /// All keys that begin like this.
    pub(super) fn beginning(prefix: Vec<u8>) -> Keys {
        let mut end = prefix.clone();
        while end.last() == Some(&0xff) {
            end.pop();
        }
        match end.last_mut() {
            Some(last) => *last += 1,
            // Everything that there is.
            None => return Keys { key: if prefix.is_empty() { vec![0] } else { prefix }, end: vec![0] },
        }
        Keys { key: prefix, end }
    }

    pub(super) fn read(&self) -> RangeRequest {
        RangeRequest { key: self.key.clone(), range_end: self.end.clone(), ..RangeRequest::default() }
    }

    /// In line order.
    pub(super) fn in_order(&self) -> RangeRequest {
        RangeRequest { sort_order: order::ASCENDING, sort_target: order::BY_CREATION, ..self.read() }
    }

    /// The newest few, without their values.
    pub(super) fn newest(&self, limit: i64) -> RangeRequest {
        RangeRequest {
            sort_order: order::DESCENDING,
            sort_target: order::BY_CREATION,
            keys_only: true,
            limit,
            ..self.read()
        }
    }
}

/// Where the keys of one name space lie.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) space: String,
}

impl Layout {
    pub(super) fn line(&self, name: &Name) -> Keys {
        Keys::beginning(format!("{}{name}/", self.space).into_bytes())
    }

    pub(super) fn key(&self, name: &Name, lease: i64) -> Vec<u8> {
        format!("{}{name}/{lease:x}", self.space).into_bytes()
    }

    /// The place that all processes of an identity stand on. While one that was evicted still stands there, `after` is its
    /// ticket, and they meet at another one.
    pub(super) fn shared_key(&self, name: &Name, identity: &str, after: i64) -> Vec<u8> {
        let mut hash = Sha256::new();
        hash.update(after.to_be_bytes());
        hash.update(identity.as_bytes());
        let hash = hash.finalize();
        let bits = i64::from_be_bytes(hash[..8].try_into().unwrap_or_default()) & i64::MAX;
        self.key(name, bits)
    }

    /// The holds on a shared place.
    pub(super) fn holds(&self, place: &[u8]) -> Keys {
        let mut prefix = format!("{}\0hold\0", self.space).into_bytes();
        prefix.extend_from_slice(place);
        prefix.push(0);
        Keys::beginning(prefix)
    }

    /// The holds on all shared places whose keys begin like this.
    pub(super) fn holds_beginning(&self, prefix: &[u8]) -> Keys {
        let mut keys = format!("{}\0hold\0", self.space).into_bytes();
        keys.extend_from_slice(prefix);
        Keys::beginning(keys)
    }

    pub(super) fn hold(&self, place: &[u8], lease: i64) -> Vec<u8> {
        let mut key = self.holds(place).key;
        key.extend_from_slice(format!("{lease:x}").as_bytes());
        key
    }

    /// The place that a hold is on.
    pub(super) fn place_of_hold<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        let rest = key.strip_prefix(format!("{}\0hold\0", self.space).as_bytes())?;
        Some(&rest[..rest.iter().position(|byte| *byte == 0)?])
    }

    /// Where a process hears that claims of its own were evicted.
    pub(super) fn mailbox(&self, process: &str) -> Vec<u8> {
        format!("{}\0bell\0{process}", self.space).into_bytes()
    }

    /// The lock that a key is a place of.
    pub(super) fn name_of(&self, kv: &KeyValue) -> Option<Name> {
        let text = std::str::from_utf8(&kv.key).ok()?.strip_prefix(&self.space)?;
        let (name, suffix) = text.rsplit_once('/')?;
        let ours = is_suffix(suffix.as_bytes()) && kv.lease != 0;
        // In the whole store only what is surely a place: a key with a lease and a number may be anything.
        let surely = kv.value.windows(MARK.len()).any(|part| part == MARK.as_bytes())
            || suffix == format!("{:x}", kv.lease);
        if ours && surely { Name::new(name).ok() } else { None }
    }
}

fn is_suffix(suffix: &[u8]) -> bool {
    (1..=16).contains(&suffix.len()) && suffix.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a key under the prefix of a line is a place of that line.
pub(super) fn is_place(line: &Keys, kv: &KeyValue) -> bool {
    kv.lease != 0 && kv.key.strip_prefix(line.key.as_slice()).is_some_and(is_suffix)
}

/// What a value says about a place or a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) mode: Mode,
    /// Evicted while it was in.
    pub(super) closed: bool,
    /// Processes of one identity stand here; the holds lie elsewhere.
    pub(super) shared: bool,
    pub(super) lease: Duration,
    /// Microseconds of its client's wall clock when it joined: for people.
    pub(super) joined_us: u64,
    pub(super) process: String,
    pub(super) who: Who,
}

impl Card {
    pub(super) fn of(claim: &Claim, process: &str) -> Card {
        Card {
            mode: claim.mode,
            closed: false,
            shared: claim.identity.is_some(),
            lease: claim.lease,
            joined_us: wall_micros(),
            process: process.to_owned(),
            who: (*claim.who).clone(),
        }
    }

    /// The label comes first, as the proposal in an election of Go's `concurrency` package.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (mode, count, limit) = match self.mode {
            Mode::Exclusive => ('x', 0, 0),
            Mode::Shared => ('s', 0, 0),
            Mode::Permits { count, limit } => ('p', count, limit),
        };
        let flags = u8::from(self.closed) + 2 * u8::from(self.shared);
        let host = utf8_percent_encode(&self.who.host, NON_ALPHANUMERIC);
        let lease = u64::try_from(self.lease.as_micros()).unwrap_or(u64::MAX);
        format!(
            "{}{MARK}{mode} {count} {limit} {flags} {lease} {} {} {} {host}",
            self.who.owner, self.joined_us, self.who.pid, self.process
        )
        .into_bytes()
    }

    /// `None` for what another client wrote.
    pub(super) fn decode(value: &[u8]) -> Option<Card> {
        let text = std::str::from_utf8(value).ok()?;
        let at = text.rfind(MARK)?;
        let (owner, rest) = (&text[..at], &text[at + MARK.len()..]);
        let fields: Vec<&str> = rest.split(' ').collect();
        let [mode, count, limit, flags, lease, joined, pid, process, host] = fields.as_slice() else {
            return None;
        };
        let flags: u8 = flags.parse().ok()?;
        Some(Card {
            mode: match *mode {
                "s" => Mode::Shared,
                "p" => Mode::Permits { count: count.parse().ok()?, limit: limit.parse().ok()? },
                _ => Mode::Exclusive,
            },
            closed: flags & 1 != 0,
            shared: flags & 2 != 0,
            lease: Duration::from_micros(lease.parse().ok()?),
            joined_us: joined.parse().ok()?,
            process: (*process).to_owned(),
            who: Who {
                owner: owner.to_owned(),
                host: percent_decode_str(host).decode_utf8().ok()?.into_owned(),
                pid: pid.parse().ok()?,
            },
        })
    }

    /// How long ago it joined, as far as the clocks of two machines can tell.
    pub(super) fn since(&self) -> Duration {
        Duration::from_micros(wall_micros().saturating_sub(self.joined_us))
    }
}

/// One place as it stands in the store.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) kv: KeyValue,
    /// `None`: another client's, which holds alone.
    pub(super) card: Option<Card>,
}

impl Seen {
    pub(super) fn new(kv: KeyValue) -> Seen {
        let card = Card::decode(&kv.value);
        Seen { kv, card }
    }

    /// The places among what was read of a line.
    pub(super) fn all(line: &Keys, kvs: Vec<KeyValue>) -> Vec<Seen> {
        kvs.into_iter().filter(|kv| is_place(line, kv)).map(Seen::new).collect()
    }

    pub(super) fn mode(&self) -> Mode {
        self.card.as_ref().map_or(Mode::Exclusive, |card| card.mode)
    }

    pub(super) fn ticket(&self) -> Ticket {
        ticket(self.kv.create_revision)
    }

    pub(super) fn who(&self) -> Who {
        self.card.as_ref().map_or_else(
            || Who {
                // In an election of Go's the value is the proposal.
                owner: String::from_utf8_lossy(&self.kv.value).into_owned(),
                host: String::new(),
                pid: 0,
            },
            |card| card.who.clone(),
        )
    }
}

pub(super) fn ticket(revision: i64) -> Ticket {
    Ticket::new(u64::try_from(revision).unwrap_or_default())
}

pub(super) fn revision(ticket: Ticket) -> i64 {
    i64::try_from(ticket.get()).unwrap_or(i64::MAX)
}

/// What an eviction tells a process: `ticket name`.
pub(super) fn message(ticket: i64, name: &Name) -> Vec<u8> {
    format!("{ticket} {name}").into_bytes()
}

pub(super) fn read_message(value: &[u8]) -> Option<(i64, Name)> {
    let (ticket, name) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    Some((ticket.parse().ok()?, Name::new(name).ok()?))
}

/// A lease id that nobody else has: etcd takes any positive number.
pub(super) fn random_id() -> i64 {
    ((ClaimId::random().as_u128() as i64) & i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn claim(owner: &str, mode: Mode) -> Claim {
        Claim {
            name: Name::new("n").unwrap(),
            id: ClaimId::random(),
            mode,
            lease: Duration::from_millis(1500),
            who: Arc::new(Who { owner: owner.into(), host: "ho st\n".into(), pid: 7 }),
            identity: None,
            primitive: crate::line::Primitive::Mutex,
        }
    }

    #[test]
    fn cards_are_read_as_they_were_written() {
        for owner in ["node-1", "", "a\nlockline/1 x 0", "ü ö"] {
            for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 2, limit: 9 }] {
                let card = Card { closed: owner.is_empty(), ..Card::of(&claim(owner, mode), "p1") };
                assert!(card.encode().starts_with(owner.as_bytes()));
                assert_eq!(Card::decode(&card.encode()), Some(card));
            }
        }
        assert_eq!(Card::decode(b""), None);
        assert_eq!(Card::decode(b"a proposal"), None);
    }

    #[test]
    fn a_place_is_a_key_right_under_its_name() {
        let layout = Layout { space: "s/".into() };
        let line = layout.line(&Name::new("a").unwrap());
        let kv = |key: &str, lease| KeyValue { key: key.into(), lease, ..KeyValue::default() };
        assert!(is_place(&line, &kv("s/a/32f", 9)));
        for other in ["s/a/b/32f", "s/a/", "s/a/xyz", "s/ab/32f", "s/a/11112222333344445"] {
            assert!(!is_place(&line, &kv(other, 9)), "{other}");
        }
        assert!(!is_place(&line, &kv("s/a/32f", 0)), "a place hangs on a lease");
        assert_eq!(layout.name_of(&kv("s/a/b/c", 12)).unwrap().as_str(), "a/b");
        assert_eq!(layout.name_of(&kv("s/a/b/c", 13)), None, "not surely a place");
        let place = layout.key(&Name::new("ü/").unwrap(), 255);
        assert_eq!(place, "s/ü//ff".as_bytes());
        assert_eq!(layout.place_of_hold(&layout.hold(&place, 3)), Some(place.as_slice()));
    }

    #[test]
    fn ranges_end_where_their_prefix_does() {
        assert_eq!(Keys::beginning(b"a/".to_vec()).end, b"a0");
        assert_eq!(Keys::beginning(vec![b'a', 0xff]).end, b"b");
        assert_eq!(Keys::beginning(Vec::new()), Keys { key: vec![0], end: vec![0] });
        assert_eq!(read_message(&message(7, &Name::new("a b").unwrap())).unwrap().1.as_str(), "a b");
    }

    #[test]
    fn broken_values_are_read_as_others_or_as_they_would_be_written() {
        let cards = [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 2, limit: 9 }]
            .map(|mode| Card::of(&claim("ü 1", mode), "p1").encode());
        let examples: [&[u8]; 5] = [&cards[0], &cards[1], &cards[2], b"a proposal", b"7 a b"];
        crate::hostile::bytes(&examples, |value| {
            if let Some(card) = Card::decode(value) {
                assert_eq!(Card::decode(&card.encode()), Some(card.clone()));
                card.since();
            }
            if let Some((ticket, name)) = read_message(value) {
                assert_eq!(read_message(&message(ticket, &name)), Some((ticket, name)));
            }
        });
    }

    #[test]
    fn broken_keys_are_no_places_of_another_line() {
        let layout = Layout { space: "s/".into() };
        let line = layout.line(&Name::new("a").unwrap());
        crate::hostile::bytes(&[b"s/a/32f", b"s/a/b/c", "s/ü//ff".as_bytes()], |key| {
            for value in [b"".as_slice(), MARK.as_bytes()] {
                let kv =
                    KeyValue { key: key.to_vec(), lease: 12, value: value.to_vec(), ..KeyValue::default() };
                if is_place(&line, &kv) {
                    assert!(layout.name_of(&kv).is_none_or(|name| name.as_str() == "a"));
                }
                if let Some(name) = layout.name_of(&kv) {
                    assert!(is_place(&layout.line(&name), &kv), "{name}");
                }
            }
        });
    }
}
