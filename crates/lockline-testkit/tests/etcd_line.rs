//! Generated histories on the pure machine and on etcd, compared step by step: answers, bells, views. Runs if the run
//! includes `etcd`.
//!
//! Of the recipe everything is compared but time: a server's leases cannot be told another clock, so in these histories no
//! lease ends. Tickets of the machine and create revisions are different numbers in the same order; each is compared as what
//! the other calls it. `look_again` is left out, because it is a time.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use lockline::driver::{BellBoard, Driver, Query};
use lockline::line::{Bell, Claim, ClaimId, Line, Mode, News, Now, Place, Standing, Ticket, Who};
use lockline::time::Time;
use lockline::{ErrorKind, Name};
use lockline_testkit::{engine, engines};

const NAMES: [&str; 3] = ["a", "a/b", "ü'\"%"];
const LEASE: Duration = Duration::from_secs(60);
const HISTORIES: u64 = 24;
const STEPS: usize = 60;

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<(String, u128, u64, bool)>>);

impl BellBoard for Heard {
    fn ring(&self, name: &Name, bell: &Bell) {
        let heard = (name.as_str().to_owned(), bell.id.as_u128(), bell.ticket.get(), bell.news == News::In);
        self.0.lock().unwrap().push(heard);
    }
    fn acknowledged(&self, _id: ClaimId, _replicas: u32) {}

    fn look_now(&self, _id: ClaimId) {}

    fn look_at_all(&self) {}
}

/// The machine, one line per name, and the engine beside it.
struct Pair {
    lines: BTreeMap<usize, Line>,
    driver: Arc<dyn Driver>,
    heard: Arc<Heard>,
    /// What the engine calls a ticket of the machine's.
    revisions: HashMap<(usize, u64), u64>,
    tickets: Vec<(usize, u128, u64)>,
    now: u64,
}

impl Pair {
    fn now(&mut self) -> Now {
        self.now += 1;
        Now { at: Time::from_micros(self.now), ticket_us: self.now }
    }

    /// An answer of the machine's, as the engine would give it.
    fn translated(&self, name: usize, standing: Standing) -> Standing {
        let revision = |ticket: Ticket| {
            Ticket::new(self.revisions.get(&(name, ticket.get())).copied().unwrap_or_default())
        };
        match standing {
            Standing::In { ticket } => Standing::In { ticket: revision(ticket) },
            Standing::Waiting { ticket, ahead, .. } => {
                Standing::Waiting { ticket: revision(ticket), ahead, look_again: Duration::ZERO }
            }
            other => other,
        }
    }

    fn learn(&mut self, name: usize, id: u128, machine: Standing, engine: Standing) {
        if let (Some(ticket), Some(revision)) = (machine.ticket(), engine.ticket()) {
            let known = self.revisions.entry((name, ticket.get())).or_insert(revision.get());
            assert_eq!(*known, revision.get(), "one ticket, one revision");
            if !self.tickets.contains(&(name, id, ticket.get())) {
                self.tickets.push((name, id, ticket.get()));
            }
        }
    }

