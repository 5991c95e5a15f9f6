//! The attendant of a claim: watches the one before it until it is in, and its own znode for an eviction.

use std::sync::{Arc, Weak};
use std::time::Duration;

use zookeeper_client::{Error as ZkError, EventType};

use super::claims::{Attendant, Entry, GAP, Inner};
use super::error::is_a_gap;
use super::node::is_evicted;
use super::recipe::{Places, Watch};
use super::session::Session;
use crate::line::News;

/// How long a claim stands before its own znode is watched: a lock that is quickly taken and released needs no such watch.
/// Whoever evicts waits for longer than this before it takes a claim away that did not go by itself.
pub(super) const SETTLED: Duration = Duration::from_millis(200);

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
                if let (Some(inner), Some(entry)) = (self.inner.upgrade(), self.entry.upgrade()) {
                    inner.got_in(&entry, &known, ahead);
                }
                return;
            }
            let again = match known.watch(ahead) {
                Some(Watch::Claim(node)) => {
                    self.until_changed(&format!("{}/{}", self.line(), node.name)).await
                }
                Some(Watch::Everybody) => self.until_somebody_moves().await,
                None => return,
            };
            places = match again {
                Ok(()) => self.list().await,
                Err(error) if is_a_gap(&error) => {
                    tokio::time::sleep(GAP).await;
                    self.list().await
                }
                // The session is over; everybody is told to look.
                Err(_) => return,
            };
        }
    }

    /// Until another claim goes, or is touched because it got in.
    async fn until_changed(&self, path: &str) -> Result<(), ZkError> {
        match self.session.client.get_and_watch_data(path).await {
            Ok((_, _, watcher)) => {
                watcher.changed().await;
                Ok(())
            }
            Err(ZkError::NoNode) => Ok(()),
            Err(error) => Err(error),
        }
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
                Err(error) if is_a_gap(&error) => tokio::time::sleep(GAP).await,
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
                Err(error) if is_a_gap(&error) => tokio::time::sleep(GAP).await,
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
