//! Verbs that may change one claim take effect one after the other, in the order in which they were called.
//!
//! Where a verb is more than one request, the next one must not slip in between. A leave that came between the two of a join would
//! be answered, and the claim would stand in line after it, for a whole lease and for nobody.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::line::ClaimId;
use crate::sync::locked;

/// The numbers of the turns at each claim that are not over; no entry where there is none.
type Queues = Mutex<HashMap<ClaimId, watch::Sender<BTreeSet<u64>>>>;

#[derive(Debug, Default)]
pub(super) struct Turns(Arc<Queues>);

/// A verb's turn at a claim. It is over when this is dropped, also if it never came: nobody then waits for it, but still for those
/// before it.
#[derive(Debug)]
pub(super) struct Turn {
    queues: Arc<Queues>,
    id: ClaimId,
    number: u64,
    queue: watch::Receiver<BTreeSet<u64>>,
}

impl Turns {
    /// The next turn at a claim.
    pub(super) fn next(&self, id: ClaimId) -> Turn {
        let mut queues = locked(&self.0);
        let queue = queues.entry(id).or_default();
        let number = queue.borrow().last().map_or(0, |last| last + 1);
        // Nobody waits for one more.
        queue.send_if_modified(|numbers| {
            numbers.insert(number);
            false
        });
        Turn { queues: self.0.clone(), id, number, queue: queue.subscribe() }
    }

    /// Until those turns at a claim are over that there are now, if there are any.
    #[cfg(feature = "redis")]
    pub(super) async fn over(&self, id: ClaimId) {
        let is_any = locked(&self.0).contains_key(&id);
        if is_any {
            self.next(id).comes().await;
        }
    }
}

impl Turn {
    /// Until those before are over.
    pub(super) async fn comes(&mut self) {
        // It cannot fail: the queue is there for as long as this is in it.
        let _ = self.queue.wait_for(|numbers| numbers.first() == Some(&self.number)).await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queues = locked(&self.queues);
        let Some(queue) = queues.get(&self.id) else { return };
        queue.send_if_modified(|numbers| numbers.remove(&self.number));
        if queue.borrow().is_empty() {
            queues.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_turn_comes_after_those_before_it_and_waits_for_no_other_claim() {
        let turns = Turns::default();
        let (one, two) = (ClaimId::random(), ClaimId::random());
        let first = turns.next(one);
        turns.next(two).comes().await;
        let (mut second, mut third) = (turns.next(one), turns.next(one));
        let waits =
            async |turn: &mut Turn| tokio::time::timeout(Duration::from_secs(1), turn.comes()).await.is_err();
        assert!(waits(&mut second).await, "the first is not over");
        drop(first);
        assert!(!waits(&mut second).await);
        assert!(waits(&mut third).await, "the second is not over");
        let mut fourth = turns.next(one);
        drop(third);
        assert!(waits(&mut fourth).await, "the third is gone, the second is not over");
        drop(second);
        assert!(!waits(&mut fourth).await);
        drop(fourth);
        assert!(locked(&turns.0).is_empty());
    }
}