    async fn join(
        &mut self,
        name: usize,
        id: u128,
        mode: Mode,
        identity: Option<u8>,
        wait: bool,
    ) -> Vec<Bell> {
        let claim = Claim {
            name: Name::new(NAMES[name]).unwrap(),
            id: ClaimId::from_u128(id),
            mode,
            lease: LEASE,
            who: Arc::new(Who { owner: format!("owner {id}"), host: "h".into(), pid: 7 }),
            identity: identity.map(|identity| format!("identity {identity}").into()),
            primitive: lockline::line::Primitive::Mutex,
        };
        let now = self.now();
        let step = self.lines.get_mut(&name).unwrap().join(now, &claim, wait);
        let answer = self.driver.join(&claim, wait).await;
        match (step.answer, answer) {
            (Ok(expected), Ok(answer)) => {
                self.learn(name, id, expected, answer);
                assert_eq!(
                    without_ahead(answer),
                    without_ahead(self.translated(name, expected)),
                    "join {claim:?} {wait}"
                );
            }
            (Err(_), Err(error)) => assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}"),
            (expected, answer) => panic!("join {claim:?}: {answer:?}, not {expected:?}"),
        }
        step.bells
    }

    fn place(&self, name: usize, id: u128, revision: Option<u64>) -> Place {
        Place {
            name: Name::new(NAMES[name]).unwrap(),
            id: ClaimId::from_u128(id),
            ticket: revision.map(Ticket::new),
            lease: LEASE,
            last: false,
        }
    }

    async fn renew(&mut self, name: usize, id: u128) -> Vec<Bell> {
        let now = self.now();
        let place = self.place(name, id, None);
        let step = self.lines.get_mut(&name).unwrap().renew(now, &place);
        let answer = self.driver.renew(&[self.place(name, id, None)]).await.unwrap()[0];
        assert_eq!(
            without_ahead(answer),
            without_ahead(self.translated(name, step.answer)),
            "renew {name} {id}"
        );
        step.bells
    }

    async fn leave(&mut self, name: usize, id: u128) -> Vec<Bell> {
        let now = self.now();
        let step = self.lines.get_mut(&name).unwrap().leave(now, ClaimId::from_u128(id));
        self.driver.leave(&self.place(name, id, None)).await.unwrap();
        step.bells
    }

    async fn evict(&mut self, nth: usize, at_once: bool) -> (usize, Vec<Bell>) {
        let Some(&(name, _, ticket)) = self.tickets.get(nth) else { return (0, Vec::new()) };
        let now = self.now();
        let step = self.lines.get_mut(&name).unwrap().evict(now, Ticket::new(ticket), at_once);
        let revision = Ticket::new(self.revisions[&(name, ticket)]);
        let answer = self.driver.evict(&Name::new(NAMES[name]).unwrap(), revision, at_once).await.unwrap();
        assert_eq!(answer, step.answer, "evict {name} #{ticket} at once: {at_once}");
        (name, step.bells)
    }

    async fn compare_views(&mut self) {
        let found = self.driver.view(&Query::Prefix(String::new())).await.unwrap();
        let mut expected = Vec::new();
        for (&name, line) in self.lines.iter().filter(|(_, line)| !line.is_empty()) {
            let view = line.view(Time::from_micros(self.now), &Name::new(NAMES[name]).unwrap());
            let claims = |claims: &[lockline::line::ClaimView]| {
                let mut claims: Vec<_> = claims
                    .iter()
                    .map(|claim| {
                        (
                            self.revisions[&(name, claim.ticket.get())],
                            claim.who.owner.clone(),
                            claim.mode,
                            claim.evicted,
                        )
                    })
                    .collect();
                claims.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
                claims
            };
            expected.push((NAMES[name].to_owned(), claims(&view.holders), claims(&view.waiters)));
        }
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        let claims = |claims: &[lockline::line::ClaimView]| {
            let mut claims: Vec<_> = claims
                .iter()
                .map(|claim| (claim.ticket.get(), claim.who.owner.clone(), claim.mode, claim.evicted))
                .collect();
            claims.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
            claims
        };
        let found: Vec<_> = found
            .iter()
            .map(|line| (line.name.as_str().to_owned(), claims(&line.holders), claims(&line.waiters)))
            .collect();
        assert_eq!(found, expected);
    }

    /// What the machine rang at once the engine rings soon, and nothing else.
    async fn compare_bells(&self, name: usize, bells: Vec<Bell>) {
        let mut expected: Vec<_> = bells
            .iter()
            .map(|bell| {
                let revision = self.revisions[&(name, bell.ticket.get())];
                (NAMES[name].to_owned(), bell.id.as_u128(), revision, bell.news == News::In)
            })
            .collect();
        expected.sort();
        let start = Instant::now();
        loop {
            let mut heard = self.heard.0.lock().unwrap().clone();
            heard.sort();
            heard.dedup();
            if heard == expected {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(5), "heard {heard:?}, not {expected:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.heard.0.lock().unwrap().clear();
    }
}

/// How many stand before a claim is exact when it joins, and a bound afterwards: it is for people.
fn without_ahead(standing: Standing) -> Standing {
    match standing {
        Standing::Waiting { ticket, .. } => {
            Standing::Waiting { ticket, ahead: 0, look_again: Duration::ZERO }
        }
        other => other,
    }
}

async fn history(seed: u64) {
    let engine = engine::etcd("etcd");
    let heard = Arc::new(Heard::default());
    let driver = engine.open(heard.clone()).await.unwrap();
    let lines = (0..NAMES.len()).map(|name| (name, Line::default())).collect();
    let mut pair = Pair { lines, driver, heard, revisions: HashMap::new(), tickets: Vec::new(), now: 0 };
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..STEPS {
        let (name, id) = (random.usize(..NAMES.len()), u128::from(random.u8(..12)));
        let (name, bells) = match random.u8(..20) {
            0..9 => {
                let mode = match random.u8(..7) {
                    0..3 => Mode::Exclusive,
                    3 | 4 => Mode::Shared,
                    _ => Mode::Permits { count: random.u32(1..4), limit: random.u32(3..5) },
                };
                let identity = (random.u8(..10) < 3).then(|| random.u8(..2));
                // An id is one claim: the same one again is a copy of it, in the same mode.
                let known = pair.tickets.iter().any(|(_, of, _)| *of == id);
                let wait = random.u8(..5) > 0;
                if known {
                    (name, pair.renew(name, id).await)
                } else {
                    (name, pair.join(name, id, mode, identity, wait).await)
                }
            }
            9..12 => (name, pair.renew(name, id).await),
            12..17 => {
                let bells = pair.leave(name, id).await;
                pair.tickets.retain(|(at, of, _)| (*at, *of) != (name, id));
                (name, bells)
            }
            17 => {
                let nth = random.usize(..8);
                pair.evict(nth, random.bool()).await
            }
            _ => {
                pair.compare_views().await;
                continue;
            }
        };
        pair.compare_bells(name, bells).await;
    }
    pair.compare_views().await;
}

fn main() -> ExitCode {
    let left_out = engines::required_url("etcd").is_none();
    let trials = (0..HISTORIES).map(|seed| {
        Trial::test(format!("history_{seed}"), move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            runtime.block_on(history(seed));
            Ok(())
        })
        .with_ignored_flag(left_out)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
