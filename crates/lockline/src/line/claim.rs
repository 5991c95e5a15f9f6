//! The words of the protocol: claims, tickets, standings, bells.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::mode::Mode;
use crate::name::Name;

/// What a client calls one attempt to hold a lock: 128 random bits, made by the client, never used twice.
///
/// It is the secret that lets its owner renew or leave a place, so it is never shown in full.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(u128);

impl ClaimId {
    /// A fresh id from the operating system's random source, never from one that is kept in the process: with an id that
    /// somebody else has, too, there are two holders.
    pub fn random() -> ClaimId {
        #[cfg(test)]
        if let Some(simulated) = crate::simulation::chance::id() {
            return ClaimId(simulated);
        }
        // Never zero, which engines may keep for nobody.
        ClaimId(u128::from_be_bytes(crate::platform::random_bytes()).max(1))
    }

    /// The id with these bits: for engines that read it back, and for tests.
    pub const fn from_u128(bits: u128) -> ClaimId {
        ClaimId(bits)
    }

    /// All 128 bits. Whoever knows them can leave the place: do not print them.
    pub const fn as_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}…", (self.0 >> 96) as u32)
    }
}

/// A claim's number in the line, and the fencing token once it is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticket(u64);

impl Ticket {
    /// The ticket before all tickets.
    pub const ZERO: Ticket = Ticket(0);

    /// The ticket with this number.
    pub const fn new(number: u64) -> Ticket {
        Ticket(number)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next ticket of a line whose last one was `self`, given the engine's clock in microseconds.
    ///
    /// The clock is a floor, so that tokens stay monotone even if the engine forgets its counters.
    #[must_use]
    pub fn next(self, clock_us: u64) -> Ticket {
        let counted = self.0 + 1;
        if mutant!(PlainCounter) { Ticket(counted) } else { Ticket(counted.max(clock_us)) }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who stands in the line, as people want to see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Who {
    /// The owner's label.
    pub owner: String,
    /// The host the claiming process runs on.
    pub host: String,
    /// The claiming process.
    pub pid: u32,
}

/// One attempt to hold one lock: what a client sends to join a line.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The lock.
    pub name: Name,
    /// The client's id for this attempt.
    pub id: ClaimId,
    /// Alone, shared, or some permits.
    pub mode: Mode,
    /// How long the place lives without being renewed.
    pub lease: Duration,
    /// Who claims.
    pub who: Arc<Who>,
    /// An owner identity that several processes share: all its claims on a name stand on one place.
    pub identity: Option<Arc<str>>,
    /// What the claimant calls the lock.
    pub primitive: Primitive,
}

/// What a claimant calls a lock. The line does not care: a writer stands alone like the holder of a mutex. An engine whose
/// locks are shared with programs that know nothing of Lockline has to write them down as those programs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Primitive {
    /// A mutex, or an election.
    #[default]
    Mutex,
    /// One side of a read-write lock.
    RwLock,
    /// Some permits of a semaphore.
    Semaphore,
}

/// A place to renew: the claim, the ticket it stands on, and until when it wants to stand there.
#[derive(Clone, Debug)]
pub struct Place {
    /// The lock.
    pub name: Name,
    /// The claim that stands there.
    pub id: ClaimId,
    /// The ticket its client knows; `None` when it never learnt one (only `leave` takes that, and `renew` where waiting
    /// claims have no tickets).
    pub ticket: Option<Ticket>,
    /// The lease to extend by.
    pub lease: Duration,
    /// The one renewal of a fixed lease: it sets the deadline of a claim that is in, and nothing moves it afterwards.
    pub last: bool,
}

/// Where a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It holds the lock.
    In {
        /// The place's ticket: the fencing token.
        ticket: Ticket,
    },
    /// It waits.
    Waiting {
        /// The place's ticket; [`Ticket::ZERO`] where waiting claims have none, because there is no line.
        ticket: Ticket,
        /// How many places stand before it.
        ahead: u32,
        /// When to look again at the latest, if no bell rings.
        look_again: Duration,
    },
    /// It was shown out: evicted, or refused by a `join` that would not wait.
    Out,
    /// There is no such place: it ran out, or the engine forgot it.
    Lapsed,
    /// The part of the engine that keeps this place could not be asked, or could not promise it: nothing is known, and
    /// nothing was extended.
    Unsure,
}

impl Standing {
    /// The ticket this answer names.
    pub fn ticket(&self) -> Option<Ticket> {
        match *self {
            Standing::In { ticket } | Standing::Waiting { ticket, .. } => Some(ticket),
            Standing::Out | Standing::Lapsed | Standing::Unsure => None,
        }
    }
}

/// What a bell tells its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum News {
    /// The place is in.
    In,
    /// The place was evicted.
    Out,
}

/// A message from the engine to the one process whose claim it concerns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bell {
    /// The claim it rings for.
    pub id: ClaimId,
    /// The ticket of the place it speaks of. A bell for another ticket than the client knows is an old story.
    pub ticket: Ticket,
    /// What happened.
    pub news: News,
}

/// Everything a verb did to a line: the answer to its caller, and the bells to ring for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<T> {
    /// The answer.
    pub answer: T,
    /// Whom to tell.
    pub bells: Vec<Bell>,
}

/// Why a line refuses a claim without having changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Its owner's identity already stands in this line in another mode: it would wait for itself.
    WouldWaitForItself,
}
