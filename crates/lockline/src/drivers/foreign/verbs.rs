//! The verbs on locks that other clients share, wherever those are.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::waiters::{Turn, Waiters};
use super::{Ask, Format, Found, Store, ticket_of};
use crate::driver::{Bells, Exclusion, Fencing, Guarantees};
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, ClaimId, Mode, Place, Standing, Ticket, look_again};
use crate::name::Name;

/// The pauses between two questions where nobody announces a release: from the first to the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// Locks in a format that other clients share.
pub(in crate::drivers) struct Foreign {
    pub(super) format: &'static dyn Format,
    space: String,
    pub(super) store: Box<dyn Store>,
    pub(super) waiters: Arc<Waiters>,
    bells: Bells,
}

impl Foreign {
    /// Locks in this format, behind this text, wherever that store is. `waiters` are whom the store's messages wake.
    pub(in crate::drivers) fn new(
        format: &'static dyn Format,
        space: &str,
        store: Box<dyn Store>,
        waiters: Arc<Waiters>,
        bells: Bells,
    ) -> Foreign {
        Foreign { format, space: space.to_owned(), store, waiters, bells }
    }

    pub(in crate::drivers) fn address(&self) -> &Arc<str> {
        self.store.address()
    }

    /// The others have no restart guard: a server that forgets has two holders.
    pub(in crate::drivers) fn guarantees(&self) -> Guarantees {
        let kept = self.store.keeps_its_data();
        Guarantees {
            fencing: match (self.format.fenced(), kept) {
                (false, _) => Fencing::None,
                (true, false) => Fencing::Counted,
                (true, true) => Fencing::Always,
            },
            exclusion: if kept { Exclusion::NoForwardStep } else { Exclusion::Probable },
        }
    }

    pub(super) fn key(&self, name: &Name) -> String {
        format!("{}{name}", self.space)
    }

    /// Only its first command may take the lock, and that is sent at once: so a `leave` that is called later comes behind
    /// it. What comes after the first answer only finds out where the claim stands.
    pub(in crate::drivers) async fn join(&self, claim: &Claim, wait: bool) -> Result<Standing> {
        refuse(claim)?;
        let (key, text) = (self.key(&claim.name), self.format.text(claim));
        self.store.check(&claim.name, &key)?;
        // It stands before it asks: if it is left meanwhile, it must not stand here afterwards.
        let ahead = if wait { self.waiters.stand(claim, &text) } else { 0 };
        let ask = Ask { key, id: claim.id, lease: claim.lease, text, known: String::new() };
        let found = if ahead == 0 {
            self.store.take(&ask).await?
        } else {
            // Those who wait here come first. But if an answer to this claim was lost, it may be in already.
            self.store.extend("join", std::slice::from_ref(&ask)).await?.remove(0)
        };
        let rest = match found {
            Found::Busy(rest) if wait => rest,
            Found::Free | Found::Unsure if wait => None,
            ended => {
                self.waiters.remove(&claim.name, claim.id);
                return self.ended(&claim.name, ended);
            }
        };
        let fresh = match self.format.channel(&ask.key) {
            Some(channel) => self.store.listen(&channel).await?,
            None => false,
        };
        // Before we listened it may have been let go: then nobody tells.
        let rest = if fresh { Some(Duration::ZERO) } else { rest };
        Ok(match self.waiters.place(&claim.name, claim.id) {
            Some(ahead) => self.waiting(ahead, claim.id, claim.lease, rest, 0),
            None => Standing::Lapsed,
        })
    }

    /// The answer to a claim that does not wait.
    fn ended(&self, name: &Name, found: Found) -> Result<Standing> {
        match found {
            Found::In(ticket) => Ok(Standing::In { ticket }),
            Found::Evicted | Found::Busy(_) | Found::Free => Ok(Standing::Out),
            // It may stand there: only who is told so asks again, or leaves.
            Found::Unsure => Err(Error::new(ErrorKind::Unknown, "join", "too few servers answered")
                .hint("ask again; what was done ends with the lease")
                .about(name)
                .at(self.address())),
            Found::Fair => Err(self.in_the_way(
                name,
                "somebody waits for it as a fair lock of Redisson, which this layout would overtake",
            )),
            Found::NoLock => {
                Err(self
                    .in_the_way(name, "its key on the server is something else than a lock of this layout"))
            }
        }
    }

    fn in_the_way(&self, name: &Name, problem: &'static str) -> Error {
        Error::new(ErrorKind::Unsafe, "join", problem)
            .hint("use one kind of lock per name, and give locks a space= of their own")
            .about(name)
            .at(self.address())
    }

