//! Messages from the server: bells for claims of this process, on the connection that carries the commands.

use redis::{PushInfo, PushKind, Value};

use crate::driver::Bells;
use crate::line::{Bell, ClaimId, News, Ticket};
use crate::name::Name;

/// Takes what the server pushes. Runs in the connection's task, and nothing here blocks.
pub(super) fn hear(push: &PushInfo, board: &Bells) {
    match push.kind {
        PushKind::Message => {
            if let [_, Value::BulkString(payload)] = push.data.as_slice() {
                match decode(payload) {
                    Some((name, bell)) => board.ring(&name, &bell),
                    None => tracing::debug!("a message on our channel is no bell"),
                }
            }
        }
        // The first time nobody waits yet. Every other time the connection was lost, and bells with it: from now on
        // they come again, so whoever looks now misses none.
        PushKind::Subscribe => board.look_at_all(),
        PushKind::Disconnection => tracing::debug!("the connection to the server was lost"),
        _ => {}
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
}
