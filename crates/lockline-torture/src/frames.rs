//! Where one message of a protocol ends, whether it is a bell, and which servers it names: enough to lose bells and nothing
//! else, and to keep clients on the proxied ways.

use anyhow::ensure;

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Redis, RESP3: pushed messages begin with `>`.
    Resp,
    /// PostgreSQL: notifications are messages of the type `A`.
    Postgres,
    /// ZooKeeper: what a watch saw has the number -1.
    Zookeeper,
    /// etcd, gRPC in HTTP/2: only what a watch saw has events, in field 11.
    Etcd,
    /// MariaDB: a bell is the answer to whoever waits inside the server, in a session that does nothing else.
    Mysql,
}

/// Whether whoever asks this does nothing from now on but wait for bells.
pub(crate) fn listens(protocol: Protocol, request: &[u8]) -> bool {
    const WAITS: &[u8] = b"CALL lockline_watch(";
    protocol == Protocol::Mysql && request.windows(WAITS.len()).any(|words| words == WAITS)
}

/// The length of the first whole message in `bytes` and whether it is a bell; `None` if more bytes are needed.
pub(crate) fn first(protocol: Protocol, bytes: &[u8]) -> Option<(usize, bool)> {
    let (length, is_bell) = match protocol {
        Protocol::Resp => (resp(bytes, 0)?, bytes.first() == Some(&b'>') && !is_confirmation(bytes)),
        Protocol::Postgres => (1 + number(bytes, 1)?, bytes.first() == Some(&b'A')),
        Protocol::Zookeeper => (4 + number(bytes, 0)?, bytes.get(4..8) == Some(&[0xff; 4])),
        // Whatever has come.
        Protocol::Mysql => (bytes.len().max(1), false),
        Protocol::Etcd => {
            let length = HTTP2_HEAD + (number(bytes, 0)? >> 8);
            (length, bytes.get(..length).and_then(events).is_some_and(|events| !events.is_empty()))
        }
    };
    (bytes.len() >= length).then_some((length, is_bell))
}

/// What passes in place of a bell that is lost. HTTP/2 counts bytes, and would notice if some were missing: there the news
/// come without events.
pub(crate) fn without_bell(protocol: Protocol, bell: &[u8]) -> Vec<u8> {
    if protocol != Protocol::Etcd {
        return Vec::new();
    }
    let mut news = bell.to_vec();
    for at in events(bell).unwrap_or_default() {
        // A field that nobody knows, and readers leave out.
        news[at] = FIELD_12;
    }
    news
}

const HTTP2_HEAD: usize = 9;
const GRPC_HEAD: usize = 5;
const FIELD_11: u8 = 11 << 3 | 2;
const FIELD_12: u8 = 12 << 3 | 2;

/// Where the events of a watch's news begin; `None` if the frame is anything else than one whole message.
fn events(frame: &[u8]) -> Option<Vec<usize>> {
    let is_data = frame.get(3) == Some(&0);
    let is_whole = number(frame, HTTP2_HEAD + 1)? == frame.len() - HTTP2_HEAD - GRPC_HEAD;
    if !is_data || !is_whole || frame[HTTP2_HEAD] != 0 {
        return None;
    }
    let mut found = Vec::new();
    let mut at = HTTP2_HEAD + GRPC_HEAD;
    while at < frame.len() {
        if frame[at] == FIELD_11 {
            found.push(at);
        }
        let (tag, value) = varint(frame, at)?;
        let (number, after) = varint(frame, value)?;
        at = match tag & 7 {
            0 => after,
            1 => value + 8,
            2 => after.checked_add(usize::try_from(number).ok()?)?,
            5 => value + 4,
            _ => return None,
        };
    }
    (at == frame.len()).then_some(found)
}

/// A number of protobuf's, and where it ends.
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number = 0;
    for (index, byte) in bytes.get(at..)?.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((number, at + index + 1));
        }
    }
    None
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

/// The ports of servers, as digits, and those of their proxies.
#[derive(Debug)]
pub(crate) struct Ports(Vec<(Vec<u8>, Vec<u8>)>);

