//! The locks of other clients, held as they hold them: for fleets that lock in several languages.
//!
//! There is no line in these formats. A claim that waits stands in this process only ([`waiters`]), and asks again: on a
//! message, where the others send one, and after a pause anyway. So there is no order between clients, and no ticket
//! before a claim is in. Modes other than exclusive, and identities that several processes share, are refused before
//! anything is sent.

mod ear;
mod link;
mod people;
mod plain;
mod redisson;
mod waiters;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use sha2::{Digest, Sha256};

use super::config::RedisConfig;
use super::error::nonsense;
use super::verbs::number;
use crate::driver::{Bells, Exclusion, Fencing, Guarantees};
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, ClaimId, Mode, Place, Standing, Ticket, Who, look_again};
use crate::name::Name;
use ear::Ear;
use link::{Link, Script};
use waiters::{Turn, Waiters};

/// How locks are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Layout {
    /// Lockline's own: a line, with order, tokens and every primitive.
    #[default]
    Line,
    /// A string per lock, as redis-py's `Lock`, node `redlock`, redsync and others keep it. Mutexes only, no order, no
    /// tokens.
    Plain,
    /// A hash per lock, as Redisson's `RLock` keeps it. Mutexes only, no order, no tokens.
    Redisson,
    /// The same with a token per holder, as Redisson's `RFencedLock` keeps it.
    RedissonFenced,
}

/// A layout's scripts, in the order of [`Script`].
type Scripts = [&'static str; 5];

/// What is different from one layout to the other. All of it is text: what is sent is the same for all.
trait Format: Send + Sync + fmt::Debug {
    fn scripts(&self) -> &'static Scripts;
    /// The type of a lock's key, as the server calls it.
    fn stored_as(&self) -> &'static str;
    /// The keys that the scripts want for a lock.
    fn keys(&self, key: &str) -> Vec<String>;
    /// By what the server knows a claim.
    fn mark(&self, id: ClaimId) -> String;
    /// What a claim writes.
    fn text(&self, claim: &Claim) -> String;
    /// A single command that takes a free lock, if there is one.
    fn take(&self, key: &str, text: &str, lease: Duration) -> Option<Cmd>;
    /// Where a release is announced.
    fn channel(&self, key: &str) -> Option<String>;
    /// The keys whose releases are announced there.
    fn announced_on<'a>(&self, channel: &'a str) -> Vec<&'a str>;
    /// Who it is that stands on the server; `None` if that is no lock.
    fn holder(&self, text: &str) -> Option<Holder>;
}

/// Who holds a lock.
struct Holder {
    /// What its ticket is made from, where there are no tokens.
    named_by: String,
    who: Who,
    evicted: bool,
}

/// Where a claim stands on the server.
enum Found {
    In(Ticket),
    Evicted,
    /// Somebody else holds it, for so long at most; `None` if that has no end.
    Busy(Option<Duration>),
    /// Nobody holds it, and it was not asked for.
    Free,
    /// Somebody waits for it as a fair lock.
    Fair,
    /// The key is something else.
    NoLock,
}

/// The pauses between two questions where nobody announces a release: from the first to the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// Locks in a format that other clients share.
pub(super) struct Foreign {
    format: &'static dyn Format,
    fenced: bool,
    /// Whether others tell when they let go.
    told: bool,
    space: String,
    link: Link,
    waiters: Arc<Waiters>,
    bells: Bells,
}

