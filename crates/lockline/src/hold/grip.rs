//! A lock that is held: what a guard holds on to, and how it lets go.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use super::client::Client;
use super::spot::Spot;
use super::validity::Phase;
use crate::error::{Error, LossReason, Lost, Result};
use crate::line::{Mode, Ticket};
use crate::name::Name;
use crate::time::Time;

/// One held claim. The last reference to it lets go of it: that is all there is to counting reentrant holds.
pub(crate) struct Grip {
    client: Arc<Client>,
    spot: Arc<Spot>,
    since: Time,
    let_go: Option<Box<dyn FnOnce() + Send + Sync>>,
    /// The engine knows that it was let go.
    left: bool,
}

impl Grip {
    pub(crate) fn new(client: Arc<Client>, spot: Arc<Spot>, since: Time) -> Grip {
        client.meters.held.increment(1.0);
        Grip { client, spot, since, let_go: None, left: false }
    }

    /// Has something called when the lock is let go.
    pub(crate) fn when_let_go(&mut self, call: Box<dyn FnOnce() + Send + Sync>) {
        self.let_go = Some(call);
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The lock's name as the engine knows it, name space included.
    pub(crate) fn name(&self) -> &Name {
        &self.spot.claim.name
    }

    pub(crate) fn mode(&self) -> Mode {
        self.spot.claim.mode
    }

    /// The token. A claim that is in always has one.
    pub(crate) fn ticket(&self) -> Ticket {
        self.spot.ticket().unwrap_or(Ticket::ZERO)
    }

    pub(crate) fn replicas(&self) -> Option<u32> {
        self.spot.replicas()
    }

    /// Why it is lost, if it is, looked at now and without any network.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        loss_of(&self.client, &self.spot)
    }

    pub(crate) fn remaining(&self) -> std::time::Duration {
        match self.loss() {
            Some(_) => std::time::Duration::ZERO,
            None => self.spot.valid_until().since(self.client.now()),
        }
    }

    /// Waits until the lock is lost. Needs no engine, no keeper and no other task to be right.
    pub(crate) async fn lost(&self) -> Lost {
        loop {
            let changed = self.spot.changed();
            if let Some(reason) = self.loss() {
                return Lost { name: self.name().clone(), reason };
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = self.client.clock.sleep_until(self.spot.valid_until()) => {}
            }
        }
    }

    /// Lets go of one reference; the last one waits for the engine to know. If the future is dropped, it goes on in the
    /// background.
    pub(crate) async fn release(grip: Arc<Grip>) -> Result<()> {
        let (client, spot) = (grip.client.clone(), grip.spot.clone());
        // Of guards that are released at the same moment exactly one is the last.
        let last = Arc::into_inner(grip);
        if let Some(reason) = loss_of(&client, &spot) {
            // Dropping `last` leaves in the background whatever may still be there.
            return Err(Error::from(Lost { name: spot.claim.name.clone(), reason }));
        }
        let Some(mut last) = last else { return Ok(()) };
        let place = spot.place();
        // While the leave is under way the claim hangs on the board, so that dropping this future still leaves; but a
        // keeper that looked at it now would renew what is about to go.
        spot.stop_renewing();
        client.leave(&place).await?;
        client.board.take_off(place.id);
        last.left = true;
        Ok(())
    }
}

/// Why a claim is lost, if it is, looked at now and without any network.
fn loss_of(client: &Client, spot: &Spot) -> Option<LossReason> {
    if client.is_forked() {
        return Some(LossReason::Forked);
    }
    match spot.look(client.now()) {
        Phase::Lost(reason) => Some(reason),
        _ => None,
    }
}

impl Drop for Grip {
    fn drop(&mut self) {
        self.client.meters.held.decrement(1.0);
        self.client.meters.hold.record(self.client.now().since(self.since));
        if !self.left && !mutant!(DroppedGuardStays) {
            self.client.depart(&self.spot);
        }
        if let Some(call) = self.let_go.take() {
            call();
        }
    }
}

impl fmt::Debug for Grip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grip").field("spot", &self.spot).finish_non_exhaustive()
    }
}

/// Waits until any of several is lost.
pub(crate) async fn any_lost<'a>(grips: impl Iterator<Item = &'a Arc<Grip>>) -> Lost {
    let mut all: Vec<Pin<Box<dyn Future<Output = Lost> + Send + '_>>> =
        grips.map(|grip| Box::pin(grip.lost()) as Pin<Box<_>>).collect();
    poll_fn(|context| {
        let lost = all.iter_mut().find_map(|one| match one.as_mut().poll(context) {
            Poll::Ready(lost) => Some(lost),
            Poll::Pending => None,
        });
        lost.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
