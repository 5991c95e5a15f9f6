//! The znode of one claim: what its name and its data say.
//!
//! The name is Curator's, so that Java services read it: `_c_<uuid>-`, then `lock-` (a mutex), `__READ__` or `__WRIT__` (a
//! read-write lock), then the number that ZooKeeper gave. What only Lockline understands stands between, where nobody else
//! looks: the owner's identity, and the permits of a semaphore, which to others is a mutex's claim.

use std::fmt::Write;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::line::{Claim, ClaimId, Mode, Primitive, Ticket, Who};

/// What a claim's name ends with before its number, and how such a claim stands. The last two are kazoo's.
const MARKS: [(&str, Mode); 5] = [
    ("__READ__", Mode::Shared),
    ("__WRIT__", Mode::Exclusive),
    ("__rlock__", Mode::Shared),
    ("__lock__", Mode::Exclusive),
    ("lock-", Mode::Exclusive),
];

/// What the name of a claim's znode says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// The whole name.
    pub(super) name: String,
    /// The number that orders claims. It is signed and may wrap around.
    pub(super) number: i32,
    pub(super) mode: Mode,
    /// In hexadecimal digits, as it stands in the name.
    pub(super) identity: Option<String>,
    /// `None` if another program made it.
    pub(super) id: Option<ClaimId>,
}

impl Node {
    /// Reads a name; `None` if it is not a claim's.
    pub(super) fn parse(name: &str) -> Option<Node> {
        let (head, mark, number) = MARKS.iter().find_map(|(mark, mode)| {
            let at = name.rfind(mark)?;
            Some((&name[..at], *mode, number(&name[at + mark.len()..])?))
        })?;
        let mut node = Node { name: name.to_owned(), number, mode: mark, identity: None, id: None };
        let Some((uuid, mut rest)) = head.strip_prefix("_c_").and_then(|rest| rest.split_at_checked(36))
        else {
            return Some(node);
        };
        node.id = id_of(uuid);
        if let Some((identity, after)) = rest.strip_prefix("-as-").and_then(|rest| rest.split_once('-')) {
            node.identity = Some(identity.to_owned());
            // The dash begins what follows.
            rest = &rest[rest.len() - after.len() - 1..];
        }
        if let Some(permits) = rest.strip_prefix("-permits-") {
            let mut numbers = permits.split('-').map_while(|number| number.parse().ok());
            if let (Some(count), Some(limit)) = (numbers.next(), numbers.next()) {
                node.mode = Mode::Permits { count, limit };
            }
        }
        Some(node)
    }

    /// The name of a claim's znode, without the number that ZooKeeper puts behind it.
    pub(super) fn prefix(claim: &Claim) -> String {
        let mut name = format!("_c_{}-", uuid_of(claim.id));
        if let Some(identity) = &claim.identity {
            name.push_str("as-");
            name.push_str(&hex(identity));
            name.push('-');
        }
        if let Mode::Permits { count, limit } = claim.mode {
            // A String takes everything.
            let _ = write!(name, "permits-{count}-{limit}-");
        }
        name.push_str(match (claim.mode, claim.primitive) {
            (Mode::Shared, _) => "__READ__",
            (Mode::Exclusive, Primitive::RwLock) => "__WRIT__",
            (Mode::Exclusive | Mode::Permits { .. }, _) => "lock-",
        });
        name
    }

    /// Whether it is a claim on a mutex; a semaphore's claims look alike to others, but not to us.
    pub(super) fn is_of_mutex(&self) -> bool {
        self.mode == Mode::Exclusive && !self.name.contains("__WRIT__")
    }

    /// Whether it belongs to an identity.
    pub(super) fn is_of(&self, identity: &str) -> bool {
        self.identity.as_deref().is_some_and(|own| own == hex(identity))
    }
}

/// As Java's `%010d` writes a number.
pub(super) fn digits(number: i32) -> String {
    format!("{number:010}")
}

