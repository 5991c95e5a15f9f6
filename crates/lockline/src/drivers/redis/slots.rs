//! Which of a cluster's 16384 slots a key is in.

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
