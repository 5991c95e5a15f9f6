//! Which of a cluster's 16384 slots a key is in, and which of them a node keeps.

use std::sync::{PoisonError, RwLock};

/// How many there are.
pub(super) const SLOTS: u16 = 16384;

/// The slot of a key: that of its tag, if it has one.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let tag = || {
        let open = key.iter().position(|&byte| byte == b'{')? + 1;
        let close = key[open..].iter().position(|&byte| byte == b'}')?;
        Some(&key[open..open + close]).filter(|tag| !tag.is_empty())
    };
    crc16(tag().unwrap_or(key)) % SLOTS
}

/// The smallest number that, as a tag, puts a key into this slot.
pub(super) fn tag_of(slot: u16) -> String {
    let numbers = (0u32..).map(|number| number.to_string());
    numbers.into_iter().find(|tag| crc16(tag.as_bytes()) % SLOTS == slot).unwrap_or_default()
}

/// The slots that a node keeps now: others come and go while it is the same node.
#[derive(Debug)]
pub(super) struct Kept(RwLock<Vec<(u16, u16)>>);

impl Kept {
    pub(super) fn new(ranges: Vec<(u16, u16)>) -> Kept {
        Kept(RwLock::new(ranges))
    }

    /// Tells whether the first of them is another one than before.
    pub(super) fn set(&self, ranges: &[(u16, u16)]) -> bool {
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = first(&kept);
        kept.clear();
        kept.extend_from_slice(ranges);
        before != first(&kept)
    }

    /// What a key must be tagged with to be kept by the node, for as long as it keeps its first slot.
    pub(super) fn tag(&self) -> String {
        tag_of(first(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// The same with any of its slots: whoever meets one that is being moved takes another.
    pub(super) fn any_tag(&self, random: u128) -> String {
        let slot = {
            let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let count: u128 = kept.iter().map(|range| u128::from(range.1 - range.0) + 1).sum();
            let nth = usize::try_from(random % count.max(1)).unwrap_or(0);
            kept.iter().flat_map(|range| range.0..=range.1).nth(nth).unwrap_or(0)
        };
        tag_of(slot)
    }
}

fn first(ranges: &[(u16, u16)]) -> u16 {
    ranges.iter().map(|range| range.0).min().unwrap_or(0)
}

/// CRC-16/XMODEM, as Redis computes it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, &byte| {
        let index = usize::from((sum >> 8) ^ u16::from(byte));
        (sum << 8) ^ TABLE[index]
    })
}

const TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut sum = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index] = sum;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_a_tag_for_as_long_as_it_keeps_a_slot() {
        let kept = Kept::new(vec![(90, 95), (3, 5)]);
        assert_eq!(slot_of(format!("{{{}}}", kept.tag()).as_bytes()), 3);
        for random in 0..20 {
            let slot = slot_of(format!("{{{}}}", kept.any_tag(random)).as_bytes());
            assert!((3..=5).contains(&slot) || (90..=95).contains(&slot), "{slot}");
        }
        assert!(!kept.set(&[(3, 3)]));
        assert!(kept.set(&[(4, 4)]));
        assert_eq!(slot_of(format!("{{{}}}", kept.tag()).as_bytes()), 4);
        kept.set(&[]);
        assert_eq!(kept.tag(), kept.any_tag(7), "any will do");
    }

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo"), 12182);
        assert_eq!(slot_of(b"{foo}.bar"), 12182);
        assert_eq!(slot_of(b"a{foo}{bar}"), 12182);
        assert_eq!(slot_of(b"{}foo"), crc16(b"{}foo") % SLOTS);
        for slot in [0, 1, 8191, 16383] {
            assert_eq!(slot_of(format!("x:{{{}}}:y", tag_of(slot)).as_bytes()), slot);
        }
    }
}