    fn waiting(
        &self,
        before: u32,
        id: ClaimId,
        lease: Duration,
        rest: Option<Duration>,
        tries: u32,
    ) -> Standing {
        let told = self.format.channel("").is_some();
        let pause = if told { None } else { Some(pause(id, tries)) };
        Standing::Waiting {
            ticket: Ticket::ZERO,
            // The holder, and those who wait here.
            ahead: before.saturating_add(1),
            look_again: look_again(lease, rest, pause),
        }
    }

    pub(in crate::drivers) async fn renew(&self, places: &[Place]) -> Result<Vec<Standing>> {
        let mut standings = vec![Standing::Lapsed; places.len()];
        // Each with the number of its place; those who wait also with how often they have asked.
        let (mut asking, mut asked, mut holding, mut held) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (n, place) in places.iter().enumerate() {
            let key = || self.key(&place.name);
            match place.ticket {
                Some(ticket) if !self.format.fenced() && ticket != ticket_of(&self.format.mark(place.id)) => {
                }
                Some(ticket) => {
                    let known = if self.format.fenced() { ticket.to_string() } else { String::new() };
                    holding.push(n);
                    held.push(Ask::of(place, key(), String::new(), known));
                }
                None => match self.waiters.renew(&place.name, place.id, place.lease) {
                    Turn::First { text, tries } => {
                        asking.push((n, tries));
                        asked.push(Ask::of(place, key(), text, String::new()));
                    }
                    Turn::Behind(ahead) => {
                        standings[n] = self.waiting(ahead, place.id, place.lease, None, u32::MAX);
                    }
                    Turn::Gone => {}
                },
            }
        }
        // Both are sent at once: who waits must not take a lock later than it was asked to.
        let (asked, held) = tokio::join!(self.store.acquire(&asked), self.store.extend("renew", &held));
        for (n, found) in holding.into_iter().zip(held?) {
            standings[n] = match found {
                Found::In(ticket) => Standing::In { ticket },
                Found::Evicted => Standing::Out,
                Found::Unsure => Standing::Unsure,
                _ => Standing::Lapsed,
            };
        }
        for ((n, tries), found) in asking.into_iter().zip(asked?) {
            let place = &places[n];
            standings[n] = match found {
                Found::In(ticket) => self.got_in(place, ticket).await?,
                Found::Evicted => Standing::Out,
                Found::Busy(rest) => self.waiting(0, place.id, place.lease, rest, tries),
                Found::Free | Found::Fair | Found::NoLock | Found::Unsure => {
                    self.waiting(0, place.id, place.lease, None, tries)
                }
            };
        }
        Ok(standings)
    }

    /// A claim that waited has the lock, unless it was left while it asked: then nobody would let go of it.
    async fn got_in(&self, place: &Place, ticket: Ticket) -> Result<Standing> {
        if self.waiters.place(&place.name, place.id).is_some() {
            self.waiters.remove(&place.name, place.id);
            return Ok(Standing::In { ticket });
        }
        self.leave(place).await?;
        Ok(Standing::Lapsed)
    }

    pub(in crate::drivers) async fn leave(&self, place: &Place) -> Result<()> {
        let was_first = self.waiters.first(&place.name) == Some(place.id);
        let nobody_waits = self.waiters.remove(&place.name, place.id);
        if let Some(next) = self.waiters.first(&place.name).filter(|_| was_first) {
            // The one that left may have been told of a release, and then it is the only one here that was.
            self.bells.look_now(next);
        }
        let key = self.key(&place.name);
        self.store.release(&key, place.id, place.lease).await?;
        if let Some(channel) = self.format.channel(&key).filter(|_| nobody_waits) {
            let needed = || self.waiters.any(&place.name);
            self.store.stop_listening(&channel, Box::new(needed)).await?;
        }
        Ok(())
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign").field("store", &self.store).finish_non_exhaustive()
    }
}

/// What these formats cannot hold.
fn refuse(claim: &Claim) -> Result<()> {
    let problem = if claim.mode != Mode::Exclusive {
        "this layout has mutexes only"
    } else if claim.identity.is_some() {
        "in this layout no two processes can share a hold"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Unsupported, "join", problem)
        .hint("use layout=line for locks that only Lockline takes")
        .about(&claim.name))
}

/// How long to wait after so many questions: longer and longer, and a little different for everyone.
fn pause(id: ClaimId, tries: u32) -> Duration {
    let longest = (PAUSES.0 * 2u32.saturating_pow(tries.min(10))).min(PAUSES.1);
    let chance = (id.as_u128() >> (tries % 96)) as u32 & 0xff;
    longest / 2 + longest / 512 * chance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_tell_holders_apart() {
        let (one, two) = (ticket_of("a"), ticket_of("b"));
        assert!(one != two && one > Ticket::ZERO && one.get() < 1 << 53);
        let (first, later) = (pause(ClaimId::from_u128(0), 0), pause(ClaimId::from_u128(u128::MAX), 99));
        assert!(first >= Duration::from_millis(2) && later <= PAUSES.1);
    }
}
