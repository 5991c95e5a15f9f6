//! Owners with an identity that several processes share: one place for all of them.
//!
//! Each process has a znode of its own there, with the same number, as Curator has it for a writer that reads. To others the
//! place is free when all of them are gone. Each knows the ticket of the one that made the place, and keeps it.

use zookeeper_client::{CreateMode, Error as ZkError, MultiWriteError};

use super::claims::{GAP, Inner};
use super::error::is_a_gap;
use super::node::{Data, Node, digits, is_evicted};
use super::recipe::Places;
use super::session::Session;
use super::verbs::{Found, TRIES, ticket_of};
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, Mode, Ticket};
use crate::pause;

/// A place that claims of one identity stand on.
pub(super) struct Shared {
    number: i32,
    /// One of its znodes.
    path: String,
    ticket: Ticket,
    pub(super) mode: Mode,
    pub(super) is_in: bool,
}

impl Inner {
    /// The place of an identity, if it has one that was not closed; only among those before a number, if one is given.
    pub(super) async fn place_of(
        &self,
        session: &Session,
        line: &str,
        places: &Places,
        identity: &str,
        before: Option<i32>,
    ) -> Result<Option<Shared>> {
        for (ahead, place) in places.iter().enumerate() {
            if before.is_some_and(|number| place.number.wrapping_sub(number) >= 0) {
                break;
            }
            for node in place.nodes.iter().filter(|node| node.is_of(identity)) {
                let path = format!("{line}/{}", node.name);
                let (bytes, stat) = match self.read(session, &path).await? {
                    Some((bytes, _)) if is_evicted(&bytes) => break,
                    Some(found) => found,
                    None => continue,
                };
                let ticket = Data::read(&bytes).and_then(|data| data.place).unwrap_or(ticket_of(&stat));
                let is_in = places.is_in(ahead);
                return Ok(Some(Shared { number: place.number, path, ticket, mode: place.mode, is_in }));
            }
        }
        Ok(None)
    }

    /// Enters a place, if it is still there when it does. `None`: it was not.
    pub(super) async fn enter(
        &self,
        session: &Session,
        line: &str,
        place: &Shared,
        claim: &Claim,
    ) -> Result<Option<Found>> {
        let path = format!("{line}/{}{}", Node::prefix(claim), digits(place.number));
        let data = Data { place: Some(place.ticket), ..Data::of(claim) };
        let options = CreateMode::Ephemeral.with_acls(self.sessions.config.acls());
        let refused = |error: ZkError| self.sessions.explain("join", &error, true);
        for _ in 0..TRIES {
            let mut both = session.client.new_multi_writer();
            both.add_check_version(&place.path, ANY_VERSION).map_err(refused)?;
            both.add_create(&path, &data.write(), &options).map_err(refused)?;
            let error = match both.commit().await {
                Ok(_) => {
                    let (number, ticket) = (place.number, place.ticket);
                    return Ok(Some(Found { path, number, ticket, data }));
                }
                Err(MultiWriteError::OperationFailed { source: ZkError::NoNode, .. }) => return Ok(None),
                Err(MultiWriteError::OperationFailed { source, .. }) => source,
                Err(MultiWriteError::RequestFailed { source }) => source,
            };
            if !is_a_gap(&error) {
                return Err(refused(error));
            }
            if let Some(found) = self.find_own(session, line, claim, &data).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The data of a znode, once the connection is there; `None` if there is no such znode.
    pub(super) async fn read(
        &self,
        session: &Session,
        path: &str,
    ) -> Result<Option<(Vec<u8>, zookeeper_client::Stat)>> {
        loop {
            match session.client.get_data(path).await {
                Ok(found) => return Ok(Some(found)),
                Err(ZkError::NoNode) => return Ok(None),
                Err(error) if is_a_gap(&error) => tokio::time::sleep(pause::about(GAP)).await,
                Err(error) => return Err(self.sessions.explain("join", &error, false)),
            }
        }
    }

    pub(super) fn would_wait_for_itself(&self, claim: &Claim) -> Error {
        let message = "this owner already stands in the line in another mode and would wait for itself";
        Error::new(ErrorKind::Deadlock, "join", message)
            .hint("release what the owner has on this name first")
            .about(&claim.name)
            .at(&self.sessions.address)
    }
}

/// In a check: that the znode is there, whatever its data.
const ANY_VERSION: i32 = -1;
