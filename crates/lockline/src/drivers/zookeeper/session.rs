//! Sessions: what a lease is in ZooKeeper.
//!
//! The ensemble removes the znodes of a process that has been silent for a session's timeout, however short the leases of
//! its claims are. So claims with like leases share a session that lasts half as long again as they do: a guard, which
//! counts its lease from its last answered request, has ended by itself before the ensemble lets anybody else in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use zookeeper_client::{Client, Error as ZkError, SessionState};

use super::config::ZookeeperConfig;
use super::error::explain;
use super::lists::{Lists, Reading};
use super::recipe::Places;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::locked;

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    /// As it stands in the znodes that belong to it.
    pub(super) id: i64,
    lists: Lists,
}

impl Session {
    fn new(client: Client) -> Session {
        Session { id: client.session_id().0, client, lists: Lists::default() }
    }

    /// The places of a line; none if there is no such znode.
    pub(super) async fn places(&self, line: &str) -> std::result::Result<Arc<Places>, ZkError> {
        self.lists.read(&self.client, line).await
    }

    /// Asks for the places of a line as they are after everything that was sent before.
    pub(super) fn ask_for_places(&self, line: &str) -> Reading {
        self.lists.ask(&self.client, line)
    }

    /// It will never be of use again.
    pub(super) fn is_over(&self) -> bool {
        self.client.state().is_terminated()
    }

    /// Refuses a lease that a guard could believe in for longer than the ensemble believes in the session.
    pub(super) fn check_lease(&self, operation: &'static str, lease: Duration) -> Result<()> {
        let most = self.client.session_timeout() * 2 / 3;
        if lease <= most {
            return Ok(());
        }
        let (asked, most) = (crate::words::told(lease), crate::words::told(most));
        let message =
            format!("a lease of {asked} needs a longer session than there is; here {most} is the longest");
        Err(Error::new(ErrorKind::Unsupported, operation, message).hint(
            "ask for less, or raise maxSessionTimeout of the servers; for a fixed lease, set session= to one and a half times it",
        ))
    }
}

type Slot = Arc<tokio::sync::Mutex<Option<Arc<Session>>>>;

/// The sessions of a client, one for each length of lease that is in use.
#[derive(Debug)]
pub(super) struct Sessions {
    pub(super) config: ZookeeperConfig,
    pub(super) address: Arc<str>,
    slots: Mutex<HashMap<Duration, Slot>>,
}

impl Sessions {
    pub(super) fn new(config: ZookeeperConfig) -> Sessions {
        let address = config.address().into();
        Sessions { config, address, slots: Mutex::default() }
    }

    /// The session for claims with this lease, and whether it is a new one. It may last for less than was asked for.
    pub(super) async fn for_lease(
        &self,
        operation: &'static str,
        lease: Duration,
    ) -> Result<(Arc<Session>, bool)> {
        let length = length_for(lease).max(self.config.session);
        let slot = locked(&self.slots).entry(length).or_default().clone();
        let mut slot = slot.lock().await;
        let open = slot.as_ref().filter(|session| !session.is_over()).cloned();
        if let Some(session) = open {
            return Ok((session, false));
        }
        let connected = self.config.connect(length).await;
        let client = connected.map_err(|error| self.explain(operation, &error, false))?;
        let session = Arc::new(Session::new(client));
        *slot = Some(session.clone());
        Ok((session, true))
    }

    /// Ends them all, and so whatever stands in the ensemble because of them.
    pub(super) fn close(&self) {
        locked(&self.slots).clear();
    }

    pub(super) fn explain(&self, operation: &'static str, error: &ZkError, sent: bool) -> Error {
        explain(operation, &self.address, error, sent)
    }
}

/// Waits for the next time that a session changes hands between servers or ends: `true` if it is back, `false` if it is over.
pub(super) async fn next_turn(states: &mut zookeeper_client::StateWatcher) -> bool {
    loop {
        match states.changed().await {
            SessionState::SyncConnected => return true,
            state if state.is_terminated() => return false,
            _ => {}
        }
    }
}

/// How long a session for this lease lasts: half as long again, rounded up a little (by an eighth at most), so that all kinds
/// of leases need few sessions.
fn length_for(lease: Duration) -> Duration {
    let ms = u64::try_from((lease * 3 / 2).as_millis()).unwrap_or(u64::MAX).max(8);
    let step = (ms.next_power_of_two() / if ms.is_power_of_two() { 1 } else { 2 } / 8).max(1);
    Duration::from_millis(ms.div_ceil(step) * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_half_as_long_again() {
        for ms in [100, 600, 1500, 2000, 9999, 10_000, 60_000, 86_400_000] {
            let lease = Duration::from_millis(ms);
            let length = length_for(lease);
            assert!(length >= lease * 3 / 2 && length <= lease * 27 / 16, "{lease:?}: {length:?}");
        }
        let all: std::collections::HashSet<_> =
            (100..20_000).map(|ms| length_for(Duration::from_millis(ms))).collect();
        assert!(all.len() < 70, "{} sessions for all leases up to 20 s", all.len());
    }
}
