//! One leader among many candidates.

use crate::setup::{Setup, granted, soon, until_empty, until_waiting};

/// §1 `election`: the first candidate leads; when it resigns, the next one does, with a larger token.
pub async fn campaign_lead_resign(setup: &Setup) {
    let (ann, bob) = (setup.client().await, setup.client().await);
    let election = ann.election("scheduler");
    assert!(election.leader().await.unwrap().is_none());
    let term = election.campaign("node-1").await.unwrap();
    assert_eq!(election.leader().await.unwrap().unwrap().who.owner, "node-1");
    assert_eq!(election.leader().await.unwrap().unwrap().ticket.get(), term.fence().token());
    assert!(bob.election("scheduler").try_campaign("node-2").await.unwrap().is_none());
    let candidate = bob.election("scheduler");
    let next = tokio::spawn(async move { candidate.campaign("node-2").await });
    until_waiting(&ann, "scheduler", 1).await;
    let token = term.fence();
    term.release().await.unwrap();
    let next = granted(next).await;
    assert!(next.fence() > token);
    assert_eq!(election.leader().await.unwrap().unwrap().who.owner, "node-2");
    next.release().await.unwrap();
    until_empty(&ann, "when nobody leads").await;
}

/// §1 `election`: an observer sees each change of leader, and an empty chair.
pub async fn observer_sees_changes(setup: &Setup) {
    let (ann, bob) = (setup.client().await, setup.client().await);
    let mut observer = bob.election("scheduler").observe();
    let seen = soon("the present one", observer.next()).await.unwrap();
    assert!(seen.is_none(), "an empty chair");
    let term = ann.election("scheduler").campaign("node-1").await.unwrap();
    let seen = soon("a leader", observer.next()).await.unwrap().unwrap();
    assert_eq!((seen.who.owner.as_str(), seen.ticket.get()), ("node-1", term.fence().token()));
    term.release().await.unwrap();
    assert!(soon("nobody again", observer.next()).await.unwrap().is_none());
    let again = ann.election("scheduler").campaign("node-1").await.unwrap();
    let seen = soon("the same one in a new term", observer.next()).await.unwrap().unwrap();
    assert_eq!(seen.ticket.get(), again.fence().token());
}
