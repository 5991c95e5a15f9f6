//! A real fork: what the child has of its parent's locks is inert.

use crate::peer::{Answer, Command};
use crate::setup::Setup;

/// Algorithms §3: "fork: guards in the child are inert", and the parent's lock is none the worse.
pub async fn guards_in_a_fork_are_inert(setup: &Setup) {
    let mut peer = setup.peer("parent").await;
    peer.lock("slot", "m").await;
    let said = match peer.send(Command::Fork { slot: "slot".to_owned() }).await.answer().await {
        Answer::Child { said } => said,
        other => panic!("{other:?}"),
    };
    let expected = [
        "valid false",
        "reason forked",
        "remaining 0ns",
        "try_lock Closed",
        "view Closed",
        "release Lost",
        "end",
    ];
    assert_eq!(said, expected);
    assert_eq!(peer.look("slot").await, Answer::Valid, "the parent still holds it");
    let busy = peer
        .send(Command::Lock {
            slot: "again".into(),
            name: "m".into(),
            wait: Some(std::time::Duration::ZERO),
            identity: None,
        })
        .await;
    assert_eq!(busy.answer().await, Answer::Busy, "the child's release released nothing");
    assert_eq!(peer.release("slot").await, Answer::Done);
    peer.lock("slot", "m").await;
    assert_eq!(peer.release("slot").await, Answer::Done, "the client goes on");
}

/// The same for the blocking API, whose own thread does not exist in the child.
pub async fn blocking_guards_in_a_fork_are_inert(setup: &Setup) {
    let mut peer = setup.peer("parent").await;
    let said = match peer.send(Command::ForkBlocking { name: "m".to_owned() }).await.answer().await {
        Answer::Child { said } => said,
        other => panic!("{other:?}"),
    };
    assert_eq!(said, ["check forked", "try_lock Closed", "dropped guard", "end"]);
}
