//! Classic Redlock, on the keys and values of other clients: a lock is held by whoever has a majority of the nodes.
//!
//! Each node is asked as one server is (`drivers/redis/layouts`), all at once. Who gets no majority gives back what it got,
//! at all nodes, also those that did not answer, and asks again after a pause. There is no order, and no token.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::super::foreign::{Ask, Eviction, Found, Seen, Store};
use super::super::redis::layouts::Server;
use super::config::RedlockConfig;
use super::hands::{Hands, held_by_a_majority};
use super::nodes::{Nodes, PEOPLE_WAIT, node_deadline};
use super::round::Round;
use crate::driver::{Bells, Verb};
use crate::error::{Error, Result};
use crate::line::ClaimId;
use crate::name::Name;

/// The lease that a release takes its patience from, if it is not told how long the lock was asked for.
const USUAL_LEASE: Duration = Duration::from_secs(10);

/// The nodes of a quorum as one store.
pub(super) struct Plain {
    nodes: Nodes<Server>,
}

impl Plain {
    pub(super) async fn connect(config: &RedlockConfig, bells: &Bells) -> Result<Plain> {
        Ok(Plain { nodes: Nodes::open(config, |_| bells.clone()).await? })
    }

    /// Counts the answers until there is a verdict of this kind on each question.
    async fn count(
        &self,
        questions: usize,
        round: &mut Round<Vec<Found>>,
        verdict: fn(&Hands) -> Option<Found>,
    ) -> (Vec<Hands>, Vec<Error>) {
        let (mut hands, mut errors) = (vec![Hands::new(self.nodes.len()); questions], Vec::new());
        while hands.iter().any(|hands| verdict(hands).is_none()) {
            match round.next().await {
                Some((_, Ok(found))) => {
                    hands.iter_mut().zip(found).for_each(|(hands, found)| hands.note(found));
                }
                Some((_, Err(error))) => {
                    hands.iter_mut().for_each(Hands::silence);
                    errors.push(error);
                }
                None => hands.iter_mut().for_each(Hands::close),
            }
        }
        (hands, errors)
    }

    /// What was found; an error if nothing can be said about any of it.
    fn known(
        &self,
        operation: &'static str,
        found: impl Iterator<Item = Option<Found>>,
        errors: Vec<Error>,
    ) -> Result<Vec<Found>> {
        let found: Vec<Found> = found.map(|found| found.unwrap_or(Found::Unsure)).collect();
        if !found.is_empty() && found.iter().all(|found| *found == Found::Unsure) {
            return Err(self.nodes.no_quorum(operation, errors));
        }
        Ok(found)
    }

    /// Who did not get a majority keeps nothing: others would wait for it, and it for them.
    ///
    /// What is still under way is not waited for. It was sent before, on the same connections.
    async fn give_back(&self, asks: &[Ask], hands: &[Hands]) {
        for (ask, hands) in asks.iter().zip(hands) {
            let verdict = hands.verdict_on_taking();
            if matches!(verdict, Some(Found::In(_))) || !hands.may_stand_somewhere() {
                continue;
            }
            // What cannot be given back ends with its lease.
            let mut round = self.ask_to_let_go(&ask.key, ask.id, ask.lease);
            if verdict == Some(Found::Unsure) {
                // Too few answer, and these would not, either: the verb has no time left to wait for them again.
                poll_fn(|context| {
                    round.send(context);
                    Poll::Ready(())
                })
                .await;
                round.finish_later(|_, _| {});
            } else {
                let _ = self.until_let_go(round).await;
            }
        }
    }

    async fn take_all(&self, ask: &Ask) -> Result<Found> {
        let shared = Arc::new(ask.clone());
        let mut round = self.nodes.ask(node_deadline(ask.lease), |node| {
            let ask = shared.clone();
            Box::pin(async move { Ok(vec![node.take(&ask).await?]) })
        });
        let (hands, errors) = self.count(1, &mut round, Hands::verdict_on_taking).await;
        self.give_back(std::slice::from_ref(ask), &hands).await;
        Ok(self.known("join", hands.iter().map(Hands::verdict_on_taking), errors)?.remove(0))
    }

    async fn acquire_all(&self, asks: &[Ask]) -> Result<Vec<Found>> {
        let Some(shortest) = asks.iter().map(|ask| ask.lease).min() else { return Ok(Vec::new()) };
        let shared: Arc<[Ask]> = asks.into();
        let mut round = self.nodes.ask(node_deadline(shortest), |node| {
            let asks = shared.clone();
            Box::pin(async move { node.acquire(&asks).await })
        });
        let (hands, errors) = self.count(asks.len(), &mut round, Hands::verdict_on_taking).await;
        self.give_back(asks, &hands).await;
        self.known("renew", hands.iter().map(Hands::verdict_on_taking), errors)
    }