impl Ports {
    /// From pairs of addresses: a server's and its proxy's.
    pub(crate) fn new<'a>(addresses: impl Iterator<Item = (&'a str, &'a str)>) -> anyhow::Result<Ports> {
        let port = |address: &str| address.rsplit(':').next().unwrap_or_default().as_bytes().to_vec();
        let ports: Vec<_> = addresses.map(|(server, proxy)| (port(server), port(proxy))).collect();
        // A message says how long its texts are.
        let as_long = ports.iter().all(|(server, proxy)| server.len() == proxy.len());
        ensure!(as_long, "a server's port and its proxy's have not the same number of digits: try again");
        Ok(Ports(ports))
    }

    /// Where an answer of Redis names a server, it names the proxy instead: a Sentinel its primary, a node of a cluster
    /// all nodes, or the one to which it sends the client.
    pub(crate) fn translate(&self, answers: &mut [u8]) {
        const BEFORE_A_PORT: [&[u8]; 3] = [b"$4\r\nport\r\n$5\r\n", b"127.0.0.1\r\n:", b" 127.0.0.1:"];
        for before in BEFORE_A_PORT {
            let mut at = 0;
            while let Some(found) = answers[at..].windows(before.len()).position(|bytes| bytes == before) {
                at += found + before.len();
                let named = self.0.iter().find(|(server, _)| answers[at..].starts_with(server));
                if let Some((server, proxy)) = named {
                    answers[at..at + server.len()].copy_from_slice(proxy);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_servers_are_named_their_proxies_are() {
        let ports = [("127.0.0.1:40001", "127.0.0.1:50001"), ("127.0.0.1:40002", "127.0.0.1:50002")];
        let ports = Ports::new(ports.into_iter()).unwrap();
        for (says, read) in [
            ("$2\r\nip\r\n$9\r\n127.0.0.1\r\n$4\r\nport\r\n$5\r\n40002\r\n", "port\r\n$5\r\n50002\r\n"),
            ("*3\r\n$9\r\n127.0.0.1\r\n:40001\r\n$2\r\nid\r\n", "127.0.0.1\r\n:50001\r\n"),
            ("-MOVED 7 127.0.0.1:40001\r\n", "-MOVED 7 127.0.0.1:50001\r\n"),
            ("-MOVED 7 127.0.0.1:40003\r\n", "-MOVED 7 127.0.0.1:40003\r\n"),
            (":40001\r\n", ":40001\r\n"),
        ] {
            let mut bytes = says.as_bytes().to_vec();
            ports.translate(&mut bytes);
            let bytes = String::from_utf8(bytes).unwrap();
            assert!(bytes.contains(read), "{bytes:?}");
        }
        assert!(Ports::new([("127.0.0.1:40001", "127.0.0.1:5001")].into_iter()).is_err());
    }

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

    #[test]
    fn who_waits_in_mariadb_listens() {
        let asks = b"\x21\0\0\0\x16CALL lockline_watch(?, ?, ?, ?)";
        assert!(listens(Protocol::Mysql, asks) && !listens(Protocol::Postgres, asks));
        assert!(!listens(Protocol::Mysql, b"CALL lockline_join(?)"));
        assert_eq!(first(Protocol::Mysql, asks), Some((asks.len(), false)));
        assert_eq!(first(Protocol::Mysql, b""), None);
    }

    #[test]
    fn a_watch_of_etcd_has_no_events_when_its_bell_is_lost() {
        let frame = |kind: u8, message: &[u8]| {
            let grpc = [&[0, 0, 0, 0, message.len() as u8], message].concat();
            [&[0, 0, grpc.len() as u8, kind, 0, 0, 0, 0, 1], grpc.as_slice()].concat()
        };
        // A header, a watch's number, and an event that contains what looks like another one.
        let news = frame(0, b"\x0a\x02\x5a\x01\x10\x07\x5a\x03\x5a\x01x");
        assert_eq!(first(Protocol::Etcd, &news), Some((news.len(), true)));
        assert!(first(Protocol::Etcd, &news[..news.len() - 1]).is_none());
        let lost = frame(0, b"\x0a\x02\x5a\x01\x10\x07\x62\x03\x5a\x01x");
        assert_eq!(without_bell(Protocol::Etcd, &news), lost);
        for other in [frame(0, b"\x0a\x02\x5a\x01\x10\x07"), frame(1, b"\x5a\x01x"), frame(0, b"\x5a\x09x")] {
            assert_eq!(first(Protocol::Etcd, &other), Some((other.len(), false)));
        }
    }
}
