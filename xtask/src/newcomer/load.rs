//! Deposits from many callers at once, and an honest account of which of them were made.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Result, ensure};

use super::http::{self, Unknown};

/// How many callers there are, and on how few accounts: each account is wanted by several of them.
const CALLERS: u64 = 8;
const ACCOUNTS: u64 = 3;

/// One deposit, by the name that its caller gave it.
#[derive(Clone, Debug)]
struct Deposit {
    account: u64,
    amount: u64,
    request: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Acknowledged,
    /// Not made, for sure: somebody else held the account.
    Busy,
    /// Not made, for sure: nobody listened.
    Unreachable,
    /// Made or not.
    Unknown,
}

impl Deposit {
    fn make(&self, address: SocketAddr) -> Outcome {
        let Some(mut stream) = http::connect(address) else { return Outcome::Unreachable };
        let Deposit { account, amount, request } = self;
        let body = serde_json::json!({ "amount": amount, "request": request }).to_string();
        let sent = http::send(&mut stream, "POST", &format!("/accounts/{account}/deposit"), &body);
        match sent.and_then(|()| http::receive(&mut stream)) {
            Ok(answer) if answer.status == 200 => Outcome::Acknowledged,
            Ok(answer) if answer.status == 409 => Outcome::Busy,
            // A database that went away during a commit is answered with 503, too.
            Ok(_) | Err(Unknown) => Outcome::Unknown,
        }
    }
}

/// What became of all deposits.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    paid_in: BTreeMap<u64, u64>,
    unknown: Vec<Deposit>,
    pub(super) acknowledged: u64,
    pub(super) busy: u64,
}

impl Ledger {
    fn write(&mut self, deposit: Deposit, outcome: &Outcome) {
        match outcome {
            Outcome::Acknowledged => {
                self.acknowledged += 1;
                *self.paid_in.entry(deposit.account).or_default() += deposit.amount;
            }
            Outcome::Busy => self.busy += 1,
            Outcome::Unreachable => {}
            Outcome::Unknown => self.unknown.push(deposit),
        }
    }

    fn add(&mut self, other: Ledger) {
        for (account, amount) in other.paid_in {
            *self.paid_in.entry(account).or_default() += amount;
        }
        self.unknown.extend(other.unknown);
        self.acknowledged += other.acknowledged;
        self.busy += other.busy;
    }

    /// How many got no answer.
    pub(super) fn unknown(&self) -> usize {
        self.unknown.len()
    }

    /// Makes every deposit again whose outcome nobody knows, under the same name, as a caller does who got no answer.
    pub(super) fn settle(&mut self, address: SocketAddr) -> Result<()> {
        for deposit in std::mem::take(&mut self.unknown) {
            let outcome = deposit.make(address);
            ensure!(outcome == Outcome::Acknowledged, "{deposit:?} made again: {outcome:?}");
            self.write(deposit, &outcome);
        }
        Ok(())
    }

    /// Compares every balance with what was acknowledged: nothing is missing, and nothing is there twice.
    pub(super) fn check(&self, address: SocketAddr) -> Result<()> {
        for (account, expected) in &self.paid_in {
            let found = http::ask(address, "GET", &format!("/accounts/{account}"))?.json()?;
            let found = &found["balance"];
            ensure!(found == *expected, "account {account} has {found}, and {expected} was paid in");
        }
        Ok(())
    }
}

/// How far it has come, and when it is to end.
#[derive(Debug, Default)]
pub(super) struct Progress {
    acknowledged: AtomicU64,
    ended: AtomicBool,
}

impl Progress {
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }
}

/// Ends the load when it goes out of scope, also because something failed: its callers are waited for.
pub(super) struct EndsLoad<'a>(pub(super) &'a Progress);

impl Drop for EndsLoad<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
    }
}

/// Makes deposits on these instances until it is told to end. A caller whose instance is gone goes to the next one.
pub(super) fn load(addresses: &[SocketAddr], progress: &Progress) -> Ledger {
    let call = |caller: u64| {
        let mut ledger = Ledger::default();
        let mut instances = addresses.iter().cycle().skip(caller as usize % addresses.len());
        let mut address = instances.next();
        for n in 0.. {
            let Some(to) = address.filter(|_| !progress.ended.load(Ordering::Relaxed)) else { break };
            let deposit = Deposit {
                account: (caller + n) % ACCOUNTS,
                amount: 1 + n % 7,
                request: format!("{caller}-{n}"),
            };
            let outcome = deposit.make(*to);
            match outcome {
                Outcome::Acknowledged => {
                    progress.acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Outcome::Unreachable => address = instances.next(),
                Outcome::Busy | Outcome::Unknown => {}
            }
            ledger.write(deposit, &outcome);
        }
        ledger
    };
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|caller| scope.spawn(move || call(caller))).collect();
        let mut all = Ledger::default();
        for caller in callers {
            // A caller that panicked has told why, and what it did is missing in the account: the balances will not fit.
            all.add(caller.join().unwrap_or_default());
        }
        all
    })
}