fn number(digits: &str) -> Option<i32> {
    let plain = digits.strip_prefix('-').unwrap_or(digits);
    (digits.len() >= 10 && plain.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

fn hex(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len() * 2), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn uuid_of(id: ClaimId) -> String {
    let hex = format!("{:032x}", id.as_u128());
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn id_of(uuid: &str) -> Option<ClaimId> {
    u128::from_str_radix(&uuid.replace('-', ""), 16).ok().map(ClaimId::from_u128)
}

/// What the data of a claim's znode says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) who: Who,
    pub(super) lease: Duration,
    /// The ticket of the place it stands on, if another claim of its identity made that place.
    pub(super) place: Option<Ticket>,
    /// Its lease is fixed, and began when this was written.
    pub(super) fixed: bool,
    /// It was shown out while it was in.
    pub(super) evicted: bool,
}

const FIRST_LINE: &str = "lockline";

/// What asks the holder of a Curator lock to give it back.
pub(super) const CURATOR_REVOKE: &[u8] = b"__REVOKE__";

impl Data {
    pub(super) fn of(claim: &Claim) -> Data {
        Data { who: (*claim.who).clone(), lease: claim.lease, place: None, fixed: false, evicted: false }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let plain = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let Who { owner, host, pid } = &self.who;
        let mut text = format!(
            "{FIRST_LINE}\nowner {}\nhost {}\npid {pid}\nlease_ms {}\n",
            plain(owner),
            plain(host),
            self.lease.as_millis()
        );
        if let Some(place) = self.place {
            let _ = writeln!(text, "place {place}");
        }
        for (word, is_so) in [("fixed", self.fixed), ("evicted", self.evicted)] {
            if is_so {
                text.push_str(word);
                text.push('\n');
            }
        }
        text.into_bytes()
    }

    /// Reads it; `None` if another program wrote it.
    pub(super) fn read(bytes: &[u8]) -> Option<Data> {
        let mut lines = std::str::from_utf8(bytes).ok()?.lines();
        if lines.next() != Some(FIRST_LINE) {
            return None;
        }
        let who = Who { owner: String::new(), host: String::new(), pid: 0 };
        let mut data = Data { who, lease: Duration::ZERO, place: None, fixed: false, evicted: false };
        let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        for line in lines {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("owner", owner) => data.who.owner = plain(owner),
                ("host", host) => data.who.host = plain(host),
                ("pid", pid) => data.who.pid = pid.parse().ok()?,
                ("lease_ms", ms) => data.lease = Duration::from_millis(ms.parse().ok()?),
                ("place", ticket) => data.place = Some(Ticket::new(ticket.parse().ok()?)),
                ("fixed", _) => data.fixed = true,
                ("evicted", _) => data.evicted = true,
                // A later version may have more to say.
                _ => {}
            }
        }
        Some(data)
    }
}

/// Whether this data says that its claim was shown out, by us or in Curator's way.
pub(super) fn is_evicted(bytes: &[u8]) -> bool {
    bytes == CURATOR_REVOKE || Data::read(bytes).is_some_and(|data| data.evicted)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::name::Name;

    fn claim(mode: Mode, primitive: Primitive, identity: Option<&str>) -> Claim {
        Claim {
            name: Name::new("m").unwrap(),
            id: ClaimId::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef),
            mode,
            lease: Duration::from_secs(10),
            who: Arc::new(Who { owner: "a b\n%".into(), host: "h".into(), pid: 7 }),
            identity: identity.map(Into::into),
            primitive,
        }
    }

    #[test]
    fn names_are_curators() {
        let name = |mode, primitive| Node::prefix(&claim(mode, primitive, None));
        let head = "_c_01234567-89ab-cdef-0123-456789abcdef-";
        assert_eq!(name(Mode::Exclusive, Primitive::Mutex), format!("{head}lock-"));
        assert_eq!(name(Mode::Exclusive, Primitive::RwLock), format!("{head}__WRIT__"));
        assert_eq!(name(Mode::Shared, Primitive::RwLock), format!("{head}__READ__"));
    }

    #[test]
    fn what_is_written_is_read() {
        let permits = Mode::Permits { count: 2, limit: 5 };
        for (mode, primitive) in [
            (Mode::Exclusive, Primitive::Mutex),
            (Mode::Exclusive, Primitive::RwLock),
            (Mode::Shared, Primitive::RwLock),
            (permits, Primitive::Semaphore),
        ] {
            for identity in [None, Some("job-7 lock-")] {
                let claim = claim(mode, primitive, identity);
                for number in [0, 7, i32::MAX, -5, i32::MIN] {
                    let name = format!("{}{}", Node::prefix(&claim), digits(number));
                    let node = Node::parse(&name).unwrap();
                    assert_eq!((node.number, node.mode, node.id), (number, mode, Some(claim.id)), "{name}");
                    assert_eq!(node.identity.is_some(), identity.is_some());
                    assert!(identity.is_none_or(|identity| node.is_of(identity) && !node.is_of("job-8")));
                }
                let data = Data { place: Some(Ticket::new(9)), fixed: true, ..Data::of(&claim) };
                assert_eq!(Data::read(&data.write()), Some(data));
            }
        }
    }

    #[test]
    fn other_programs_names_are_read() {
        let seen = |name: &str| Node::parse(name).map(|node| (node.number, node.mode));
        assert_eq!(seen("0123456789abcdef0123456789abcdef__lock__0000000003"), Some((3, Mode::Exclusive)));
        assert_eq!(seen("0123456789abcdef0123456789abcdef__rlock__0000000004"), Some((4, Mode::Shared)));
        assert_eq!(seen("lock-0000000005"), Some((5, Mode::Exclusive)));
        assert_eq!(seen("_c_x-lock-0000000006"), Some((6, Mode::Exclusive)));
        assert_eq!(seen("orders"), None);
        assert_eq!(seen("lock-5"), None);
        assert_eq!(seen("lock-00000000x5"), None);
        assert!(is_evicted(b"__REVOKE__") && !is_evicted(b"10.0.0.1"));
    }

    #[test]
    fn broken_names_and_data_are_read_as_others() {
        let names = [
            "_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000007",
            "_c_01234567-89ab-cdef-0123-456789abcdef-as-6a6f-permits-2-5-lock-0000000007",
            "_c_01234567-89ab-cdef-0123-456789abcdef-__READ__-000000005",
            "0123456789abcdef0123456789abcdef__rlock__0000000004",
        ];
        crate::hostile::texts(&names, |name| {
            if let Some(node) = Node::parse(name) {
                assert!(name.ends_with(&digits(node.number)) || name.len() > 10, "{name}");
                assert_eq!(node.name, name);
            }
        });
        let claim = claim(Mode::Exclusive, Primitive::Mutex, None);
        let data = Data { place: Some(Ticket::new(9)), fixed: true, evicted: true, ..Data::of(&claim) };
        crate::hostile::bytes(&[&data.write(), CURATOR_REVOKE, b"10.0.0.1"], |bytes| {
            if let Some(data) = Data::read(bytes) {
                assert_eq!(Data::read(&data.write()), Some(data));
            }
            is_evicted(bytes);
        });
    }
}
