//! The keeper: one task per client that renews all its claims in batches, and notices the ones that ran out.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::bells::Board;
use super::client::Client;
use super::spot::Spot;
use super::validity::Phase;
use crate::error::LossReason;
use crate::line::{Place, Standing};
use crate::time::{Clock, Time};

/// How many places go into one call: large enough that ten thousand locks cost a few dozen calls, small enough that a
/// call is short for the engine and nobody waits behind it.
const BATCH: usize = 128;

/// How long a bell may be on its way. A claim that the engine does not know any more was perhaps evicted a moment ago; who
/// takes that for forgetfulness stands in line again, and cannot be evicted.
pub(crate) const BELL_IS_DUE: Duration = Duration::from_millis(100);

/// Keeps the claims on the board alive for as long as their client lives.
pub(crate) async fn run(client: Weak<Client>, board: Arc<Board>, clock: Clock) {
    loop {
        let now = clock.now();
        {
            let Some(client) = client.upgrade() else { return };
            board.take_orphans().into_iter().for_each(|place| client.leave_later(place));
            start_round(&client, now);
        }
        let sleep_until = board.keeper_may_sleep(now);
        tokio::select! {
            biased;
            () = clock.sleep_until(sleep_until) => {}
            () = board.keeper.notified() => {}
        }
    }
}

/// Renews what is due in a task of its own, so that a slow engine does not keep the keeper from noticing losses, nor a
/// round of long leases a short one from being renewed.
fn start_round(client: &Arc<Client>, now: Time) {
    let mut due = Vec::new();
    for (spot, late_by) in client.board.take_due(now) {
        match spot.look(now) {
            Phase::Lost(_) => tidy_up(client, &spot),
            // No answer has named a ticket yet: the acquirer itself is asking.
            Phase::Joining => {}
            Phase::In if !spot.renews() => keep(client, &spot),
            Phase::Waiting | Phase::In => {
                client.meters.renewal_took_place(late_by);
                due.push(spot);
            }
        }
    }
    if !due.is_empty() {
        let renewing = client.clone();
        client.spawn(async move {
            due.sort_by_key(|spot| spot.valid_until());
            for batch in due.chunks(BATCH) {
                renew(&renewing, batch).await;
            }
        });
    }
}

async fn renew(client: &Arc<Client>, batch: &[Arc<Spot>]) {
    let places: Vec<Place> = batch.iter().map(|spot| spot.place()).collect();
    let shortest = places.iter().map(|place| place.lease).min().unwrap_or_default();
    let sent = client.now();
    let answers = client.call("renew", shortest, client.driver.renew(&places)).await;
    let now = client.now();
    match answers {
        Ok(standings) => {
            debug_assert_eq!(
                standings.len(),
                batch.len(),
                "a driver answers for every place it was asked for"
            );
            let mut standings = standings;
            if mutant!(AnswersMixedUp) {
                standings.reverse();
            }
            let kept = client.promises_are_kept();
            for (spot, standing) in batch.iter().zip(standings) {
                if !kept {
                    spot.lose(now, LossReason::Weakened);
                }
                let phase = spot.answer(sent, now, spot.claim.lease, standing);
                schedule(client, spot, phase, standing);
            }
        }
        Err(error) => {
            client.meters.renewal_failures.increment(1);
            tracing::debug!(%error, places = batch.len(), "could not renew");
            for spot in batch {
                let phase = spot.unreachable(now, &error);
                if mutant!(ErrorEndsRenewal) {
                    continue;
                }
                schedule(client, spot, phase, Standing::Unsure);
            }
        }
    }
}

/// Has the keeper look at a claim again, as its standing asks for.
pub(crate) fn schedule(client: &Arc<Client>, spot: &Spot, phase: Phase, standing: Standing) {
    match (phase, standing) {
        // Its bell must still find it.
        (Phase::Lost(LossReason::Forgotten), Standing::Lapsed) => {
            client.board.look_at(spot, client.now() + BELL_IS_DUE);
        }
        (Phase::Lost(_), _) => tidy_up(client, spot),
        (_, Standing::Unsure) => client.board.look_at(spot, client.now() + retry_in(spot.claim.lease)),
        // A bell rang while the answer was on its way: a holder renews on its lease, not on a waiter's impatience.
        (Phase::Waiting, Standing::Waiting { look_again, ahead, .. }) => {
            if !mutant!(NeverLooksAgain) {
                client.board.look_in(spot, patience_in_line(spot.claim.lease, look_again, ahead));
            }
        }
        _ => keep(client, spot),
    }
}

/// Has the keeper renew a holder at a third of its lease; or, if its lease is fixed, only notice its end.
pub(crate) fn keep(client: &Client, spot: &Spot) {
    if spot.renews() {
        let often = if mutant!(KeeperTooLate) { 1 } else { 3 };
        client.board.look_in(spot, spot.claim.lease / often);
    } else {
        client.board.look_at(spot, spot.valid_until());
    }
}

/// So many places from the front a waiter is so far back that it need not look as often as the engine says.
const FAR: u32 = 64;

/// When a waiter looks again. The engine says so as if it stood next in line, because a bell may be lost; the further back
/// it stands, the longer it can wait for that, at most until it must renew. Whoever stands before it looks, and the engine
/// rings those whom that lets in. If all looked every second, a line of thousands would keep its engine from handing over.
/// A look that is wanted sooner than that (somebody before it is about to lapse) takes place.
fn patience_in_line(lease: Duration, look_again: Duration, ahead: u32) -> Duration {
    let usual = Duration::from_secs(1).min(lease / 3);
    if look_again < usual { look_again } else { (look_again * (1 + ahead / FAR)).min(lease / 3) }
}

fn retry_in(lease: Duration) -> Duration {
    (lease / 24).clamp(Duration::from_millis(5), Duration::from_secs(1))
}

/// After a loss: nothing of the claim stays, here or in the engine. Whoever waits on it has been told by the look.
fn tidy_up(client: &Arc<Client>, spot: &Spot) {
    client.depart(spot);
}
