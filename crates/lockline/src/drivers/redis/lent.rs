//! Lines that the server has lent to this client, so that a lock which nobody else asks for is taken and given back by plain
//! commands: a script costs the server ten times as much.
//!
//! A lent line's root says so, and names a key that stands for the loan (line.lua says how). The borrower takes the lock by
//! writing its claim into that key, for as long as its lease, and gives it back by writing nothing into it; both with `XX`, only
//! if the key is there. Whoever else comes, by any script, takes the line back first, with what stands in it: the key is gone,
//! and what the borrower sends afterwards does nothing. It then goes the usual way.
//!
//! So nothing depends on what is remembered here. It must only be true that a loan is used for one verb at a time: whoever uses
//! one has taken it out of the table, and puts it back when it knows what became of it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::connection::Connection;
use super::live::Live;
use super::outbox;
use crate::error::Result;
use crate::line::{Claim, ClaimId, Ticket};
use crate::sync::locked;

/// How many tickets go with a loan. The line goes on behind them, so that tokens rise whatever clocks do.
pub(super) const TICKETS: u64 = 1000;
/// How long a loan stays that nobody uses.
pub(super) const IDLE_MS: u64 = 60_000;
/// How long a loan is used. The root, which is not touched meanwhile, must outlive it and the longest lease.
const LONGEST: Duration = Duration::from_secs(60 * 60);
/// How many lines are remembered.
const MOST: usize = 1024;

/// What is known about lines that may be had from the server.
#[derive(Default)]
pub(super) struct Lent {
    lines: Mutex<HashMap<u128, Known>>,
}

enum Known {
    /// This claim found it free, and so did one before: when it leaves, it asks for the line.
    Wanted(ClaimId),
    Idle(Loan),
    Held(Loan, ClaimId),
}

/// A line of ours, until somebody else comes.
#[derive(Debug)]
pub(super) struct Loan {
    /// The connection it was lent on: what is behind another one may be another server, or have been started again.
    live: Weak<Live>,
    pub(super) key: String,
    next: u64,
    last: u64,
    since: Instant,
}

/// How one who leaves is to do it.
pub(super) enum Leaving {
    Usual,
    /// And ask for the line.
    Asking,
    /// By giving back the loan.
    Back(Loan),
}

impl Loan {
    /// A loan of the line with this key that was asked for at `since`; `begins` is what the server answered.
    pub(super) fn new(live: &Arc<Live>, line: &str, begins: u64, since: Instant) -> Loan {
        let last = begins + TICKETS;
        let key = format!("{line}:l:{last}");
        Loan { live: Arc::downgrade(live), key, next: begins + 1, last, since }
    }

    /// The ticket of whoever takes the lock with it now.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket::new(self.next)
    }

    pub(super) fn is_on(&self, live: &Arc<Live>) -> bool {
        std::ptr::eq(self.live.as_ptr(), Arc::as_ptr(live))
    }

    fn is_usable(&self, live: &Arc<Live>) -> bool {
        self.is_on(live) && self.next <= self.last && self.since.elapsed() < LONGEST
    }
}

impl Lent {
    /// Takes out the loan that somebody who joins can use.
    pub(super) fn take(&self, line: u128, live: &Arc<Live>) -> Option<Loan> {
        match locked(&self.lines).remove(&line)? {
            Known::Idle(loan) if loan.is_usable(live) => Some(loan),
            Known::Idle(_) | Known::Held(..) | Known::Wanted(_) => None,
        }
    }

    /// The claim is in, with the loan's next ticket.
    pub(super) fn held(&self, line: u128, mut loan: Loan, id: ClaimId) {
        loan.next += 1;
        self.put(line, Known::Held(loan, id));
    }

    pub(super) fn idle(&self, line: u128, loan: Loan) {
        self.put(line, Known::Idle(loan));
    }

    pub(super) fn wanted(&self, line: u128, id: ClaimId) {
        self.put(line, Known::Wanted(id));
    }

    /// Takes out what a claim that leaves can use.
    pub(super) fn leave(&self, line: u128, id: ClaimId) -> Leaving {
        let mut lines = locked(&self.lines);
        match lines.get(&line) {
            Some(Known::Wanted(by) | Known::Held(_, by)) if *by == id => {}
            _ => return Leaving::Usual,
        }
        match lines.remove(&line) {
            Some(Known::Held(loan, _)) => Leaving::Back(loan),
            Some(Known::Wanted(_)) => Leaving::Asking,
            Some(Known::Idle(_)) | None => Leaving::Usual,
        }
    }

    /// The line is about to be taken back by ourselves.
    pub(super) fn forget(&self, line: u128) {
        locked(&self.lines).remove(&line);
    }

    pub(super) fn forget_all(&self) {
        locked(&self.lines).clear();
    }

    fn put(&self, line: u128, known: Known) {
        let mut lines = locked(&self.lines);
        if lines.len() >= MOST && !lines.contains_key(&line) {
            // Any will do: who is forgotten goes the usual way, and asks again.
            if let Some(other) = lines.keys().next().copied() {
                lines.remove(&other);
            }
        }
        lines.insert(line, known);
    }

    /// The ticket of who joins this line next, if it is lent.
    #[cfg(test)]
    pub(super) fn next_ticket(&self, line: u128) -> Option<u64> {
        match locked(&self.lines).get(&line)? {
            Known::Idle(loan) if loan.next <= loan.last => Some(loan.next),
            Known::Idle(_) | Known::Held(..) | Known::Wanted(_) => None,
        }
    }
}

impl Connection {
    /// Takes a lock with a loan. `None`: the line is no longer lent, and nothing was done.
    pub(super) async fn use_loan(
        &self,
        line: u128,
        loan: Loan,
        live: &Arc<Live>,
        claim: &Claim,
    ) -> Result<Option<Ticket>> {
        let ticket = loan.ticket();
        // The server knows since when by how long the key still lives.
        let since = live.told_time().unwrap_or(0);
        let text = self.as_stored(Some((ticket, since)), claim);
        if !self.write_loan("join", &loan, live, &text, claim.lease.as_micros().div_ceil(1000)).await? {
            return Ok(None);
        }
        self.lent.held(line, loan, claim.id);
        Ok(Some(ticket))
    }

    /// Writes into the key of a loan, if it is still there.
    pub(super) async fn write_loan(
        &self,
        operation: &'static str,
        loan: &Loan,
        live: &Arc<Live>,
        text: &str,
        ms: u128,
    ) -> Result<bool> {
        #[cfg(test)]
        let ms = if live.told_time().is_some() { ms + u128::from(super::scripts::TEST_SPARE_MS) } else { ms };
        let mut cmd = Cmd::with_capacity(6, loan.key.len() + text.len() + 32);
        cmd.arg("SET")
            .arg(&loan.key)
            .arg(text)
            .arg("XX")
            .arg("PX")
            .arg(u64::try_from(ms).unwrap_or(u64::MAX));
        match outbox::send(live, cmd).await {
            Ok(answer) => Ok(answer == Value::Okay),
            // The server refused it, for lack of memory or whatever: the usual way says so, or does it anyway.
            Err(e) if e.code().is_some() => Ok(false),
            Err(e) => Err(self.explain(operation, &e)),
        }
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("lines", &locked(&self.lines).len()).finish_non_exhaustive()
    }
}
