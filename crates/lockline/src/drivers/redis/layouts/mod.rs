//! The locks of other clients, held as they hold them: for fleets that lock in several languages.
//!
//! There is no line in these formats. A claim that waits stands in this process only ([`waiters`]), and asks again: on a
//! message, where the others send one, and after a pause anyway. So there is no order between clients, and no ticket
//! before a claim is in. Modes other than exclusive, and identities that several processes share, are refused before
//! anything is sent.

mod link;
mod plain;
mod redisson;
mod waiters;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Cmd, PushInfo, PushKind, Value};
use sha2::{Digest, Sha256};

use super::config::RedisConfig;
use super::error::nonsense;
use super::verbs::{number, text};
use crate::driver::{Bells, Exclusion, Fencing, Guarantees, Query};
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, ClaimId, ClaimView, LineView, Mode, Place, Standing, Ticket, Who, look_again};
use crate::name::Name;
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

/// How many names one call looks at: short enough that nobody waits behind it.
const NAMES: usize = 64;

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
            Layout::Line | Layout::Plain => &plain::Plain,
            Layout::Redisson => &redisson::Redisson { fenced: false },
            Layout::RedissonFenced => &redisson::Redisson { fenced: true },
        };
        let waiters = Arc::new(Waiters::default());
        let ear = Ear {
            format,
            space: config.space.clone(),
            waiters: waiters.clone(),
            bells: bells.clone(),
            gap: false.into(),
        };
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

    pub(super) async fn join(&self, claim: &Claim, wait: bool) -> Result<Standing> {
        refuse(claim)?;
        let (key, text) = (self.key(&claim.name), self.format.text(claim));
        let ask = Ask { key: &key, id: claim.id, lease: claim.lease, text: &text, known: "" };
        let mut found = if wait && self.waiters.others(&claim.name, claim.id) {
            // Those who wait here come first. But if an answer to this claim was lost, it may be in already.
            self.one("join", Script::Extend, &ask).await?
        } else {
            self.take("join", &ask).await?
        };
        if wait
            && matches!(found, Found::Busy(_))
            && let Some(channel) = self.format.channel(&key)
            && self.link.listen(&channel).await?
        {
            // Between the answer and our listening it may have been let go.
            found = self.one("join", Script::Acquire, &ask).await?;
        }
        match found {
            Found::In(ticket) => {
                self.waiters.remove(&claim.name, claim.id);
                Ok(Standing::In { ticket })
            }
            Found::Evicted => Ok(Standing::Out),
            Found::Fair => Err(self.in_the_way(
                &claim.name,
                "somebody waits for it as a fair lock of Redisson, which this layout would overtake",
            )),
            Found::NoLock => Err(self.in_the_way(
                &claim.name,
                "its key on the server is something else than a lock of this layout",
            )),
            Found::Busy(_) | Found::Free if !wait => Ok(Standing::Out),
            Found::Busy(rest) => {
                let ahead = self.waiters.stand(claim, &text);
                Ok(self.waiting(ahead, claim.id, claim.lease, rest, 0))
            }
            Found::Free => {
                let ahead = self.waiters.stand(claim, &text);
                Ok(self.waiting(ahead, claim.id, claim.lease, None, 0))
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
                    holding.push((n, self.key(&place.name), String::new(), known));
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
        let asks: Vec<_> =
            holding.iter().map(|(n, key, text, known)| Ask::of(&places[*n], key, text, known)).collect();
        for ((n, ..), found) in holding.iter().zip(self.many("renew", Script::Extend, &asks).await?) {
            standings[*n] = match found {
                Found::In(ticket) => Standing::In { ticket },
                Found::Evicted => Standing::Out,
                _ => Standing::Lapsed,
            };
        }
        let asks: Vec<_> =
            asking.iter().map(|(n, key, text, _)| Ask::of(&places[*n], key, text, "")).collect();
        for ((n, _, _, tries), found) in asking.iter().zip(self.many("renew", Script::Acquire, &asks).await?)
        {
            let place = &places[*n];
            standings[*n] = match found {
                Found::In(ticket) => {
                    self.waiters.remove(&place.name, place.id);
                    Standing::In { ticket }
                }
                Found::Evicted => Standing::Out,
                Found::Busy(rest) => self.waiting(0, place.id, place.lease, rest, *tries),
                Found::Free | Found::Fair | Found::NoLock => {
                    self.waiting(0, place.id, place.lease, None, *tries)
                }
            };
        }
        Ok(standings)
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

    pub(super) async fn evict(&self, name: &Name, ticket: Ticket, at_once: bool) -> Result<bool> {
        let key = self.key(name);
        let Some((stored, holder, _)) = self.look("evict", std::slice::from_ref(&key)).await?.remove(0)
        else {
            return Ok(false);
        };
        if holder.ticket != ticket {
            return Ok(false);
        }
        let args = [stored, u8::from(at_once).to_string(), self.format.channel(&key).unwrap_or_default()];
        let answer = self.link.run("evict", Script::Evict, &self.format.keys(&key), &args).await?;
        match answer.as_slice() {
            [Value::Int(-1)] => Err(self
                .link
                .error(ErrorKind::Unsupported, "evict", "its holder has no lease that could end")
                .hint("evict it at once")
                .about(name)),
            [Value::Int(found)] => Ok(*found == 1),
            _ => Err(nonsense("evict", &self.link.address)),
        }
    }

    pub(super) async fn view(&self, query: &Query) -> Result<Vec<LineView>> {
        let mut names = match query {
            Query::Name(name) => vec![name.clone()],
            Query::Prefix(prefix) => self.names(prefix).await?,
        };
        names.extend(self.waiters.names().into_iter().filter(|name| query.matches(name.as_str())));
        names.sort_unstable();
        names.dedup();
        let mut lines = Vec::new();
        for some in names.chunks(NAMES) {
            let keys: Vec<String> = some.iter().map(|name| self.key(name)).collect();
            for (name, found) in some.iter().zip(self.look("view", &keys).await?) {
                let mut line = LineView::free(name.clone());
                // Of all keys that a walk finds, those without an end are data, not locks.
                let listed = |has_end: bool| has_end || matches!(query, Query::Name(_));
                line.holders
                    .extend(found.filter(|(_, _, has_end)| listed(*has_end)).map(|(_, holder, _)| holder));
                line.waiters = self.waiters.view(name);
                if !line.holders.is_empty() || !line.waiters.is_empty() {
                    lines.push(line);
                }
            }
        }
        Ok(lines)
    }

    /// The names of all keys that may be locks: the server is walked through, a little at a time.
    async fn names(&self, prefix: &str) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        let mut cursor: Vec<u8> = b"0".to_vec();
        let pattern = format!("{}*", escaped(&format!("{}{prefix}", self.space)));
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
            scan.arg("TYPE").arg(self.format.stored_as());
            let Value::Array(answer) = self.link.send("view", &scan).await? else { break };
            let [Value::BulkString(next), Value::Array(found)] = answer.as_slice() else { break };
            let keys = found.iter().filter_map(|key| text(key)?.strip_prefix(self.space.as_str()));
            names.extend(keys.filter_map(|name| Name::new(name).ok()));
            cursor.clone_from(next);
            if cursor == b"0" {
                return Ok(names);
            }
        }
        Err(nonsense("view", &self.link.address))
    }

    /// What is stored under each key, who that is, and whether it has an end.
    async fn look(
        &self,
        operation: &'static str,
        keys: &[String],
    ) -> Result<Vec<Option<(String, ClaimView, bool)>>> {
        let all: Vec<String> = keys.iter().flat_map(|key| self.format.keys(key)).collect();
        let answers = self.link.run(operation, Script::Look, &all, &[]).await?;
        if answers.len() != keys.len() {
            return Err(nonsense(operation, &self.link.address));
        }
        Ok(answers.iter().map(|answer| self.seen(answer)).collect())
    }

    fn seen(&self, answer: &Value) -> Option<(String, ClaimView, bool)> {
        let Value::Array(parts) = answer else { return None };
        let [stored, Value::Int(rest), token] = parts.as_slice() else { return None };
        let stored = text(stored)?;
        let Holder { named_by, who, evicted } = self.format.holder(stored)?;
        let view = ClaimView {
            ticket: if self.fenced { Ticket::new(number(token)?) } else { ticket_of(&named_by) },
            mode: Mode::Exclusive,
            who,
            remaining: Duration::from_millis(u64::try_from(*rest).unwrap_or_default()),
            // Nobody wrote down since when.
            since: Duration::ZERO,
            evicted,
        };
        Some((stored.to_owned(), view, *rest >= 0))
    }

    /// Takes a free lock; finds out where the claim stands if it is not free.
    async fn take(&self, operation: &'static str, ask: &Ask<'_>) -> Result<Found> {
        if let Some(set) = self.format.take(ask.key, ask.text, ask.lease)
            && self.link.send(operation, &set).await? == Value::Okay
        {
            return Ok(Found::In(ticket_of(&self.format.mark(ask.id))));
        }
        self.one(operation, Script::Acquire, ask).await
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

/// Hears what the server pushes: releases of locks that somebody here waits for.
struct Ear {
    format: &'static dyn Format,
    space: String,
    waiters: Arc<Waiters>,
    bells: Bells,
    /// The connection was lost, and messages with it.
    gap: AtomicBool,
}

impl Ear {
    /// Runs in the connection's task, and nothing here blocks.
    fn hear(&self, push: &PushInfo) {
        match push.kind {
            PushKind::Message => {
                let Some(channel) = push.data.first().and_then(text) else { return };
                for key in self.format.announced_on(channel) {
                    let name = key.strip_prefix(self.space.as_str()).and_then(|name| Name::new(name).ok());
                    // Like each of their clients, we wake one of ours: the lock has room for one.
                    if let Some(first) = name.and_then(|name| self.waiters.first(&name)) {
                        self.bells.look_now(first);
                    }
                }
            }
            PushKind::Disconnection => self.gap.store(true, Ordering::Release),
            PushKind::Subscribe if self.gap.swap(false, Ordering::AcqRel) => self.bells.look_at_all(),
            _ => {}
        }
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

/// A text as the server's patterns want it.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for letter in text.chars() {
        if "*?[]\\^-".contains(letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}
