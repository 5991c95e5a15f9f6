//! Getting a lock: join, wait for the bell, and leave nothing behind however it ends.

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use super::bells::NoRoom;
use super::client::{Client, Departing, PAUSES};
use super::grip::Grip;
use super::keeper::{self, BELL_IS_DUE};
use super::spot::Spot;
use super::validity::{Phase, valid_until};
use crate::error::{Error, ErrorKind, LossReason, Result};
use crate::line::{Claim, ClaimId, Mode, Primitive, Standing, Who};
use crate::name::Name;
use crate::time::Time;

/// How long an acquirer is ready to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Not at all.
    Try,
    /// Until then.
    Until(Time),
    /// For as long as it takes.
    Forever,
}

impl Patience {
    pub(crate) fn is_over(self, now: Time) -> bool {
        matches!(self, Patience::Until(end) if now >= end)
    }

    fn end(self) -> Option<Time> {
        match self {
            Patience::Until(end) => Some(end),
            Patience::Try | Patience::Forever => None,
        }
    }
}

/// What is asked for: one lock, one mode, and how to hold it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) name: Name,
    pub(crate) mode: Mode,
    pub(crate) lease: Duration,
    /// A fixed lease for the hold, which begins when the lock is got.
    pub(crate) fixed: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) who: Arc<Who>,
    pub(crate) identity: Option<Arc<str>>,
    pub(crate) primitive: Primitive,
}

/// One claim on its way in. If it is dropped before it became a grip, it leaves in the background.
struct Attempt {
    client: Arc<Client>,
    spot: Arc<Spot>,
    /// Until its join is answered. A shutdown waits for it: what it sends meanwhile may come to the engine before the join.
    joining: Option<Departing>,
    waited: bool,
    granted: bool,
}

/// How an attempt ended, when it did not fail.
enum Ending {
    In,
    Busy,
    /// The place was lost while waiting: join anew, with a new id.
    Again,
}

/// Gets a lock, or `None` if patience ended first.
///
/// Dropping the future at any point leaves in the background whatever had been sent.
pub(crate) async fn acquire(
    client: &Arc<Client>,
    request: &Request,
    patience: Patience,
) -> Result<Option<Grip>> {
    let span = tracing::debug_span!("lockline.acquire", lock = %request.name, mode = request.mode.word());
    get(client, request, patience).instrument(span).await
}

async fn get(client: &Arc<Client>, request: &Request, patience: Patience) -> Result<Option<Grip>> {
    let began = client.now();
    loop {
        client.check_open("lock").map_err(|e| e.about(&request.name))?;
        let mut attempt = Attempt::new(client, request)?;
        match attempt.stand_in_line(patience).await? {
            Ending::Busy => return Ok(None),
            Ending::Again => continue,
            Ending::In => {}
        }
        // Whatever the join's answer told of the engine is known now.
        client.check_promises().map_err(|e| e.about(&request.name))?;
        if attempt.begin_hold(request).await? {
            return Ok(Some(attempt.into_grip(began)));
        }
    }
}

impl Attempt {
    fn new(client: &Arc<Client>, request: &Request) -> Result<Attempt> {
        let claim = Claim {
            name: request.name.clone(),
            id: ClaimId::random(),
            mode: request.mode,
            lease: request.lease,
            who: request.who.clone(),
            identity: request.identity.clone(),
            primitive: request.primitive,
        };
        let spot = Arc::new(Spot::new(claim, client.meters.clone()));
        // Before it hangs there: a shutdown that finds it waits for it.
        let joining = Some(client.departures.one_more());
        client.board.hang(&spot, client.settings.most_claims).map_err(|no_room| {
            let error = match no_room {
                NoRoom::Closed => Error::new(ErrorKind::Closed, "lock", "the client was shut down"),
                NoRoom::Full(claims) => Error::new(
                    ErrorKind::Limit,
                    "lock",
                    format!("this client has {claims} claims already, its limit"),
                ),
            };
            error.about(&request.name)
        })?;
        Ok(Attempt { client: client.clone(), spot, joining, waited: false, granted: false })
    }

