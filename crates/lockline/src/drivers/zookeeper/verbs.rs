//! `join` and `leave`.

use std::sync::Arc;

use tokio::sync::watch;
use zookeeper_client::{CreateMode, Error as ZkError, Stat};

use super::bell;
use super::claims::{Departure, Entry, GAP, Inner, Spot};
use super::error::{is_a_gap, is_the_end};
use super::lists::Reading;
use super::node::{Data, Node};
use super::path;
use super::recipe::Places;
use super::session::Session;
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, News, Place, Standing, Ticket, look_again};
use crate::pause;

/// How often a step is begun anew because somebody else was faster.
pub(super) const TRIES: usize = 10;

/// A znode of ours that has just been made, or found.
pub(super) struct Found {
    pub(super) path: String,
    pub(super) number: i32,
    pub(super) ticket: Ticket,
    pub(super) data: Data,
}

impl Inner {
    /// The znode of a line.
    pub(super) fn line(&self, name: &str) -> String {
        path::of_line(&self.sessions.config.base, name)
    }

    pub(super) async fn join(
        self: Arc<Self>,
        entry: Arc<Entry>,
        claim: Claim,
        wait: bool,
    ) -> Result<Standing> {
        self.drop_lapsed(Some(&claim.name)).await;
        let place =
            Place { name: claim.name.clone(), id: claim.id, ticket: None, lease: claim.lease, last: false };
        // It may be a second try after a lost reply.
        match self.renew(std::slice::from_ref(&place)).await?.first() {
            None | Some(Standing::Lapsed) => {}
            Some(standing) => return Ok(*standing),
        }
        for _ in 0..TRIES {
            let session = self.session("join", claim.lease).await?;
            session.check_lease("join", claim.lease).map_err(|error| error.at(&self.sessions.address))?;
            match self.stand_in_line(&session, &entry, &claim, wait).await {
                Ok(None) => {}
                Ok(Some(standing)) => return Ok(standing),
                // What was done on it goes with it.
                Err(_) if session.is_over() => {}
                Err(error) => return Err(error),
            }
        }
        let message = "others were faster again and again";
        Err(Error::new(ErrorKind::Unavailable, "join", message).at(&self.sessions.address))
    }

    /// Makes a place for a claim. `None`: somebody came in between, and it is to be begun anew.
    async fn stand_in_line(
        self: &Arc<Self>,
        session: &Arc<Session>,
        entry: &Arc<Entry>,
        claim: &Claim,
        wait: bool,
    ) -> Result<Option<Standing>> {
        let line = self.line(claim.name.as_str());
        let shared = match claim.identity.as_deref() {
            Some(identity) => {
                let places = self.places(session, &line, "join").await?;
                self.place_of(session, &line, &places, identity, None).await?
            }
            None => None,
        };
        let (found, places) = match &shared {
            None => self.make_place(session, &line, claim).await?,
            Some(place) if place.mode != claim.mode => return Err(self.would_wait_for_itself(claim)),
            Some(place) if !wait && !place.is_in => return Ok(Some(Standing::Out)),
            Some(place) => match self.enter(session, &line, place, claim).await? {
                Some(found) => (found, self.places(session, &line, "join").await?),
                None => return Ok(None),
            },
        };
        if let (Some(identity), None) = (claim.identity.as_deref(), &shared)
            && self.place_of(session, &line, &places, identity, Some(found.number)).await?.is_some()
        {
            // Another claim of the same identity was faster: there is one place for both.
            self.remove(session, &found.path).await?;
            return Ok(None);
        }
        let Some(ahead) = places.ahead_of(found.number) else { return Ok(Some(Standing::Lapsed)) };
        if !wait && !places.is_in(ahead) {
            self.remove(session, &found.path).await?;
            return Ok(Some(Standing::Out));
        }
        Ok(Some(self.settle(session, entry, claim, found, &places, ahead)))
    }

