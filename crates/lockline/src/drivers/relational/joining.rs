//! Joins that may have something left to send. A join that tries the short way first sends twice; a leave that came between the two
//! would be answered, and the claim would stand in line after it, for a whole lease and for nobody.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::line::ClaimId;
use crate::sync::locked;

type UnderWay = HashMap<ClaimId, watch::Receiver<Option<Infallible>>>;

#[derive(Debug, Default)]
pub(in crate::drivers) struct Joining(Arc<Mutex<UnderWay>>);

/// A join under way; it ends when this is dropped.
#[derive(Debug)]
pub(in crate::drivers) struct Begun {
    joining: Arc<Mutex<UnderWay>>,
    id: ClaimId,
    end: watch::Sender<Option<Infallible>>,
}

impl Joining {
    pub(in crate::drivers) fn begin(&self, id: ClaimId) -> Begun {
        let end = watch::Sender::new(None);
        locked(&self.0).insert(id, end.subscribe());
        Begun { joining: self.0.clone(), id, end }
    }

    /// Until no join of this claim has anything left to send.
    pub(in crate::drivers) async fn ended(&self, id: ClaimId) {
        loop {
            let Some(mut end) = locked(&self.0).get(&id).cloned() else { return };
            // Nothing is ever sent: it ends by being dropped.
            let _ = end.changed().await;
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut joining = locked(&self.joining);
        // The same claim may have been asked for again.
        if joining.get(&self.id).is_some_and(|end| end.same_channel(&self.end.subscribe())) {
            joining.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_leave_waits_for_its_join_and_for_no_other() {
        let joining = Joining::default();
        let (one, two) = (ClaimId::random(), ClaimId::random());
        let first = joining.begin(one);
        joining.ended(two).await;
        let again = joining.begin(one);
        drop(first);
        let waits = tokio::time::timeout(Duration::from_secs(1), joining.ended(one)).await;
        assert!(waits.is_err(), "the second try is still under way");
        drop(again);
        joining.ended(one).await;
        assert!(locked(&joining.0).is_empty());
    }
}
