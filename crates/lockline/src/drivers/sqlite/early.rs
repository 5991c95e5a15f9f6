//! The first moments of a short-lived program, while its worker has no thread and hears no bell.
//!
//! Most commands find the lock free, and end at once. To hang up a bell for them costs more than the lock does. So a
//! first join is tried without one, and only who must wait, or lives for longer, gets a bell.

use super::request::{Done, Reply, Work};
use super::verbs::Ring;
use super::worker::Worker;
use crate::line::{Bell, ClaimId, News, Place, Standing};
use crate::name::Name;

/// What a worker without a thread has got so far, and what no bell could have told it of.
#[derive(Debug, Default)]
pub(super) struct Unheard {
    places: Vec<Place>,
}

impl Unheard {
    fn forget(&mut self, name: &Name, id: ClaimId) {
        self.places.retain(|place| place.id != id || place.name != *name);
    }
}

impl Worker {
    /// Joins without a bell, if that lets the claim in at once. Answers what is still to be done.
    ///
    /// Nothing of this process waits while it has no bell, so what is tried here cannot take a waiting place away.
    pub(super) fn try_unheard(&mut self, mut jobs: Vec<(Work, Reply)>) -> Vec<(Work, Reply)> {
        let Some(unheard) = self.unheard.as_mut() else { return jobs };
        for (name, id) in jobs.iter().filter_map(|(work, _)| work.left()) {
            unheard.forget(&name, id);
        }
        // In a batch, order counts: that is for those who serve batches.
        let [(Work::Join(claim, _), _)] = jobs.as_slice() else { return jobs };
        if self.belfry.is_listening() {
            return jobs;
        }
        let claim = claim.clone();
        let outcome = self.attempt(&[Work::Join(claim.clone(), false)]).pop();
        let Some(Ok(Done::Joined(Ok(Standing::In { ticket })))) = outcome else { return jobs };
        let place =
            Place { name: claim.name, id: claim.id, ticket: Some(ticket), lease: claim.lease, last: false };
        self.unheard.get_or_insert_default().places.push(place);
        for (_, reply) in jobs.drain(..) {
            let _ = reply.send(Ok(Done::Joined(Ok(Standing::In { ticket }))));
        }
        jobs
    }

    /// It has a thread from now on: hangs up the bell, and tells of what was missed without it.
    pub(super) fn begin_to_hear(&mut self) {
        let Some(Unheard { places }) = self.unheard.take() else { return };
        if places.is_empty() {
            return;
        }
        self.hang_up_bell();
        let looked = self.attempt(&[Work::Renew(places.clone())]).pop();
        let Some(Ok(Done::Renewed(standings))) = looked else { return };
        let gone = places.into_iter().zip(standings).filter(|(_, standing)| standing.ticket().is_none());
        let rings = gone.filter_map(|(place, _)| {
            let bell = Bell { id: place.id, ticket: place.ticket?, news: News::Out };
            Some(Ring { name: place.name, to: self.me, bell })
        });
        let rings = rings.collect();
        // They are all our own: nobody can be silent.
        let _ = self.belfry.ring(rings);
    }
}