    /// Notes where a claim stands, and has somebody attend to it.
    #[allow(clippy::too_many_arguments)]
    fn settle(
        self: &Arc<Self>,
        session: &Arc<Session>,
        entry: &Arc<Entry>,
        claim: &Claim,
        found: Found,
        places: &Arc<Places>,
        ahead: usize,
    ) -> Standing {
        let (is_in, now) = (places.is_in(ahead), self.now());
        let Found { path, number, ticket, data } = found;
        let znode = path.clone();
        self.settle_in(
            entry,
            Spot {
                session: session.clone(),
                path,
                number,
                ticket,
                data,
                version: 0,
                deadline: now + claim.lease,
                since: now,
                is_in,
                evicted: false,
                attendant: None,
                departure: watch::Sender::new(Departure::No),
            },
        );
        // Not before: it may find out at once that the claim is in, and must find where to say so.
        let attendant = bell::attend(self, entry, session, &znode, number, (!is_in).then(|| places.clone()));
        entry.with(|spot| spot.as_mut().map(|spot| spot.attendant = Some(attendant)));
        if !is_in {
            return self.waiting(&claim.name, number, ticket, claim.lease, ahead);
        }
        if places.permits_behind(ahead) {
            self.announce(entry);
        }
        Standing::In { ticket }
    }

    pub(super) fn waiting(
        &self,
        name: &crate::name::Name,
        number: i32,
        ticket: Ticket,
        lease: std::time::Duration,
        ahead: usize,
    ) -> Standing {
        let before = |other: i32| other.wrapping_sub(number) < 0;
        Standing::Waiting {
            ticket,
            ahead: u32::try_from(ahead).unwrap_or(u32::MAX),
            look_again: look_again(lease, self.next_lapse(name, &before), None),
        }
    }

    /// Makes the znode of a claim that stands on a place of its own, and reads the line that it stands in then.
    async fn make_place(&self, session: &Session, line: &str, claim: &Claim) -> Result<(Found, Arc<Places>)> {
        let prefix = format!("{line}/{}", Node::prefix(claim));
        let data = Data::of(claim);
        let options = CreateMode::EphemeralSequential.with_acls(self.sessions.config.acls());
        for _ in 0..TRIES {
            // Both are sent here. A session's requests are done in their order, so the list has the znode in it.
            let made = session.client.create(&prefix, &data.write(), &options);
            let read = session.ask_for_places(line);
            match made.await {
                Ok((stat, number)) => {
                    let path = format!("{prefix}{number}");
                    // ZooKeeper's number has 32 bits; its client leaves room for more.
                    let number = i32::try_from(number.into_i64()).unwrap_or_default();
                    let found = Found { path, number, ticket: ticket_of(&stat), data };
                    return Ok((found, self.places_once_read(session, line, read).await?));
                }
                Err(ZkError::NoNode) => self.make_line(session, line).await?,
                Err(error) if is_a_gap(&error) => {
                    if let Some(found) = self.find_own(session, line, claim, &data).await? {
                        return Ok((found, self.places(session, line, "join").await?));
                    }
                }
                Err(error) => return Err(self.sessions.explain("join", &error, true)),
            }
        }
        let message = "the znode of the lock vanishes again and again";
        Err(Error::new(ErrorKind::Unavailable, "join", message).at(&self.sessions.address))
    }

    /// The connection broke while a znode was being made. It is ours if it has our id **and** our session: one of a former
    /// session looks like ours while it is about to vanish.
    pub(super) async fn find_own(
        &self,
        session: &Session,
        line: &str,
        claim: &Claim,
        data: &Data,
    ) -> Result<Option<Found>> {
        // What was under way on the old connection has been done once the leader answers on the new one. If it does not,
        // the list below waits for the connection, too.
        let _ = session.client.sync("/").await;
        let places = self.places(session, line, "join").await?;
        let own = places.iter().flat_map(|place| &place.nodes).filter(|node| node.id == Some(claim.id));
        for node in own {
            let path = format!("{line}/{}", node.name);
            match self.stat(session, &path).await? {
                Some(stat) if stat.ephemeral_owner == session.id => {
                    let ticket = data.place.unwrap_or(ticket_of(&stat));
                    return Ok(Some(Found { path, number: node.number, ticket, data: data.clone() }));
                }
                Some(_) => self.remove(session, &path).await?,
                None => {}
            }
        }
        Ok(None)
    }

