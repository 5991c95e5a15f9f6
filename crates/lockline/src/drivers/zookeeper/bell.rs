//! The attendant of a claim: watches the one before it until it is in, and its own znode for an eviction.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use zookeeper_client::{Error as ZkError, EventType};

use super::claims::{Attendant, Departure, Entry, GAP, Inner};
use super::error::is_a_gap;
use super::node::{Node, is_evicted};
use super::recipe::{Places, Watch};
use super::session::Session;
use crate::line::News;
use crate::pause;

/// How long a claim stands before its own znode is watched: a lock that is quickly taken and released needs no such watch.
/// Whoever evicts waits for longer than this before it takes a claim away that did not go by itself.
pub(super) const SETTLED: Duration = Duration::from_millis(200);

/// What a claim that waits behind another one heard of it.
enum Moved {
    /// It was in, and is gone.
    HolderLeft,
    /// The line has to be read again.
    Somehow,
}

/// Until another claim of this client is gone.
async fn departed(mut departure: watch::Receiver<Departure>) -> Moved {
    match departure.wait_for(|departure| *departure != Departure::No).await.as_deref() {
        Ok(Departure::OfHolder) => Moved::HolderLeft,
        // It waited, or vanished with its session.
        _ => Moved::Somehow,
    }
}

struct Claim {
    inner: Weak<Inner>,
    entry: Weak<Entry>,
    session: Arc<Session>,
    /// Its znode.
    path: String,
    number: i32,
}

/// Attends to a claim that stands at `path`; one that waits brings the list that told so.
pub(super) fn attend(
    inner: &Arc<Inner>,
    entry: &Arc<Entry>,
    session: &Arc<Session>,
    path: &str,
    number: i32,
    waits: Option<Arc<Places>>,
) -> Attendant {
    let claim = Claim {
        // Weak, because whoever drops them ends the attendant, which must not keep them.
        inner: Arc::downgrade(inner),
        entry: Arc::downgrade(entry),
        session: session.clone(),
        path: path.to_owned(),
        number,
    };
    Attendant(inner.spawn(async move {
        tokio::join!(claim.wait(waits), claim.watch_itself());
    }))
}

impl Claim {
    fn line(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(line, _)| line)
    }

    /// Waits until the claim is in, or gone.
    async fn wait(&self, mut places: Option<Arc<Places>>) {
        while let Some(known) = places {
            let Some(ahead) = known.ahead_of(self.number) else { return };
            if known.is_in(ahead) {
                return self.got_in(known.permits_behind(ahead));
            }
            let moved = match known.watch(ahead) {
                Some(Watch::Claim(node)) if known.inherits(ahead) => {
                    self.until_gone(node, known.is_in(ahead - 1)).await
                }
                Some(Watch::Claim(node)) => self.until_changed(node).await.map(|_| Moved::Somehow),
                Some(Watch::Everybody) => self.until_somebody_moves().await.map(|()| Moved::Somehow),
                None => return,
            };
            places = match moved {
                Ok(Moved::HolderLeft) => return self.got_in(false),
                Ok(Moved::Somehow) => self.list().await,
                Err(error) if is_a_gap(&error) => {
                    tokio::time::sleep(pause::about(GAP)).await;
                    self.list().await
                }
                // The session is over; everybody is told to look.
                Err(_) => return,
            };
        }
    }

    fn got_in(&self, permits_behind: bool) {
        if let (Some(inner), Some(entry)) = (self.inner.upgrade(), self.entry.upgrade()) {
            inner.got_in(&entry, permits_behind);
        }
    }

    /// Until the claim of a mutex goes. Only its going matters: nobody gets in beside it.
    async fn until_gone(&self, node: &Node, holds: bool) -> Result<Moved, ZkError> {
        if let Some(departure) = self.departure_of(node) {
            return Ok(departed(departure).await);
        }
        let is_gone = self.until_changed(node).await?;
        Ok(if is_gone && holds { Moved::HolderLeft } else { Moved::Somehow })
    }

    /// Until another claim goes, or is touched because it got in; answers whether it is gone.
    async fn until_changed(&self, node: &Node) -> Result<bool, ZkError> {
        let path = format!("{}/{}", self.line(), node.name);
        match self.session.client.get_and_watch_data(&path).await {
            Ok((_, _, watcher)) => Ok(watcher.changed().await.event_type == EventType::NodeDeleted),
            Err(ZkError::NoNode) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// If the other claim is this client's, there is nothing to ask the ensemble: we know when it goes before a watch says so.
    fn departure_of(&self, node: &Node) -> Option<watch::Receiver<Departure>> {
        let (inner, entry) = (self.inner.upgrade()?, self.entry.upgrade()?);
        let other = inner.entry(&entry.name, node.id?)?;
        other.with(|spot| {
            let spot = spot.as_ref().filter(|spot| spot.number == node.number)?;
            Some(spot.departure.subscribe())
        })
    }

    /// Until a claim comes or goes, unless one did since it was last looked at.
    async fn until_somebody_moves(&self) -> Result<(), ZkError> {
        let (children, watcher) = match self.session.client.list_and_watch_children(self.line()).await {
            Ok(both) => both,
            Err(ZkError::NoNode) => return Ok(()),
            Err(error) => return Err(error),
        };
        let places = Places::new(children);
        if places.ahead_of(self.number).is_some_and(|ahead| places.watch(ahead) == Some(Watch::Everybody)) {
            watcher.changed().await;
        }
        Ok(())
    }

    async fn list(&self) -> Option<Arc<Places>> {
        loop {
            match self.session.places(self.line()).await {
                Ok(places) => return Some(places),
                Err(error) if is_a_gap(&error) => tokio::time::sleep(pause::about(GAP)).await,
                Err(_) => return None,
            }
        }
    }

    /// Tells the claim when it is evicted.
    async fn watch_itself(&self) {
        tokio::time::sleep(SETTLED).await;
        let mut was_written = false;
        loop {
            match self.session.client.get_and_watch_data(&self.path).await {
                Ok((data, _, _)) if is_evicted(&data) => return self.evicted(),
                Ok((_, _, watcher)) => {
                    was_written = watcher.changed().await.event_type == EventType::NodeDataChanged
                }
                // Only who evicts a claim writes to it before it goes.
                Err(ZkError::NoNode) if was_written => return self.evicted(),
                Err(error) if is_a_gap(&error) => tokio::time::sleep(pause::about(GAP)).await,
                // Gone without a word: the next renewal says so.
                Err(_) => return,
            }
        }
    }

    fn evicted(&self) {
        let (Some(inner), Some(entry)) = (self.inner.upgrade(), self.entry.upgrade()) else { return };
        let ticket = entry.with(|spot| {
            let spot = spot.as_mut()?;
            spot.evicted = true;
            Some(spot.ticket)
        });
        if let Some(ticket) = ticket {
            inner.ring(&entry, ticket, News::Out);
        }
    }
}
