//! The verbs, asked of all nodes at once, and answered as soon as a majority decides.

use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use redis::Value;

use super::super::redis::answers::{number, standing};
use super::super::redis::connection::Connection;
use super::super::redis::error::nonsense;
use super::super::redis::verbs::would_wait_for_itself;
use super::ballots::Ballots;
use super::config::RedlockConfig;
use super::nodes::{Nodes, PEOPLE_WAIT, node_deadline};
use super::round::Round;
use super::tally::{Answer, Tally, Verdict};
use super::view::merge;
use crate::driver::Query;
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, ClaimId, LineView, Mode, Place, Standing, Ticket};
use crate::name::Name;
use crate::sync::locked;
use crate::time::BootClock;

/// How often a claim asks for a place with another ticket in one verb. Each time somebody else was faster at too many
/// nodes; after this core asks again, later.
const ROUNDS: usize = 8;

#[derive(Debug)]
pub(super) struct Quorum {
    pub(super) config: RedlockConfig,
    pub(super) address: Arc<str>,
    pub(super) nodes: Arc<Nodes>,
    pub(super) ballots: Arc<Ballots>,
    pub(super) turns: Turns,
}

impl Quorum {
    pub(super) async fn join(&self, claim: &Claim, wait: bool) -> Result<Standing> {
        if let Mode::Permits { .. } = claim.mode {
            self.ballots.refuse(claim.id);
            return Err(no_permits(&claim.name, &self.address));
        }
        self.config.check_lease("join", claim.lease)?;
        let began = BootClock.now();
        let shared = Arc::new(claim.clone());
        let mut above = None;
        for _ in 0..ROUNDS {
            let Some((ticket, won, mut round)) = self.send_proposal(&shared, wait, above).await else {
                return Ok(Standing::Lapsed);
            };
            let mut tally = Tally::new(self.nodes.len());
            let (mut answers, mut errors) = (Vec::new(), Vec::new());
            let verdict = loop {
                let verdict = if wait { tally.join(won) } else { tally.try_join() };
                if let Some(verdict) = verdict {
                    break verdict;
                }
                match round.next().await {
                    Some((node, Ok(answer))) => {
                        tally.note(node, answer);
                        if let Answer::Stands(standing) = answer {
                            self.ballots.answered(claim.id, ticket, node, began, standing);
                            answers.push((node, standing));
                        }
                    }
                    Some((node, Err(error))) => {
                        tally.note(node, Answer::Silence);
                        errors.push(error);
                    }
                    None => tally.close(),
                }
            };
            match verdict {
                Verdict::Stands(Standing::Out) if !wait => {
                    self.withdraw(claim, round, tally).await;
                    return Ok(Standing::Out);
                }
                Verdict::Stands(standing) => {
                    if let Some(other) = standing.ticket().filter(|named| *named != ticket) {
                        // The place of its identity: what the nodes said counts for that one.
                        self.ballots.stands_on(claim.id, other);
                        for (node, standing) in answers {
                            self.ballots.answered(claim.id, other, node, began, standing);
                        }
                    }
                    let standing = self.ballots.tell(claim.id, began, standing);
                    let (ballots, id) = (self.ballots.clone(), claim.id);
                    round.finish_later(move |node, answer| {
                        if let Ok(Answer::Stands(standing)) = answer {
                            let ticket = standing.ticket().unwrap_or(ticket);
                            ballots.answered_late(id, ticket, node, began, standing);
                        }
                    });
                    return Ok(standing);
                }
                Verdict::Again(largest) => above = Some(largest),
                Verdict::WouldWaitForItself => return Err(would_wait_for_itself(&claim.name, &self.address)),
                Verdict::NoQuorum => return Err(self.nodes.no_quorum("join", errors)),
            }
        }
        let message = format!("others were faster at too many nodes, {ROUNDS} times");
        Err(Error::new(ErrorKind::Unknown, "join", message).at(&self.address))
    }

