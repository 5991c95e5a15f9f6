//! Redisson's `RLock`, and its `RFencedLock`, which is the same lock with a counter beside it.
//!
//! The key is the lock's name: a hash with one field, `uuid:thread`, whose value is how often that thread holds it. Ours is
//! always held once: reentrancy is counted in the process. A release publishes `0` on a channel of the name.

use redis::Cmd;
use sha2::{Digest, Sha256};

use super::{RedisFormat, Scripts};
use crate::drivers::foreign::{Format, Holder};
use crate::line::{Claim, ClaimId, Who};

/// A hash with one field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Redisson {
    /// Whether every holder takes a token, as `RFencedLock` does.
    pub(super) fenced: bool,
}

const SCRIPTS: Scripts = [
    include_str!("../lua/layouts/redisson_acquire.lua"),
    include_str!("../lua/layouts/redisson_extend.lua"),
    include_str!("../lua/layouts/redisson_release.lua"),
    include_str!("../lua/layouts/redisson_look.lua"),
    include_str!("../lua/layouts/redisson_evict.lua"),
];

/// What stands before a field that was evicted.
const EVICTED: &str = "evicted:";

impl Format for Redisson {
    /// Our field: a UUID made from the id, and this process as the thread. Redisson's own UUIDs have version 4; ours has
    /// version 8 (made in a way of one's own), so that a reader can tell. The id itself cannot be read from it.
    fn mark(&self, id: ClaimId) -> String {
        let hash = Sha256::digest(id.as_u128().to_be_bytes());
        let bits = u128::from_be_bytes(hash[..16].try_into().unwrap_or_default());
        let bits = bits & !(0xf << 76) & !(0x3 << 62) | 0x8 << 76 | 0x2 << 62;
        let hex = format!("{bits:032x}");
        let [a, b, c, d, e] = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        format!("{a}-{b}-{c}-{d}-{e}:{}", std::process::id())
    }

    fn text(&self, _claim: &Claim) -> String {
        u8::from(self.fenced).to_string()
    }

    fn fenced(&self) -> bool {
        self.fenced
    }

    fn channel(&self, key: &str) -> Option<String> {
        Some(beside("redisson_lock__channel", key))
    }
}

impl RedisFormat for Redisson {
    fn scripts(&self) -> &'static Scripts {
        &SCRIPTS
    }

    fn stored_as(&self) -> &'static str {
        "hash"
    }

    fn keys(&self, key: &str) -> Vec<String> {
        vec![key.to_owned(), beside("redisson_lock_token", key), beside("redisson_lock_queue", key)]
    }

    fn take(&self, _key: &str, _text: &str, _lease: std::time::Duration) -> Option<Cmd> {
        None
    }

    fn announced_on<'a>(&self, channel: &'a str) -> Vec<&'a str> {
        let Some(rest) = channel.strip_prefix("redisson_lock__channel:") else { return Vec::new() };
        // `a` and `{a}` share a channel.
        let bare =
            rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).filter(|key| !key.contains('{'));
        bare.into_iter().chain(rest.contains('{').then_some(rest)).collect()
    }

    fn holder(&self, text: &str) -> Option<Holder> {
        let (field, evicted) = text.strip_prefix(EVICTED).map_or((text, false), |rest| (rest, true));
        let (uuid, thread) = field.rsplit_once(':')?;
        let is_uuid = uuid.len() == 36 && uuid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        let thread: u64 = thread.parse().ok().filter(|_| is_uuid)?;
        let ours = uuid.as_bytes()[14] == b'8';
        let who = Who {
            owner: if ours {
                "lockline".to_owned()
            } else {
                format!("redisson {} thread {thread}", &uuid[..8])
            },
            host: String::new(),
            pid: if ours { u32::try_from(thread).unwrap_or_default() } else { 0 },
        };
        Some(Holder { named_by: field.to_owned(), who, evicted })
    }
}

/// The name of what stands beside a lock, in the same slot of a cluster.
fn beside(what: &str, key: &str) -> String {
    if key.contains('{') { format!("{what}:{key}") } else { format!("{what}:{{{key}}}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Redisson = Redisson { fenced: false };

    #[test]
    fn names_as_redisson_makes_them() {
        assert_eq!(PLAIN.channel("a b").unwrap(), "redisson_lock__channel:{a b}");
        assert_eq!(PLAIN.channel("x{a}").unwrap(), "redisson_lock__channel:x{a}");
        for key in ["a", "a b", "x{a}", "{a}", "}a{", "{a}b", "{{a}}"] {
            let channel = PLAIN.channel(key).unwrap();
            assert!(PLAIN.announced_on(&channel).contains(&key), "{key}");
        }
        assert!(PLAIN.announced_on("elsewhere").is_empty());
        assert_eq!(PLAIN.keys("a"), ["a", "redisson_lock_token:{a}", "redisson_lock_queue:{a}"]);
    }

    #[test]
    fn fields_are_read_and_written() {
        let field = PLAIN.mark(ClaimId::from_u128(7));
        assert_eq!(field, PLAIN.mark(ClaimId::from_u128(7)));
        assert_ne!(field, PLAIN.mark(ClaimId::from_u128(8)));
        let holder = PLAIN.holder(&field).unwrap();
        assert_eq!((holder.who.pid, holder.who.owner.as_str()), (std::process::id(), "lockline"));
        assert!(PLAIN.holder(&format!("{EVICTED}{field}")).unwrap().evicted);
        let theirs = PLAIN.holder("5dc5a3a8-5b1c-4f7e-9d57-0e5d0b9c9a11:83").unwrap();
        assert_eq!((theirs.who.pid, theirs.who.owner.as_str()), (0, "redisson 5dc5a3a8 thread 83"));
        for no_lock in ["mode", "", "a:1", "ü:1"] {
            assert!(PLAIN.holder(no_lock).is_none(), "{no_lock}");
        }
    }

    #[test]
    fn broken_fields_and_channels_are_read_as_others() {
        let field = PLAIN.mark(ClaimId::from_u128(7));
        let examples = [
            field.as_str(),
            "5dc5a3a8-5b1c-4f7e-9d57-0e5d0b9c9a11:83",
            "redisson_lock__channel:{a b}",
            "redisson_lock__channel:x{a}",
        ];
        crate::hostile::texts(&examples, |text| {
            PLAIN.holder(text);
            for key in PLAIN.announced_on(text) {
                assert_eq!(PLAIN.channel(key).as_deref(), Some(text));
            }
        });
    }
}
