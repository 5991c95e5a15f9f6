//! `SET key value NX PX lease`: the lock of redis-py, node `redlock`, redsync, rslock and many others, on one server.
//!
//! The key is the lock's name. The value is anything that nobody else can guess; ours says who holds it, after the id.

use redis::Cmd;

use super::{RedisFormat, Scripts, millis};
use crate::drivers::foreign::{Format, Holder, another, signature, signed};
use crate::line::{Claim, ClaimId};

/// A string with a random value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain;

const SCRIPTS: Scripts = [
    include_str!("../lua/layouts/plain_acquire.lua"),
    include_str!("../lua/layouts/plain_extend.lua"),
    include_str!("../lua/layouts/plain_release.lua"),
    include_str!("../lua/layouts/plain_look.lua"),
    include_str!("../lua/layouts/plain_evict.lua"),
];

/// What stands before a value that was evicted.
const EVICTED: &str = "evicted ";

impl Format for Plain {
    fn mark(&self, id: ClaimId) -> String {
        format!("{:032x} ", id.as_u128())
    }

    fn text(&self, claim: &Claim) -> String {
        signature(claim)
    }
}

impl RedisFormat for Plain {
    fn scripts(&self) -> &'static Scripts {
        &SCRIPTS
    }

    fn stored_as(&self) -> &'static str {
        "string"
    }

    fn keys(&self, key: &str) -> Vec<String> {
        vec![key.to_owned()]
    }

    fn take(&self, key: &str, text: &str, lease: std::time::Duration) -> Option<Cmd> {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(text).arg("NX").arg("PX").arg(millis(lease));
        Some(set)
    }

    fn announced_on<'a>(&self, _channel: &'a str) -> Vec<&'a str> {
        Vec::new()
    }

    fn holder(&self, text: &str) -> Option<Holder> {
        let (text, evicted) = text.strip_prefix(EVICTED).map_or((text, false), |rest| (rest, true));
        Some(match signed(text) {
            Some((mark, who)) => Holder { named_by: mark.to_owned(), who, evicted },
            None => Holder { named_by: text.to_owned(), who: another(""), evicted },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::redis::tests::claim;
    use crate::line::Mode;

    #[test]
    fn a_value_says_who_holds() {
        let claim = claim("a", Mode::Exclusive, std::time::Duration::from_secs(1));
        let text = Plain.text(&claim);
        let holder = Plain.holder(&text).unwrap();
        assert_eq!((&holder.who, holder.evicted), (&*claim.who, false));
        let evicted = Plain.holder(&format!("{EVICTED}{text}")).unwrap();
        assert_eq!((&evicted.named_by, evicted.evicted), (&holder.named_by, true), "the same ticket");
        assert!(text.starts_with(&Plain.mark(claim.id)));
    }

    #[test]
    fn what_others_write_is_theirs() {
        for text in
            ["", "5f6c7a", "0123456789abcdef0123456789abcdef", "ü", "0123456789abcdef0123456789abcdef x y z"]
        {
            let holder = Plain.holder(text).unwrap();
            assert_eq!((holder.named_by.as_str(), holder.who.pid), (text, 0));
        }
    }
}
