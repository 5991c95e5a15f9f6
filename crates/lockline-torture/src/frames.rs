//! Where one message of a protocol ends, and whether it is a bell: enough to lose bells and nothing else.

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Redis, RESP3: pushed messages begin with `>`.
    Resp,
    /// PostgreSQL: notifications are messages of the type `A`.
    Postgres,
    /// ZooKeeper: what a watch saw has the number -1.
    Zookeeper,
}

/// The length of the first whole message in `bytes` and whether it is a bell; `None` if more bytes are needed.
pub(crate) fn first(protocol: Protocol, bytes: &[u8]) -> Option<(usize, bool)> {
    let (length, is_bell) = match protocol {
        Protocol::Resp => (resp(bytes, 0)?, bytes.first() == Some(&b'>') && !is_confirmation(bytes)),
        Protocol::Postgres => (1 + number(bytes, 1)?, bytes.first() == Some(&b'A')),
        Protocol::Zookeeper => (4 + number(bytes, 0)?, bytes.get(4..8) == Some(&[0xff; 4])),
    };
    (bytes.len() >= length).then_some((length, is_bell))
}

/// That one has subscribed is pushed, too, and is an answer.
fn is_confirmation(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(40)];
    start.windows(9).any(|word| word == b"subscribe")
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(i32::from_be_bytes(four)).ok()
}

/// Where the value that begins at `at` ends.
fn resp(bytes: &[u8], at: usize) -> Option<usize> {
    let line = bytes.get(at..)?;
    let line = &line[..line.windows(2).position(|two| two == b"\r\n")?];
    let end = at + line.len() + 2;
    let (kind, rest) = line.split_first()?;
    let count = || std::str::from_utf8(rest).ok()?.parse::<i64>().ok();
    match kind {
        b'$' | b'=' | b'!' => Some(count()?.try_into().map_or(end, |length: usize| end + length + 2)),
        b'*' | b'~' | b'>' | b'%' => {
            let values = count()?.max(0) * if *kind == b'%' { 2 } else { 1 };
            (0..values).try_fold(end, |at, _| resp(bytes, at))
        }
        _ => Some(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_where_they_end() {
        let push = b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n";
        for (bytes, is_bell) in [
            (&b"+OK\r\n"[..], false),
            (b"$-1\r\n", false),
            (b"$2\r\nhi\r\n", false),
            (b"*2\r\n:1\r\n%1\r\n+a\r\n_\r\n", false),
            (push, true),
            (b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", false),
        ] {
            let mut more = bytes.to_vec();
            more.extend(b"+next\r\n");
            assert_eq!(first(Protocol::Resp, &more), Some((bytes.len(), is_bell)));
            assert!((0..bytes.len()).all(|cut| first(Protocol::Resp, &bytes[..cut]).is_none()));
        }
        assert_eq!(first(Protocol::Postgres, b"A\0\0\0\x06xxZ"), Some((7, true)));
        assert_eq!(first(Protocol::Postgres, b"Z\0\0\0\x05I"), Some((6, false)));
        assert_eq!(first(Protocol::Postgres, b"Z\0\0\0\x05"), None);
        assert_eq!(first(Protocol::Zookeeper, b"\0\0\0\x05\xff\xff\xff\xff.."), Some((9, true)));
        assert_eq!(first(Protocol::Zookeeper, b"\0\0\0\x04\0\0\0\x01"), Some((8, false)));
    }
}