    /// Asks all nodes for a place, on a larger ticket than `above` if one was refused. `None`: it was told to leave.
    ///
    /// Tickets are sent in their order: of two claims of one client, the later would else be refused for nothing.
    async fn send_proposal(
        &self,
        claim: &Arc<Claim>,
        wait: bool,
        above: Option<Ticket>,
    ) -> Option<(Ticket, bool, Round<Answer>)> {
        poll_fn(|context| {
            let _in_turn = self.turns.of(&claim.name);
            let stands = match above {
                None => self.ballots.stand(&claim.name, claim.id),
                Some(above) => self.ballots.yields(claim.id, above).map(|ticket| (ticket, false)),
            };
            let Some((ticket, won)) = stands else { return Poll::Ready(None) };
            let mut round = self.nodes.ask(node_deadline(claim.lease), |node| {
                let claim = claim.clone();
                Box::pin(async move { propose(&node, &claim, wait, ticket).await })
            });
            round.send(context);
            Poll::Ready(Some((ticket, won, round)))
        })
        .await
    }

    /// A claim that may not wait leaves nothing behind, also at nodes that let it in, or did not say.
    async fn withdraw(&self, claim: &Claim, mut round: Round<Answer>, mut tally: Tally) {
        while tally.is_open() {
            match round.next().await {
                Some((node, answer)) => tally.note(node, answer.unwrap_or(Answer::Silence)),
                None => tally.close(),
            }
        }
        let place =
            Place { name: claim.name.clone(), id: claim.id, ticket: None, lease: claim.lease, last: false };
        if tally.may_stand_somewhere() {
            // What cannot be left ends with its lease.
            let _ = self.leave(&place).await;
        } else {
            let number = self.ballots.depart(&claim.name, claim.id, None);
            self.ballots.forget(claim.id, number);
        }
    }

    pub(super) async fn renew(&self, places: &[Place]) -> Result<Vec<Standing>> {
        let Some(shortest) = places.iter().map(|place| place.lease).min() else { return Ok(Vec::new()) };
        for place in places {
            self.config.check_lease("renew", place.lease)?;
        }
        let began = BootClock.now();
        let all: Arc<[Place]> = places.into();
        let mut round = self.nodes.ask(node_deadline(shortest), |node| {
            let places = all.clone();
            Box::pin(async move { node.renew(&places).await })
        });
        let won: Vec<bool> = places.iter().map(|place| self.ballots.won(place.id, place.ticket)).collect();
        let mut tallies = vec![Tally::new(self.nodes.len()); places.len()];
        let mut errors = Vec::new();
        let verdicts = loop {
            let verdicts = tallies.iter().zip(&won).map(|(tally, won)| tally.renew(*won));
            if let Some(verdicts) = verdicts.collect::<Option<Vec<Verdict>>>() {
                break verdicts;
            }
            match round.next().await {
                Some((node, Ok(standings))) => {
                    for ((tally, place), standing) in tallies.iter_mut().zip(places).zip(standings) {
                        tally.note(node, Answer::Stands(standing));
                        let ticket = place.ticket.unwrap_or_default();
                        self.ballots.answered(place.id, ticket, node, began, standing);
                    }
                }
                Some((node, Err(error))) => {
                    tallies.iter_mut().for_each(|tally| tally.note(node, Answer::Silence));
                    errors.push(error);
                }
                None => tallies.iter_mut().for_each(Tally::close),
            }
        };
        if verdicts.iter().all(|verdict| *verdict == Verdict::NoQuorum) {
            return Err(self.nodes.no_quorum("renew", errors));
        }
        let ballots = self.ballots.clone();
        round.finish_later(move |node, answer| {
            for (place, standing) in all.iter().zip(answer.unwrap_or_default()) {
                ballots.answered_late(place.id, place.ticket.unwrap_or_default(), node, began, standing);
            }
        });
        let told = places.iter().zip(verdicts).map(|(place, verdict)| match verdict {
            Verdict::Stands(standing) => self.ballots.tell(place.id, began, standing),
            // Nothing can be said about this one: core extends nothing, and asks again.
            _ => Standing::Unsure,
        });
        Ok(told.collect())
    }

