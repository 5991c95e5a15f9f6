//! The record of a life of a server, in a key beside the locks.

use redis::RedisResult;
use redis::aio::ConnectionLike;

/// What is written down about a life, by whoever meets it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Met<'a> {
    pub(super) life: &'a str,
    /// Until when nobody gets in; 0 if somebody may.
    pub(super) ends_us: u64,
    /// Whether all that it answers is on disk before. Only what such a life has left behind is complete: what its successor says of
    /// itself was perhaps set when it was started, over an append-only file that lacks a second, or that is new and empty.
    pub(super) writes_first: bool,
    /// How long its clients guard, and so the longest lease that any of them may have; nothing in a record of an older version.
    pub(super) guards_us: Option<u64>,
}

const WRITES_FIRST: &str = "writes-first";
const WRITES_LATER: &str = "-";

impl Met<'_> {
    pub(super) fn parse(text: &str) -> Option<Met<'_>> {
        let mut words = text.split(' ');
        let (life, ends_us) = (words.next()?, words.next()?.parse().ok()?);
        let writes_first = words.next() == Some(WRITES_FIRST);
        Some(Met { life, ends_us, writes_first, guards_us: words.next().and_then(|word| word.parse().ok()) })
    }

    /// As it is stored. Who knows no more than the first three words reads them as it always did.
    pub(super) fn text(&self) -> String {
        let Met { life, ends_us, writes_first, guards_us } = self;
        let writes = if *writes_first { WRITES_FIRST } else { WRITES_LATER };
        match guards_us {
            Some(guards_us) => format!("{life} {ends_us} {writes} {guards_us}"),
            None => format!("{life} {ends_us} {writes}"),
        }
    }

    pub(super) async fn write(&self, connection: &mut impl ConnectionLike, key: &str) -> RedisResult<()> {
        redis::cmd("SET").arg(key).arg(self.text()).exec_async(connection).await
    }
}
