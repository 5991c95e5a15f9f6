//! `renew`: a batch is one trip for each session that has claims in it.
//!
//! A server that lost its leader goes on answering what it can read by itself, while the leader may already have given the
//! session up. So each trip begins with a `sync`, which only the leader can answer, and which makes what is read after it true.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use zookeeper_client::Error as ZkError;

use super::claims::{Entry, Inner};
use super::error::is_the_end;
use super::node::is_evicted;
use super::recipe::Places;
use super::session::Session;
use crate::error::Result;
use crate::line::{Place, Standing};
use crate::time::Time;

/// What is asked on one session.
struct Trip {
    session: Arc<Session>,
    /// Leases that become fixed: what is written for people elsewhere.
    fixed: Vec<(String, Vec<u8>)>,
    nodes: Vec<(Arc<Entry>, String)>,
    lines: HashSet<String>,
}

/// What a znode of ours looks like now.
#[derive(Clone, Copy)]
struct Seen {
    version: i32,
    evicted: bool,
}

/// What the ensemble said. A claim that is not named was not asked for.
#[derive(Default)]
struct Answers {
    nodes: HashMap<String, Option<Seen>>,
    lines: HashMap<String, Places>,
}

impl Inner {
    pub(super) async fn renew(self: &Arc<Self>, places: &[Place]) -> Result<Vec<Standing>> {
        let now = self.now();
        let mut trips: HashMap<i64, Trip> = HashMap::new();
        let mut entries = Vec::with_capacity(places.len());
        for place in places {
            let entry = self.entry(&place.name, place.id);
            if let Some(entry) = &entry {
                self.ask(entry, place, now, &mut trips)?;
            }
            entries.push(entry);
        }
        let mut answers = Answers::default();
        for trip in trips.into_values() {
            self.travel(trip, &mut answers).await?;
        }
        let both = places.iter().zip(entries);
        Ok(both
            .map(|(place, entry)| {
                entry.map_or(Standing::Lapsed, |entry| self.apply(&entry, place, now, &answers))
            })
            .collect())
    }

    /// Notes what must be known about a place.
    fn ask(
        &self,
        entry: &Arc<Entry>,
        place: &Place,
        now: Time,
        trips: &mut HashMap<i64, Trip>,
    ) -> Result<()> {
        let line = self.line(place.name.as_str());
        entry.with(|spot| {
            let Some(spot) = spot.as_mut().filter(|spot| spot.deadline > now && !spot.evicted) else {
                return Ok(());
            };
            let trip = trips.entry(spot.session.id).or_insert_with(|| Trip {
                session: spot.session.clone(),
                fixed: Vec::new(),
                nodes: Vec::new(),
                lines: HashSet::new(),
            });
            let is_mine = place.ticket.is_none_or(|ticket| ticket == spot.ticket);
            if place.last && spot.is_in && is_mine && !spot.data.fixed {
                spot.session
                    .check_lease("renew", place.lease)
                    .map_err(|error| error.at(&self.sessions.address))?;
                // The lease begins now, whatever becomes of the message; copies of this renewal do not move it.
                spot.data.fixed = true;
                spot.data.lease = place.lease;
                spot.deadline = now + place.lease;
                spot.version += 1;
                self.ends_at(spot.deadline);
                trip.fixed.push((spot.path.clone(), spot.data.write()));
            }
            trip.nodes.push((entry.clone(), spot.path.clone()));
            if !spot.is_in {
                trip.lines.insert(line);
            }
            Ok(())
        })
    }

    /// Asks everything at once, and waits for the answers.
    async fn travel(&self, trip: Trip, answers: &mut Answers) -> Result<()> {
        let lost = |error: ZkError| self.sessions.explain("renew", &error, true);
        // Each of these is sent here, in this order; only the answers are awaited below.
        let client = &trip.session.client;
        let fixed: Vec<_> = trip.fixed.iter().map(|(path, data)| client.set_data(path, data, None)).collect();
        let leader = client.sync("/");
        let nodes: Vec<_> = trip.nodes.iter().map(|(_, path)| client.check_stat(path)).collect();
        let lines: Vec<_> = trip.lines.iter().map(|line| client.list_children(line)).collect();
        for written in fixed {
            match written.await {
                Ok(_) | Err(ZkError::NoNode) => {}
                Err(error) => return Err(lost(error)),
            }
        }
        match leader.await {
            Ok(()) => {}
            Err(error) if is_the_end(&error) => {
                answers.nodes.extend(trip.nodes.into_iter().map(|(_, path)| (path, None)));
                return Ok(());
            }
            Err(error) => return Err(lost(error)),
        }
        for ((entry, path), answer) in trip.nodes.iter().zip(nodes) {
            let known = entry.with(|spot| spot.as_ref().map(|spot| spot.version));
            let seen = match answer.await.map_err(lost)? {
                Some(stat) if Some(stat.version) != known => {
                    let found = self.read(&trip.session, path).await?;
                    found.map(|(data, stat)| Seen { version: stat.version, evicted: is_evicted(&data) })
                }
                Some(stat) => Some(Seen { version: stat.version, evicted: false }),
                None => None,
            };
            answers.nodes.insert(path.clone(), seen);
        }
        for (line, answer) in trip.lines.iter().zip(lines) {
            let children = match answer.await {
                Ok(children) => children,
                Err(ZkError::NoNode) => Vec::new(),
                Err(error) => return Err(lost(error)),
            };
            answers.lines.insert(line.clone(), Places::new(children));
        }
        Ok(())
    }

    /// What the answers mean for one place.
    fn apply(&self, entry: &Entry, place: &Place, now: Time, answers: &Answers) -> Standing {
        entry.with(|spot| {
            let Some(known) = spot.as_mut() else { return };
            match answers.nodes.get(&known.path) {
                Some(Some(seen)) => {
                    known.version = seen.version;
                    known.evicted |= seen.evicted;
                }
                // Somebody removed it, or its session ended.
                Some(None) if !known.evicted => *spot = None,
                _ => {}
            }
        });
        let places = answers.lines.get(&self.line(place.name.as_str()));
        let number = entry.with(|spot| spot.as_ref().map(|spot| spot.number));
        let ahead = places.zip(number).and_then(|(places, number)| places.ahead_of(number));
        if let (Some(places), Some(ahead)) = (places, ahead)
            && places.is_in(ahead)
        {
            self.got_in(entry, places.permits_behind(ahead));
        }
        self.extend(entry, place, now, ahead.unwrap_or_default())
    }

    fn extend(&self, entry: &Entry, place: &Place, now: Time, ahead: usize) -> Standing {
        let standing = entry.with(|spot| {
            let Some(spot) = spot.as_mut().filter(|spot| spot.deadline > now) else {
                return Err(Standing::Lapsed);
            };
            if spot.evicted {
                return Err(Standing::Out);
            }
            let is_mine = place.ticket.is_none_or(|ticket| ticket == spot.ticket);
            if is_mine && !spot.data.fixed {
                spot.data.lease = place.lease;
                spot.deadline = spot.deadline.max(now + place.lease);
            }
            if spot.is_in {
                Err(Standing::In { ticket: spot.ticket })
            } else {
                Ok((spot.number, spot.ticket))
            }
        });
        match standing {
            Ok((number, ticket)) => self.waiting(&place.name, number, ticket, place.lease, ahead),
            Err(standing) => standing,
        }
    }
}
