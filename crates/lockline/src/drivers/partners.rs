//! A lock that several of this process want is passed on from one to the next, and whoever had it mostly wants it again: a leave and
//! a join to the same line, which as one call take the server little more than either of them alone. So a join waits for a
//! moment for a leave to go along with, while one of ours has the lock: it would have to wait for that leave anyway.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;

use super::turns::{Turn, Turns};
use crate::line::{Claim, ClaimId};
use crate::sync::locked;

/// How long a join waits for a leave. Whoever holds a lock for longer than this has time for both of them.
const MOMENT: Duration = Duration::from_millis(1);

/// A join that was taken along. Dropped without an answer, it goes alone.
#[derive(Debug)]
pub(super) struct Partner<A> {
    pub(super) claim: Claim,
    answer: oneshot::Sender<A>,
    /// Whoever asked for it may go away at any time; its leave then waits for this.
    _turn: Turn,
}

impl<A> Partner<A> {
    /// Whoever asked for it has gone, and its leave is on its way.
    #[cfg(feature = "mysql")]
    pub(super) fn is_gone(&self) -> bool {
        self.answer.is_closed()
    }

    /// It has joined, and this is what came of it.
    pub(super) fn joined(self, answer: A) {
        let _ = self.answer.send(answer);
    }
}

/// The joins that wait for one of ours to leave.
type Waiting<A> = VecDeque<(Claim, oneshot::Sender<A>)>;

/// The lines in which a claim of this process is in, as far as it is known.
#[derive(Debug)]
pub(super) struct Partners<A> {
    lines: Mutex<HashMap<u128, Waiting<A>>>,
    /// Of verbs that may change one claim.
    pub(super) turns: Turns,
}

impl<A> Default for Partners<A> {
    fn default() -> Partners<A> {
        Partners { lines: Mutex::default(), turns: Turns::default() }
    }
}

impl<A> Partners<A> {
    /// One of ours is in.
    pub(super) fn got_in(&self, line: u128) {
        locked(&self.lines).entry(line).or_default();
    }

    /// None of ours is in any more: nobody need wait for it.
    pub(super) fn got_out(&self, line: u128) {
        locked(&self.lines).remove(&line);
    }

    fn got_out_unless_awaited(&self, line: u128) {
        let mut lines = locked(&self.lines);
        if lines.get(&line).is_some_and(VecDeque::is_empty) {
            lines.remove(&line);
        }
    }

    /// Whether a join to this line would wait for a leave.
    #[cfg(test)]
    pub(super) fn has(&self, line: u128) -> bool {
        locked(&self.lines).contains_key(&line)
    }

    /// The next join that a leave may take along.
    pub(super) fn take(&self, line: u128) -> Option<Partner<A>> {
        let mut lines = locked(&self.lines);
        let (claim, answer) = lines.get_mut(&line)?.pop_front()?;
        // Before anybody can find that it does not wait any more.
        let turn = self.turns.next(claim.id);
        Some(Partner { claim, answer, _turn: turn })
    }

    /// Waits to be taken along; what came of it, or `None` if it is to go alone.
    ///
    /// # Cancel safety
    /// Who goes away is not taken along any more; if that has happened already, the claim may stand in line, and its leave must
    /// wait for its [`turns`](Self::turns).
    pub(super) async fn go_along(&self, line: u128, claim: &Claim) -> Option<A> {
        let (sender, mut answer) = oneshot::channel();
        locked(&self.lines).get_mut(&line)?.push_back((claim.clone(), sender));
        let waits = Waits { partners: self, line, id: claim.id };
        match tokio::time::timeout(MOMENT, &mut answer).await {
            Ok(answered) => {
                std::mem::forget(waits);
                answered.ok()
            }
            Err(_) if waits.is_over() => {
                // Whoever is in takes its time: the next one need not wait.
                self.got_out_unless_awaited(line);
                None
            }
            // A leave has taken it along.
            Err(_) => answer.await.ok(),
        }
    }
}

/// A join that waits. Dropped, it does not.
struct Waits<'a, A> {
    partners: &'a Partners<A>,
    line: u128,
    id: ClaimId,
}

impl<A> Waits<'_, A> {
    /// Whether nobody has taken it along; and nobody will.
    fn is_over(&self) -> bool {
        let mut lines = locked(&self.partners.lines);
        let Some(waiting) = lines.get_mut(&self.line) else { return false };
        let before = waiting.len();
        waiting.retain(|(claim, _)| claim.id != self.id);
        waiting.len() < before
    }
}

impl<A> Drop for Waits<'_, A> {
    fn drop(&mut self) {
        self.is_over();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::testing::claim;
    use crate::line::{Mode, Standing, Ticket};

    const LINE: u128 = 7;

    fn join() -> Claim {
        claim("passed on", Mode::Exclusive, Duration::from_secs(9))
    }

    #[tokio::test(start_paused = true)]
    async fn a_join_goes_along_with_a_leave_or_alone() {
        let partners = Partners::<Standing>::default();
        assert_eq!(partners.go_along(LINE, &join()).await, None, "none of ours is in");
        partners.got_in(LINE);
        assert_eq!(partners.go_along(LINE, &join()).await, None, "nobody leaves");
        assert!(partners.take(LINE).is_none() && !partners.has(LINE), "it has gone alone, and others will");
        partners.got_in(LINE);

        let one = join();
        let stands = Standing::In { ticket: Ticket::new(5) };
        let leave = async { partners.take(LINE).expect("it waits").joined(stands) };
        let (answer, ()) = tokio::join!(partners.go_along(LINE, &one), leave);
        assert_eq!(answer, Some(stands));
    }

    #[tokio::test(start_paused = true)]
    async fn a_join_that_is_taken_and_not_answered_goes_alone() {
        let partners = Partners::<Standing>::default();
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
        let partners = Partners::<Standing>::default();
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

    #[tokio::test(start_paused = true)]
    async fn the_leave_of_a_join_that_went_away_waits_for_whoever_took_it() {
        let partners = Partners::<Standing>::default();
        partners.got_in(LINE);
        let gone = join();
        let turn_comes = async || partners.turns.next(gone.id).comes().await;
        turn_comes().await;
        let taken = tokio::select! {
            biased;
            _ = partners.go_along(LINE, &gone) => panic!("nobody answered"),
            taken = async { partners.take(LINE).expect("it waits") } => taken,
        };
        let left = turn_comes();
        let done = async {
            tokio::time::sleep(3 * MOMENT).await;
            drop(taken);
        };
        let start = tokio::time::Instant::now();
        tokio::join!(left, done);
        assert_eq!(start.elapsed(), 3 * MOMENT);
        turn_comes().await;
    }
}
