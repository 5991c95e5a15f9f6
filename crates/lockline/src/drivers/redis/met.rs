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
}

const WRITES_FIRST: &str = "writes-first";

impl Met<'_> {
    pub(super) fn parse(text: &str) -> Option<Met<'_>> {
        let mut words = text.split(' ');
        let (life, ends_us) = (words.next()?, words.next()?.parse().ok()?);
        Some(Met { life, ends_us, writes_first: words.next() == Some(WRITES_FIRST) })
    }

    pub(super) async fn write(&self, connection: &mut impl ConnectionLike, key: &str) -> RedisResult<()> {
        let Met { life, ends_us, writes_first } = self;
        let more = if *writes_first { WRITES_FIRST } else { "" };
        redis::cmd("SET").arg(key).arg(format!("{life} {ends_us} {more}")).exec_async(connection).await
    }
}