    /// A line's znode is a container, as are those above it: the ensemble removes them when they are empty.
    async fn make_line(&self, session: &Session, line: &str) -> Result<()> {
        let options = CreateMode::Container.with_acls(self.sessions.config.acls());
        match session.client.mkdir(line, &options).await {
            // Made by somebody else, or removed again: the next try will tell.
            Ok(()) | Err(ZkError::NodeExists | ZkError::NoNode) => Ok(()),
            Err(error) if is_a_gap(&error) => {
                tokio::time::sleep(pause::about(GAP)).await;
                Ok(())
            }
            Err(error) => Err(self.sessions.explain("join", &error, false)),
        }
    }

    /// The places of a line, once the connection is there; none if there is no such line.
    pub(super) async fn places(
        &self,
        session: &Session,
        line: &str,
        operation: &'static str,
    ) -> Result<Arc<Places>> {
        loop {
            match session.places(line).await {
                Ok(places) => return Ok(places),
                Err(error) if is_a_gap(&error) => tokio::time::sleep(pause::about(GAP)).await,
                Err(error) => return Err(self.sessions.explain(operation, &error, is_the_end(&error))),
            }
        }
    }

    /// The places that were asked for; asked for again, if the connection broke meanwhile.
    async fn places_once_read(&self, session: &Session, line: &str, read: Reading) -> Result<Arc<Places>> {
        match read.await {
            Ok(Ok(places)) => Ok(places),
            _ => self.places(session, line, "join").await,
        }
    }

    async fn stat(&self, session: &Session, path: &str) -> Result<Option<Stat>> {
        loop {
            match session.client.check_stat(path).await {
                Ok(stat) => return Ok(stat),
                Err(error) if is_a_gap(&error) => tokio::time::sleep(pause::about(GAP)).await,
                Err(error) => return Err(self.sessions.explain("join", &error, is_the_end(&error))),
            }
        }
    }

    pub(super) async fn leave(self: Arc<Self>, entry: Arc<Entry>) -> Result<()> {
        match entry.with(Option::take) {
            Some(spot) => self.depart(spot).await,
            None => Ok(()),
        }
    }

    /// A claim that waited is in, as its attendant or a look found out: rings, once.
    pub(super) fn got_in(&self, entry: &Entry, permits_behind: bool) {
        let ticket = entry.with(|spot| {
            let spot = spot.as_mut().filter(|spot| !spot.is_in && !spot.evicted)?;
            spot.is_in = true;
            Some(spot.ticket)
        });
        let Some(ticket) = ticket else { return };
        self.ring(entry, ticket, News::In);
        if permits_behind {
            self.announce(entry);
        }
    }

    /// Tells whoever waits for permits behind this claim that it is in, by touching its znode.
    fn announce(&self, entry: &Entry) {
        let touched = entry.with(|spot| {
            let spot = spot.as_mut()?;
            spot.version += 1;
            Some((spot.session.clone(), spot.path.clone(), spot.data.write()))
        });
        if let Some((session, path, data)) = touched {
            self.spawn(async move {
                // If it gets lost, they look again.
                let _ = session.client.set_data(&path, &data, None).await;
            });
        }
    }
}

/// The ensemble numbers everything that it does: a claim's ticket is the number of its beginning.
pub(super) fn ticket_of(stat: &Stat) -> Ticket {
    Ticket::new(u64::try_from(stat.czxid).unwrap_or_default())
}