impl Foreign {
    pub(super) async fn connect(config: &RedisConfig, bells: Bells) -> Result<Foreign> {
        let format: &'static dyn Format = match config.layout {
            // Lockline's own layout has a driver of its own.
            Layout::Line | Layout::Plain => &plain::Plain,
            Layout::Redisson => &redisson::Redisson { fenced: false },
            Layout::RedissonFenced => &redisson::Redisson { fenced: true },
        };
        let waiters = Arc::new(Waiters::default());
        let ear = Ear::new(format, &config.space, &waiters, &bells);
        let link = Link::open(config, format.scripts(), move |push| ear.hear(&push)).await?;
        let fenced = config.layout == Layout::RedissonFenced;
        let told = config.layout != Layout::Plain;
        Ok(Foreign { format, fenced, told, space: config.space.clone(), link, waiters, bells })
    }

    pub(super) fn address(&self) -> &Arc<str> {
        &self.link.address
    }

    /// The others have no restart guard: a server that forgets has two holders.
    pub(super) fn guarantees(&self) -> Guarantees {
        let kept = self.link.keeps_its_data;
        Guarantees {
            fencing: match (self.fenced, kept) {
                (false, _) => Fencing::None,
                (true, false) => Fencing::Counted,
                (true, true) => Fencing::Always,
            },
            exclusion: if kept { Exclusion::NoForwardStep } else { Exclusion::Probable },
        }
    }

    fn key(&self, name: &Name) -> String {
        format!("{}{name}", self.space)
    }

    /// Only its first command may take the lock, and that is sent at once: so a `leave` that is called later comes behind
    /// it. What comes after the first answer only finds out where the claim stands.
    pub(super) async fn join(&self, claim: &Claim, wait: bool) -> Result<Standing> {
        refuse(claim)?;
        let (key, text) = (self.key(&claim.name), self.format.text(claim));
        let ask = Ask { key: &key, id: claim.id, lease: claim.lease, text: &text, known: "" };
        // It stands before it asks: if it is left meanwhile, it must not stand here afterwards.
        let ahead = if wait { self.waiters.stand(claim, &text) } else { 0 };
        let found = if ahead == 0 {
            self.take("join", &ask).await?
        } else {
            // Those who wait here come first. But if an answer to this claim was lost, it may be in already.
            self.one("join", Script::Extend, &ask).await?
        };
        let rest = match found {
            Found::Busy(rest) if wait => rest,
            Found::Free if wait => None,
            ended => {
                self.waiters.remove(&claim.name, claim.id);
                return self.ended(&claim.name, ended);
            }
        };
        let fresh = match self.format.channel(&key) {
            Some(channel) => self.link.listen(&channel).await?,
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
        self.link
            .error(ErrorKind::Unsafe, "join", problem)
            .hint("use one kind of lock per name, and give locks a space= of their own")
            .about(name)
    }

    fn waiting(
        &self,
        before: u32,
        id: ClaimId,
        lease: Duration,
        rest: Option<Duration>,
        tries: u32,
    ) -> Standing {
        let pause = if self.told { None } else { Some(pause(id, tries)) };
        Standing::Waiting {
            ticket: Ticket::ZERO,
            // The holder, and those who wait here.
            ahead: before.saturating_add(1),
            look_again: look_again(lease, rest, pause),
        }
    }

    pub(super) async fn renew(&self, places: &[Place]) -> Result<Vec<Standing>> {
        let mut standings = vec![Standing::Lapsed; places.len()];
        let (mut asking, mut holding) = (Vec::new(), Vec::new());
        for (n, place) in places.iter().enumerate() {
            match place.ticket {
                Some(ticket) if !self.fenced && ticket != ticket_of(&self.format.mark(place.id)) => {}
                Some(ticket) => {
                    let known = if self.fenced { ticket.to_string() } else { String::new() };
                    holding.push((n, self.key(&place.name), known));
                }
                None => match self.waiters.renew(&place.name, place.id, place.lease) {
                    Turn::First { text, tries } => asking.push((n, self.key(&place.name), text, tries)),
                    Turn::Behind(ahead) => {
                        standings[n] = self.waiting(ahead, place.id, place.lease, None, u32::MAX);
                    }
                    Turn::Gone => {}
                },
            }
        }
        let held: Vec<_> =
            holding.iter().map(|(n, key, known)| Ask::of(&places[*n], key, "", known)).collect();
        let asked: Vec<_> =
            asking.iter().map(|(n, key, text, _)| Ask::of(&places[*n], key, text, "")).collect();
        // Both are sent at once: who waits must not take a lock later than it was asked to.
        let (asked, held) = tokio::join!(
            self.many("renew", Script::Acquire, &asked),
            self.many("renew", Script::Extend, &held)
        );
        for ((n, ..), found) in holding.iter().zip(held?) {
            standings[*n] = match found {
                Found::In(ticket) => Standing::In { ticket },
                Found::Evicted => Standing::Out,
                _ => Standing::Lapsed,
            };
        }
        for ((n, _, _, tries), found) in asking.iter().zip(asked?) {
            let place = &places[*n];
            standings[*n] = match found {
                Found::In(ticket) => self.got_in(place, ticket).await?,
                Found::Evicted => Standing::Out,
                Found::Busy(rest) => self.waiting(0, place.id, place.lease, rest, *tries),
                Found::Free | Found::Fair | Found::NoLock => {
                    self.waiting(0, place.id, place.lease, None, *tries)
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

    pub(super) async fn leave(&self, place: &Place) -> Result<()> {
        let was_first = self.waiters.first(&place.name) == Some(place.id);
        let nobody_waits = self.waiters.remove(&place.name, place.id);
        if let Some(next) = self.waiters.first(&place.name).filter(|_| was_first) {
            // The one that left may have been told of a release, and then it is the only one here that was.
            self.bells.look_now(next);
        }
        let key = self.key(&place.name);
        let channel = self.format.channel(&key);
        let args = [self.format.mark(place.id), channel.clone().unwrap_or_default()];
        self.link.run("leave", Script::Release, &self.format.keys(&key), &args).await?;
        if let Some(channel) = channel.filter(|_| nobody_waits) {
            self.link.stop_listening(&channel, || self.waiters.any(&place.name)).await;
        }
        Ok(())
    }

    /// Takes a free lock; finds out where the claim stands if it is not free: it may be in, if an answer was lost.
    async fn take(&self, operation: &'static str, ask: &Ask<'_>) -> Result<Found> {
        let Some(set) = self.format.take(ask.key, ask.text, ask.lease) else {
            return self.one(operation, Script::Acquire, ask).await;
        };
        if self.link.send(operation, &set).await? == Value::Okay {
            return Ok(Found::In(ticket_of(&self.format.mark(ask.id))));
        }
        self.one(operation, Script::Extend, ask).await
    }

    async fn one(&self, operation: &'static str, script: Script, ask: &Ask<'_>) -> Result<Found> {
        Ok(self.many(operation, script, std::slice::from_ref(ask)).await?.remove(0))
    }

    /// Runs a script for several locks, in one trip.
    async fn many(&self, operation: &'static str, script: Script, asks: &[Ask<'_>]) -> Result<Vec<Found>> {
        if asks.is_empty() {
            return Ok(Vec::new());
        }
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for ask in asks {
            keys.extend(self.format.keys(ask.key));
            args.extend([
                self.format.mark(ask.id),
                millis(ask.lease).to_string(),
                ask.text.to_owned(),
                ask.known.to_owned(),
            ]);
        }
        let answers = self.link.run(operation, script, &keys, &args).await?;
        let found: Option<Vec<_>> =
            asks.iter().zip(&answers).map(|(ask, answer)| self.found(ask, answer)).collect();
        found.filter(|found| found.len() == asks.len()).ok_or_else(|| nonsense(operation, &self.link.address))
    }

    /// As the scripts write it.
    fn found(&self, ask: &Ask<'_>, answer: &Value) -> Option<Found> {
        let Value::Array(parts) = answer else { return None };
        Some(match parts.as_slice() {
            [Value::Int(1), token] if self.fenced => Found::In(Ticket::new(number(token)?)),
            [Value::Int(1), _] => Found::In(ticket_of(&self.format.mark(ask.id))),
            [Value::Int(2)] => Found::Evicted,
            [Value::Int(3)] => Found::Fair,
            [Value::Int(4)] => Found::NoLock,
            [Value::Int(0), Value::Int(-2)] => Found::Free,
            [Value::Int(0), Value::Int(rest)] => {
                Found::Busy(u64::try_from(*rest).ok().map(Duration::from_millis))
            }
            _ => return None,
        })
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign")
            .field("format", &self.format)
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}

/// A question about one lock.
struct Ask<'a> {
    key: &'a str,
    id: ClaimId,
    lease: Duration,
    text: &'a str,
    /// The token that is known, where there are tokens.
    known: &'a str,
}

impl<'a> Ask<'a> {
    fn of(place: &Place, key: &'a str, text: &'a str, known: &'a str) -> Ask<'a> {
        Ask { key, id: place.id, lease: place.lease, text, known }
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

/// A number for a holder, where there are no tokens: it tells one from another, and nothing about who came first.
fn ticket_of(named_by: &str) -> Ticket {
    let hash = Sha256::digest(named_by.as_bytes());
    let bits = u64::from_be_bytes(hash[..8].try_into().unwrap_or_default());
    // Like tokens it fits a JSON number, and it is not the ticket before all tickets.
    Ticket::new((bits >> 12).max(1))
}

/// How long to wait after so many questions: longer and longer, and a little different for everyone.
fn pause(id: ClaimId, tries: u32) -> Duration {
    let longest = (PAUSES.0 * 2u32.saturating_pow(tries.min(10))).min(PAUSES.1);
    let chance = (id.as_u128() >> (tries % 96)) as u32 & 0xff;
    longest / 2 + longest / 512 * chance
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
