//! A lock that several of this process want is passed on from one to the next, and whoever had it mostly wants it again: a leave and
//! a join to the same line, which as one call take the server little more than either of them alone. So a join waits for a
//! moment for a leave to go along with, while one of ours has the lock: it would have to wait for that leave anyway.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::line::{Claim, ClaimId, Standing};
use crate::sync::locked;

/// How long a join waits for a leave. Whoever holds a lock for longer than this has time for both of them.
const MOMENT: Duration = Duration::from_millis(1);

/// A join that waits to be taken along. Dropped without an answer, it goes alone.
#[derive(Debug)]
pub(super) struct Partner {
    pub(super) claim: Claim,
    answer: oneshot::Sender<Standing>,
}

impl Partner {
    /// Whoever asked for it has gone, and its leave is on its way.
    pub(super) fn is_gone(&self) -> bool {
        self.answer.is_closed()
    }

    /// It was taken along, and this is where it stands.
    pub(super) fn joined(self, standing: Standing) {
        let _ = self.answer.send(standing);
    }
}

/// The lines in which a claim of this process is in, as far as it is known, and the joins that wait for it to leave.
#[derive(Debug, Default)]
pub(super) struct Partners(Mutex<HashMap<u128, VecDeque<Partner>>>);

impl Partners {
    /// One of ours is in.
    pub(super) fn got_in(&self, line: u128) {
        locked(&self.0).entry(line).or_default();
    }

    /// None of ours is in any more: nobody need wait for it.
    pub(super) fn got_out(&self, line: u128) {
        locked(&self.0).remove(&line);
    }

    /// Whether a join to this line would wait for a leave.
    #[cfg(test)]
    pub(super) fn has(&self, line: u128) -> bool {
        locked(&self.0).contains_key(&line)
    }

    /// The next join that a leave may take along.
    pub(super) fn take(&self, line: u128) -> Option<Partner> {
        let mut lines = locked(&self.0);
        let waiting = lines.get_mut(&line)?;
        std::iter::from_fn(|| waiting.pop_front()).find(|partner| !partner.is_gone())
    }

    /// Waits to be taken along; where it then stands, or `None` if it is to go alone.
    ///
    /// # Cancel safety
    /// Who goes away is not taken along any more; if that has happened already, the claim may stand in line.
    pub(super) async fn go_along(&self, line: u128, claim: &Claim) -> Option<Standing> {
        let (sender, mut answer) = oneshot::channel();
        {
            let mut lines = locked(&self.0);
            lines.get_mut(&line)?.push_back(Partner { claim: claim.clone(), answer: sender });
        }
        match tokio::time::timeout(MOMENT, &mut answer).await {
            Ok(answered) => answered.ok(),
            Err(_) if self.withdraw(line, claim.id) => None,
            // A leave has taken it along.
            Err(_) => answer.await.ok(),
        }
    }

    /// Whether it still waited.
    fn withdraw(&self, line: u128, id: ClaimId) -> bool {
        let mut lines = locked(&self.0);
        let Some(waiting) = lines.get_mut(&line) else { return false };
        let before = waiting.len();
        waiting.retain(|partner| partner.claim.id != id);
        waiting.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::testing::claim;
    use crate::line::{Mode, Ticket};

    const LINE: u128 = 7;

    fn join() -> Claim {
        claim("passed on", Mode::Exclusive, Duration::from_secs(9))
    }

    #[tokio::test(start_paused = true)]
    async fn a_join_goes_along_with_a_leave_or_alone() {
        let partners = Partners::default();
        assert_eq!(partners.go_along(LINE, &join()).await, None, "none of ours is in");
        partners.got_in(LINE);
        assert_eq!(partners.go_along(LINE, &join()).await, None, "nobody leaves");
        assert!(partners.take(LINE).is_none(), "it has gone alone");

        let one = join();
        let stands = Standing::In { ticket: Ticket::new(5) };
        let leave = async { partners.take(LINE).expect("it waits").joined(stands) };
        let (answer, ()) = tokio::join!(partners.go_along(LINE, &one), leave);
        assert_eq!(answer, Some(stands));
    }

    #[tokio::test(start_paused = true)]
    async fn a_join_that_is_taken_and_not_answered_goes_alone() {
        let partners = Partners::default();
        partners.got_in(LINE);
        let one = join();
        let fails = async {
            let partner = partners.take(LINE);
            tokio::time::sleep(2 * MOMENT).await;
            drop(partner);
        };
        let (answer, ()) = tokio::join!(partners.go_along(LINE, &one), fails);
        assert_eq!(answer, None);
        let is_over = async { partners.got_out(LINE) };
        let start = tokio::time::Instant::now();
        let (answer, ()) = tokio::join!(partners.go_along(LINE, &one), is_over);
        assert_eq!((answer, start.elapsed()), (None, Duration::ZERO), "at once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_join_that_went_away_is_not_taken() {
        let partners = Partners::default();
        partners.got_in(LINE);
        let (gone, stays) = (join(), join());
        tokio::select! {
            biased;
            _ = partners.go_along(LINE, &gone) => panic!("nobody left"),
            () = std::future::ready(()) => {}
        }
        let leave = async { partners.take(LINE).expect("it waits").claim.id };
        let (_, taken) = tokio::join!(partners.go_along(LINE, &stays), leave);
        assert_eq!(taken, stays.id);
    }
}