    async fn stand_in_line(&mut self, patience: Patience) -> Result<Ending> {
        match self.join(patience).await? {
            None => return Ok(Ending::Busy),
            Some((Standing::Waiting { .. }, _)) => self.note_waiting(),
            // In at once, as most are: nothing to be told of.
            Some((_, Phase::In)) => return Ok(Ending::In),
            Some(_) => {}
        }
        loop {
            let changed = self.spot.changed();
            let now = self.client.now();
            match self.spot.look(now) {
                Phase::In => return Ok(Ending::In),
                Phase::Lost(LossReason::Forgotten) if !self.is_evicted_after_all().await => {
                    return Ok(Ending::Again);
                }
                Phase::Lost(LossReason::Evicted | LossReason::Forgotten) => {
                    return Err(self.error(ErrorKind::Evicted, "it was evicted while it waited"));
                }
                Phase::Lost(LossReason::Weakened) => {
                    self.client.check_promises().map_err(|e| e.about(&self.spot.claim.name))?;
                    return Ok(Ending::Again);
                }
                Phase::Lost(LossReason::Shutdown) => {
                    return Err(self.error(ErrorKind::Closed, "the client was shut down"));
                }
                Phase::Lost(_) => return Ok(Ending::Again),
                Phase::Joining | Phase::Waiting if patience.is_over(now) => {
                    // Whether it would be free now nobody knows while the engine does not answer.
                    return self.spot.trouble().or_else(|| self.shut()).map_or(Ok(Ending::Busy), Err);
                }
                Phase::Joining | Phase::Waiting => {}
            }
            let until = self.spot.valid_until();
            let until = patience.end().map_or(until, |end| end.min(until));
            tokio::select! {
                biased;
                () = changed => {}
                () = self.client.clock.sleep_until(until) => {}
            }
        }
    }

    /// The engine does not know the claim any more: waits a moment for the bell that says that somebody evicted it.
    async fn is_evicted_after_all(&self) -> bool {
        let changed = self.spot.changed();
        let now = self.client.now();
        if self.spot.look(now) == Phase::Lost(LossReason::Forgotten) {
            tokio::select! {
                biased;
                () = changed => {}
                () = self.client.clock.sleep_until(now + BELL_IS_DUE) => {}
            }
        }
        self.spot.look(self.client.now()) == Phase::Lost(LossReason::Evicted)
    }

    /// Sends the join until it is answered: an unknown outcome is closed by asking again with the same id. Gives up
    /// after a whole lease without an answer. `None`: would have had to wait, and may not.
    async fn join(&mut self, patience: Patience) -> Result<Option<(Standing, Phase)>> {
        let wait = !matches!(patience, Patience::Try);
        let lease = self.spot.claim.lease;
        let mut sent = self.client.now();
        let give_up = sent + lease;
        let mut pauses = PAUSES;
        loop {
            let joined =
                self.client.call("join", lease, self.client.driver.join(&self.spot.claim, wait)).await;
            let now = self.client.now();
            let error = match joined {
                Ok(Standing::Out) if !wait => {
                    // The engine says that nothing of it stands there, so there is nothing to leave.
                    self.client.board.take_off(self.spot.claim.id);
                    self.joining = None;
                    return self.shut().map_or(Ok(None), Err);
                }
                Ok(standing) => {
                    let phase = self.spot.answer(sent, now, lease, standing);
                    if phase != Phase::Lost(LossReason::Shutdown) {
                        // Whoever shuts down from now on has it leave after its join.
                        self.joining = None;
                    }
                    keeper::schedule(&self.client, &self.spot, phase, standing);
                    return Ok(Some((standing, phase)));
                }
                Err(error) => error.about(&self.spot.claim.name),
            };
            let pause = pauses.next();
            let retry_at = now + pause;
            if !error.kind().is_transient() || error.kind() == ErrorKind::Full || retry_at >= give_up {
                return Err(error);
            }
            // An engine that cannot be asked has not said that the lock is taken.
            if patience.is_over(retry_at) {
                return Err(error);
            }
            if let Phase::Lost(LossReason::Shutdown) = self.spot.look(now) {
                return Err(self.error(ErrorKind::Closed, "the client was shut down"));
            }
            tokio::time::sleep(pause).await;
            sent = self.client.now();
        }
    }

