//! Messages from the server: bells for claims of this process, on the connection that carries the commands.

use std::pin::Pin;
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};

use crate::driver::Bells;
use crate::error::Result;
use crate::line::{Bell, ClaimId, News, Ticket};
use crate::name::Name;

/// A bell does not tell the lease of its claim; whoever it rings for looks again within a second anyway.
pub(super) const CONFIRM_FOR: Duration = Duration::from_secs(6);

/// How many replicas have what a bell tells of.
pub(super) type Confirmed = Pin<Box<dyn Future<Output = Result<u32>> + Send>>;

/// Takes what the server pushes. Runs in the connection's task, and nothing here blocks.
///
/// Where replicas must have a grant, one that a bell tells of counts only when that is confirmed; if it is not, the
/// claim's next renewal says why.
pub(super) fn hear(push: &PushInfo, board: &Bells, confirm: Option<impl FnOnce(Name, Bell) -> Confirmed>) {
    if push.kind != PushKind::Message {
        return;
    }
    let [_, Value::BulkString(payload)] = push.data.as_slice() else { return };
    let Some((name, bell)) = decode(payload) else {
        return tracing::debug!("a message on our channel is no bell");
    };
    match confirm {
        Some(confirm) if bell.news == News::In => {
            let (confirmed, board) = (confirm(name.clone(), bell.clone()), board.clone());
            tokio::spawn(async move {
                match confirmed.await {
                    Ok(replicas) => {
                        board.acknowledged(bell.id, replicas);
                        board.ring(&name, &bell);
                    }
                    Err(error) => tracing::debug!(%error, "a bell is not confirmed"),
                }
            });
        }
        _ => board.ring(&name, &bell),
    }
}

/// `ticket id news name`. Anyone with the right to publish may send anything.
fn decode(payload: &[u8]) -> Option<(Name, Bell)> {
    let mut parts = std::str::from_utf8(payload).ok()?.splitn(4, ' ');
    let ticket = Ticket::new(parts.next()?.parse().ok()?);
    let id = ClaimId::from_u128(u128::from_str_radix(parts.next()?, 16).ok()?);
    let news = match parts.next()? {
        "in" => News::In,
        "out" => News::Out,
        _ => return None,
    };
    Some((Name::new(parts.next()?).ok()?, Bell { id, ticket, news }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bells_are_understood() {
        let (name, bell) = decode("17 00000000000000000000000000000abc in a b\n{ü}".as_bytes()).unwrap();
        assert_eq!(name.as_str(), "a b\n{ü}");
        assert_eq!((bell.ticket.get(), bell.id.as_u128(), bell.news), (17, 0xabc, News::In));
        assert_eq!(decode(b"17 abc out x").unwrap().1.news, News::Out);
    }

    proptest! {
        #[test]
        fn garbage_is_ignored(text in "[0-9a-z ]{0,40}", bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            decode(text.as_bytes());
            decode(&bytes);
        }
    }

    #[test]
    fn broken_bells_ring_for_nobody_else() {
        let examples: [&[u8]; 3] = [
            b"17 00000000000000000000000000000abc in a b",
            b"18446744073709551615 ffffffffffffffffffffffffffffffff out x",
            "1 0 in ü".as_bytes(),
        ];
        crate::hostile::bytes(&examples, |payload| {
            let Some((name, bell)) = decode(payload) else { return };
            let news = if bell.news == News::In { "in" } else { "out" };
            let said = format!("{} {:032x} {news} {name}", bell.ticket, bell.id.as_u128());
            assert_eq!(decode(said.as_bytes()), Some((name, bell)));
        });
    }
}