    /// Leaves at all nodes, also at those that never answered its join.
    pub(super) async fn leave(&self, place: &Place) -> Result<()> {
        if self.ballots.was_refused(place.id) {
            return Ok(());
        }
        let lease = if place.lease.is_zero() { Duration::from_secs(10) } else { place.lease };
        let shared = Arc::new(place.clone());
        let (number, mut round) = poll_fn(|context| {
            // Behind every request of its join, at every node: they are sent in turn.
            let _in_turn = self.turns.of(&place.name);
            let number = self.ballots.depart(&place.name, place.id, place.ticket);
            let mut round = self.nodes.ask(node_deadline(lease), |node| {
                let place = shared.clone();
                Box::pin(async move { node.leave(&place).await })
            });
            round.send(context);
            Poll::Ready((number, round))
        })
        .await;
        let forget = Forget { ballots: self.ballots.clone(), id: place.id, number };
        let (mut left, mut errors) = (0, Vec::new());
        while left < self.nodes.majority() {
            match round.next().await {
                Some((_, Ok(()))) => left += 1,
                Some((_, Err(error))) => errors.push(error),
                None => break,
            }
        }
        // A node has rung all its bells for the claim when it has answered this. Those that are still to answer may ring.
        round.finish_later(move |_, _| {
            let _ = &forget;
        });
        if left >= self.nodes.majority() { Ok(()) } else { Err(self.nodes.no_quorum("leave", errors)) }
    }

    pub(super) async fn view(&self, query: &Query) -> Result<Vec<LineView>> {
        let query = Arc::new(query.clone());
        let round = self.nodes.ask(PEOPLE_WAIT, |node| {
            let query = query.clone();
            Box::pin(async move { node.view(&query).await })
        });
        let views = self.nodes.everybody("view", round).await?;
        Ok(merge(&views, self.nodes.majority()))
    }

    pub(super) async fn evict(&self, name: &Name, ticket: Ticket, at_once: bool) -> Result<bool> {
        let round = self.nodes.ask(PEOPLE_WAIT, |node| {
            let name = name.clone();
            Box::pin(async move { node.evict(&name, ticket, at_once).await })
        });
        let found = self.nodes.everybody("evict", round).await?;
        Ok(2 * found.iter().filter(|found| **found).count() > found.len())
    }
}

/// Whose turn it is to send: held by whoever proposes a ticket or leaves, until that is sent to all nodes. Only claims on
/// the same name have to wait for each other.
#[derive(Debug)]
pub(super) struct Turns(Vec<Mutex<()>>);

impl Turns {
    fn of(&self, name: &Name) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        locked(&self.0[hasher.finish() as usize % self.0.len()])
    }
}

impl Default for Turns {
    /// Many more than threads, so that names seldom meet.
    fn default() -> Turns {
        Turns((0..64).map(|_| Mutex::default()).collect())
    }
}

/// Forgets a ballot when nobody can ring for it any more.
struct Forget {
    ballots: Arc<Ballots>,
    id: ClaimId,
    number: Option<u64>,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.ballots.forget(self.id, self.number);
    }
}

/// Asks one node for a place on this ticket.
pub(super) async fn propose(node: &Connection, claim: &Claim, wait: bool, ticket: Ticket) -> Result<Answer> {
    let answer = node.propose(claim, wait, ticket).await?;
    let understood = match &answer {
        Value::Array(parts) => match parts.as_slice() {
            [Value::Int(4)] => Some(Answer::WouldWaitForItself),
            [Value::Int(5), last] => number(last).map(|last| Answer::Behind(Ticket::new(last))),
            _ => standing(&answer).map(Answer::Stands),
        },
        ticket => standing(ticket).map(Answer::Stands),
    };
    understood.ok_or_else(|| nonsense("join", &node.address))
}

fn no_permits(name: &Name, address: &Arc<str>) -> Error {
    let message =
        "a quorum cannot count permits: three claims for one of two permits may each have a majority";
    Error::new(ErrorKind::Unsupported, "join", message)
        .hint("use a mutex or a read-write lock, or a semaphore on one server (redis://)")
        .about(name)
        .at(address)
}