    async fn extend_all(&self, operation: &'static str, asks: &[Ask]) -> Result<Vec<Found>> {
        let Some(shortest) = asks.iter().map(|ask| ask.lease).min() else { return Ok(Vec::new()) };
        let shared: Arc<[Ask]> = asks.into();
        let mut round = self.nodes.ask(node_deadline(shortest), |node| {
            let asks = shared.clone();
            Box::pin(async move { node.extend(operation, &asks).await })
        });
        let (hands, errors) = self.count(asks.len(), &mut round, Hands::verdict).await;
        round.finish_later(|_, _| {});
        self.known(operation, hands.iter().map(Hands::verdict), errors)
    }

    /// Lets go at all nodes, also at those that never answered.
    fn ask_to_let_go(&self, key: &str, id: ClaimId, lease: Duration) -> Round<()> {
        let key: Arc<str> = key.into();
        self.nodes.ask(node_deadline(lease), |node| {
            let key = key.clone();
            Box::pin(async move { node.release(&key, id, lease).await })
        })
    }

    async fn until_let_go(&self, mut round: Round<()>) -> Result<()> {
        let (mut done, mut errors) = (0, Vec::new());
        while done < self.nodes.majority() {
            match round.next().await {
                Some((_, Ok(()))) => done += 1,
                Some((_, Err(error))) => errors.push(error),
                None => break,
            }
        }
        round.finish_later(|_, _| {});
        if done >= self.nodes.majority() { Ok(()) } else { Err(self.nodes.no_quorum("leave", errors)) }
    }

    async fn look_everywhere(&self, operation: &'static str, keys: &[String]) -> Result<Vec<Option<Seen>>> {
        let shared: Arc<[String]> = keys.into();
        let round = self.nodes.ask(PEOPLE_WAIT, |node| {
            let keys = shared.clone();
            Box::pin(async move { node.look(operation, &keys).await })
        });
        let answers = self.nodes.everybody(operation, round).await?;
        let of_key =
            |n: usize| answers.iter().filter_map(|answer| answer.get(n).cloned().flatten()).collect();
        Ok((0..keys.len()).map(|n| held_by_a_majority(self.nodes.len(), of_key(n))).collect())
    }

    async fn evict_everywhere(&self, key: &str, stored: &str, at_once: bool) -> Result<Eviction> {
        let (key, stored): (Arc<str>, Arc<str>) = (key.into(), stored.into());
        let round = self.nodes.ask(PEOPLE_WAIT, |node| {
            let (key, stored) = (key.clone(), stored.clone());
            Box::pin(async move { node.evict(&key, &stored, at_once).await })
        });
        let answers = self.nodes.everybody("evict", round).await?;
        let how_many = |what: Eviction| answers.iter().filter(|answer| **answer == what).count();
        Ok(if how_many(Eviction::NoEnd) > 0 {
            Eviction::NoEnd
        } else if 2 * how_many(Eviction::Done) > answers.len() {
            Eviction::Done
        } else {
            Eviction::NotThere
        })
    }

    async fn names_everywhere(&self, prefix: &str) -> Result<Vec<Name>> {
        let shared: Arc<str> = prefix.into();
        let round = self.nodes.ask(PEOPLE_WAIT, |node| {
            let prefix = shared.clone();
            Box::pin(async move { node.names(&prefix).await })
        });
        let mut names: Vec<Name> = self.nodes.everybody("view", round).await?.into_iter().flatten().collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}

impl Store for Plain {
    fn address(&self) -> &Arc<str> {
        self.nodes.address()
    }

    fn keeps_its_data(&self) -> bool {
        self.nodes.all_keep_their_data()
    }

    fn take<'a>(&'a self, ask: &'a Ask) -> Verb<'a, Found> {
        Box::pin(self.take_all(ask))
    }

    fn acquire<'a>(&'a self, asks: &'a [Ask]) -> Verb<'a, Vec<Found>> {
        Box::pin(self.acquire_all(asks))
    }

    fn extend<'a>(&'a self, operation: &'static str, asks: &'a [Ask]) -> Verb<'a, Vec<Found>> {
        Box::pin(self.extend_all(operation, asks))
    }

    fn release<'a>(&'a self, key: &'a str, id: ClaimId, lease: Duration) -> Verb<'a, ()> {
        Box::pin(async move {
            let lease = if lease.is_zero() { USUAL_LEASE } else { lease };
            self.until_let_go(self.ask_to_let_go(key, id, lease)).await
        })
    }

    fn look<'a>(&'a self, operation: &'static str, keys: &'a [String]) -> Verb<'a, Vec<Option<Seen>>> {
        Box::pin(self.look_everywhere(operation, keys))
    }

    fn names<'a>(&'a self, prefix: &'a str) -> Verb<'a, Vec<Name>> {
        Box::pin(self.names_everywhere(prefix))
    }

    fn evict<'a>(&'a self, key: &'a str, stored: &'a str, at_once: bool) -> Verb<'a, Eviction> {
        Box::pin(self.evict_everywhere(key, stored, at_once))
    }
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plain").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}