    /// What remains to be done once the claim is in. `false`: it was lost meanwhile.
    async fn begin_hold(&self, request: &Request) -> Result<bool> {
        if request.max_hold.is_none() && request.fixed.is_none() {
            // Nothing has happened since it was looked at.
            return Ok(true);
        }
        let granted = self.client.now();
        if let Some(cap) = request.max_hold.filter(|_| !mutant!(CapIgnored)) {
            self.spot.ends_at(granted, granted + cap, LossReason::MaxHold);
        }
        if let Some(fixed) = request.fixed.filter(|_| !mutant!(FixedIgnored)) {
            self.fix(fixed).await?;
        }
        // Now the keeper must look when the hold ends, which may be before its next renewal.
        keeper::keep(&self.client, &self.spot);
        // A cap so short that it has passed already ends the hold, not the asking: joining anew would go on for ever.
        let phase = self.spot.look(self.client.now());
        Ok(matches!(phase, Phase::In | Phase::Lost(LossReason::MaxHold)) || mutant!(ReturnsWhenLost))
    }

    /// The final renewal of a fixed lease. From its *first* sending on the engine may have set the deadline, so that is
    /// what validity counts from, however often it has to be sent.
    async fn fix(&self, lease: Duration) -> Result<()> {
        let place = crate::line::Place { lease, last: true, ..self.spot.place() };
        let mut first_sent = self.client.now();
        self.spot.stop_renewing();
        if !mutant!(FixedFromLastSending) {
            self.spot.ends_at(first_sent, valid_until(first_sent, lease), LossReason::Expired);
        }
        let mut pauses = PAUSES;
        loop {
            if mutant!(FixedFromLastSending) {
                first_sent = self.client.now();
            }
            let shortest = lease.min(self.spot.claim.lease);
            let answered = self
                .client
                .call("renew", shortest, self.client.driver.renew(std::slice::from_ref(&place)))
                .await;
            let now = self.client.now();
            match answered {
                // Asked for one place alone an engine fails instead; if it does not, asking again is right, too.
                Ok(standings) if standings.first() == Some(&Standing::Unsure) => {
                    if self.spot.look(now) != Phase::In {
                        return Ok(());
                    }
                }
                Ok(standings) => {
                    if let Some(standing) = standings.first() {
                        self.spot.answer(first_sent, now, lease, *standing);
                    }
                    return Ok(());
                }
                Err(error) if !error.kind().is_transient() => return Err(error.about(&self.spot.claim.name)),
                Err(error) if self.spot.look(now) != Phase::In => {
                    return Err(error.about(&self.spot.claim.name));
                }
                Err(_) => {}
            }
            tokio::time::sleep(pauses.next()).await;
        }
    }

    /// Nobody gets the lock yet, whether it is free or not: that is not what *busy* means.
    fn shut(&self) -> Option<Error> {
        let name = &self.spot.claim.name;
        let shut = self.client.driver.shut(Some(name))?;
        self.client.meters.shut.increment(1);
        let error = Error::new(ErrorKind::Unavailable, "lock", shut.about(self.client.driver.info().driver))
            .hint("ask again then, or wait: whoever waits keeps its place in line")
            .again_after(shut.opens_in);
        Some(self.client.explain(error.about(name)))
    }

    fn note_waiting(&mut self) {
        self.waited = true;
        if let Some(shut) = self.client.driver.shut(Some(&self.spot.claim.name)) {
            self.client.meters.shut.increment(1);
            tracing::warn!(lock = %self.spot.claim.name, opens_in = ?shut.opens_in, "waiting: {shut}");
        }
        self.client.meters.waiters.increment(1.0);
    }

    fn error(&self, kind: ErrorKind, message: &'static str) -> Error {
        self.client.explain(Error::new(kind, "lock", message).about(&self.spot.claim.name))
    }

    fn into_grip(mut self, began: Time) -> Grip {
        let now = self.client.now();
        self.client.meters.wait.record(now.since(began));
        if self.waited {
            self.client.meters.handoffs.increment(1);
        }
        tracing::debug!(lock = %self.spot.claim.name, ticket = ?self.spot.ticket(), waited = ?now.since(began), "granted");
        self.granted = true;
        Grip::new(self.client.clone(), self.spot.clone(), now)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.waited {
            self.client.meters.waiters.decrement(1.0);
        }
        if !self.granted && !mutant!(DroppedJoinStays) {
            self.client.depart(&self.spot);
        }
        // It was taken off the board, and its leave was sent, before its join was answered.
        let overtaken =
            self.joining.is_some() && self.spot.look(self.client.now()) == Phase::Lost(LossReason::Shutdown);
        if overtaken && !self.client.is_forked() {
            self.client.leave_later(self.spot.place());
        }
    }
}
