//! Generated histories, run on the pure machine and on an engine, must agree step by step: answers, bells, views.
//! Each driver's tests bring their engine as a [`Subject`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use crate::driver::{Driver, Query};
use crate::error::ErrorKind;
use crate::line::{
    Bell, Claim, ClaimId, Line, LineView, Mode, News, Now, Place, Primitive, Refusal, Standing, Ticket, Who,
};
use crate::name::Name;
use crate::time::Time;

const NAMES: [&str; 3] = ["a", "a/b", "ü'\"%"];

/// An engine that is compared with the machine.
pub(crate) trait Subject {
    /// It has one ticket counter for all lines, and drops with every verb what lapsed in any of them; its tickets are
    /// counted on another clock than its leases, which never goes back.
    const ONE_LEDGER: bool;

    /// It renews the places of a line in the order of their tickets, and not as asked: whoever waits then finds those before it renewed.
    const RENEWS_BY_TICKET: bool = false;

    fn driver(&self) -> &dyn Driver;

    /// The moment at which everything happens from now on.
    fn set_clock(&self, now: Now);

    /// Whether a join to this line that is called now waits for a leave, to be done after it in the same call.
    fn waits_for_leave(&self, _: &Name) -> bool {
        false
    }

    /// The first ticket for a claim that joins now: an engine may have promised others to somebody.
    async fn first_ticket(&self, _: &Claim, now: u64) -> u64 {
        now
    }

    /// What was rung since the last time; at least `expected` bells, unless they got lost.
    async fn heard(&self, expected: usize) -> Vec<(Name, Bell)>;
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Pass {
        ms: u64,
        wall: i64,
    },
    Join {
        name: usize,
        id: u128,
        mode: Mode,
        lease_ms: u64,
        identity: Option<u8>,
        wait: bool,
    },
    Renew {
        places: Vec<(usize, u128, u8)>,
        lease_ms: u64,
        last: bool,
    },
    Leave {
        name: usize,
        id: u128,
    },
    /// One leaves and another joins.
    Swap {
        name: usize,
        leaves: u128,
        joins: u128,
        lease_ms: u64,
    },
    Evict {
        name: usize,
        nth: usize,
        at_once: bool,
    },
    View {
        prefix: &'static str,
    },
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        3 => Just(Mode::Exclusive),
        2 => Just(Mode::Shared),
        2 => (1u32..4, 1u32..5).prop_map(|(count, limit)| Mode::Permits { count, limit }),
    ]
}

pub(crate) fn history() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 100..400)
}

fn op() -> impl Strategy<Value = Op> {
    let name = 0..NAMES.len();
    // Zero is nobody's.
    let id = 1u128..15;
    let lease = prop_oneof![Just(40u64), Just(900), Just(3000), Just(10_000)];
    prop_oneof![
        3 => (prop_oneof![0u64..5, 0u64..2000, Just(4000u64)], -3000i64..6000)
            .prop_map(|(ms, wall)| Op::Pass { ms, wall }),
        8 => (name.clone(), id.clone(), mode(), lease.clone(), prop::option::weighted(0.3, 0u8..2), prop::bool::weighted(0.8))
            .prop_map(|(name, id, mode, lease_ms, identity, wait)| Op::Join { name, id, mode, lease_ms, identity, wait }),
        4 => (prop::collection::vec((name.clone(), id.clone(), 0u8..8), 1..5), lease.clone(), prop::bool::weighted(0.2))
            .prop_map(|(places, lease_ms, last)| Op::Renew { places, lease_ms, last }),
        4 => (name.clone(), id.clone()).prop_map(|(name, id)| Op::Leave { name, id }),
        5 => (name.clone(), id.clone(), id, lease)
            .prop_map(|(name, leaves, joins, lease_ms)| Op::Swap { name, leaves, joins, lease_ms }),
        1 => (name, 0usize..5, any::<bool>()).prop_map(|(name, nth, at_once)| Op::Evict { name, nth, at_once }),
        1 => prop_oneof![Just(""), Just("a"), Just("a/"), Just("ü")].prop_map(|prefix| Op::View { prefix }),
    ]
}

/// The machine, one line per name, and the engine beside it.
pub(crate) struct Pair<S> {
    lines: BTreeMap<usize, Line>,
    now_us: u64,
    wall_us: u64,
    /// The clock that leases are counted on may step back.
    steps_back: bool,
    subject: S,
    known: HashMap<(usize, u128), Ticket>,
}

/// When histories begin, on the clock of leases and on that of tickets.
pub(crate) const BEGINS: (u64, u64) = (1_000_000, 50_000_000);

type Rung = (Name, u64, u128, bool);

impl<S: Subject> Pair<S> {
    pub(crate) fn new(subject: S) -> Pair<S> {
        Pair::with(subject, Line::default(), !S::ONE_LEDGER)
    }

    /// The engine was restarted when the history begins: nobody becomes in before the guard ends.
    #[cfg(feature = "redis")]
    pub(crate) fn restarted(subject: S, guard: Duration) -> Pair<S> {
        // A guard that has ended is forgotten by the machine, and met again by an engine whose clock steps back.
        Pair::with(subject, Line::restarted(Time::from_micros(BEGINS.0), guard), false)
    }

    fn with(subject: S, line: Line, steps_back: bool) -> Pair<S> {
        let lines = (0..NAMES.len()).map(|name| (name, line.clone())).collect();
        let pair = Pair {
            lines,
            now_us: BEGINS.0,
            wall_us: if S::ONE_LEDGER { BEGINS.1 } else { BEGINS.0 },
            steps_back,
            subject,
            known: HashMap::new(),
        };
        pair.tell_clock();
        pair
    }

    fn tell_clock(&self) {
        let (at, ticket_us) = (Time::from_micros(self.now_us), self.wall_us);
        self.subject.set_clock(Now { at, ticket_us });
    }

    fn now(&self) -> Now {
        let at = Time::from_micros(self.now_us);
        if !S::ONE_LEDGER {
            return Now { at, ticket_us: self.now_us };
        }
        let last = self.lines.values().map(|line| line.last_ticket().get()).max().unwrap_or(0);
        Now { at, ticket_us: self.wall_us.max(last + 1) }
    }

    /// For a claim that joins.
    async fn now_for(&self, claim: &Claim) -> Now {
        let now = self.now();
        Now { ticket_us: self.subject.first_ticket(claim, now.ticket_us).await, ..now }
    }

    /// One ledger drops what lapsed in all lines with every verb; the machine only in its own.
    fn tick_others(&mut self, but: Option<usize>, rung: &mut Vec<Rung>) {
        let now = self.now();
        if S::ONE_LEDGER {
            for (&name, line) in self.lines.iter_mut().filter(|(name, _)| Some(**name) != but) {
                note(name, line.tick(now).bells, rung);
            }
        }
    }

    /// Runs a history.
    pub(crate) async fn run(mut self, ops: &[Op]) -> Result<(), TestCaseError> {
        for op in ops {
            self.step(op).await?;
        }
        Ok(())
    }

    async fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let mut rung = Vec::new();
        match op {
            Op::Pass { ms, wall } => {
                self.now_us += ms * 1000;
                self.wall_us = self.wall_us.saturating_add_signed(*wall);
                if self.steps_back && *wall < -2000 {
                    self.now_us = self.now_us.saturating_add_signed(wall * 1000).max(1000);
                }
                self.tell_clock();
            }
            Op::Join { name, id, mode, lease_ms, identity, wait } => {
                let claim = claim(*name, *id, *mode, *lease_ms, *identity);
                let now = self.now_for(&claim).await;
                self.tick_others(Some(*name), &mut rung);
                let step = self.lines.get_mut(name).unwrap().join(now, &claim, *wait);
                note(*name, step.bells, &mut rung);
                let answer = self.subject.driver().join(&claim, *wait).await.map_err(|e| {
                    assert_eq!(e.kind(), ErrorKind::Deadlock, "{e:?}");
                    Refusal::WouldWaitForItself
                });
                prop_assert_eq!(&answer, &step.answer);
                self.learn(*name, *id, answer.ok());
            }
            Op::Renew { places, lease_ms, last } => self.renew(places, *lease_ms, *last, &mut rung).await?,
            Op::Leave { name, id } => {
                let now = self.now();
                self.tick_others(Some(*name), &mut rung);
                note(
                    *name,
                    self.lines.get_mut(name).unwrap().leave(now, ClaimId::from_u128(*id)).bells,
                    &mut rung,
                );
                self.subject.driver().leave(&self.place(*name, *id, 0, 1, false)).await.unwrap();
            }
            Op::Swap { name, leaves, joins, lease_ms } => {
                self.swap(*name, *leaves, *joins, *lease_ms, &mut rung).await?;
            }
            Op::Evict { name, nth, at_once } => {
                let now = self.now();
                let mut tickets: Vec<u64> = self
                    .known
                    .iter()
                    .filter(|(key, _)| key.0 == *name)
                    .map(|(_, ticket)| ticket.get())
                    .collect();
                tickets.sort_unstable();
                let ticket = Ticket::new(tickets.get(*nth).copied().unwrap_or(3));
                self.tick_others(Some(*name), &mut rung);
                let step = self.lines.get_mut(name).unwrap().evict(now, ticket, *at_once);
                note(*name, step.bells, &mut rung);
                let name = Name::new(NAMES[*name]).unwrap();
                prop_assert_eq!(
                    self.subject.driver().evict(&name, ticket, *at_once).await.unwrap(),
                    step.answer
                );
            }
            Op::View { prefix } => {
                self.tick_others(None, &mut rung);
                for query in [Query::Prefix((*prefix).to_owned()), Query::Name(Name::new(NAMES[0]).unwrap())]
                {
                    self.compare_views(&query, &mut rung).await?;
                }
            }
        }
        let mut heard = Vec::new();
        for (name, bell) in self.subject.heard(rung.len()).await {
            note(NAMES.iter().position(|known| *known == name.as_str()).unwrap(), vec![bell], &mut heard);
        }
        rung.sort();
        heard.sort();
        prop_assert_eq!(heard, rung);
        Ok(())
    }

    async fn swap(
        &mut self,
        name: usize,
        leaves: u128,
        joins: u128,
        lease_ms: u64,
        rung: &mut Vec<Rung>,
    ) -> Result<(), TestCaseError> {
        let claim = claim(name, joins, Mode::Exclusive, lease_ms, None);
        // Mostly whoever is in.
        let leaves = if leaves > 3 { self.holder(name).unwrap_or(leaves) } else { leaves };
        let place = self.place(name, leaves, 2, 1, false);
        self.tick_others(Some(name), rung);
        let together = leaves != joins && self.subject.waits_for_leave(&claim.name);
        let now = self.now();
        note(name, self.lines.get_mut(&name).unwrap().leave(now, place.id).bells, rung);
        if !together {
            self.subject.driver().leave(&place).await.unwrap();
        }
        let now = self.now_for(&claim).await;
        let step = self.lines.get_mut(&name).unwrap().join(now, &claim, true);
        note(name, step.bells, rung);
        let driver = self.subject.driver();
        let answer = if together {
            let (answer, left) = tokio::join!(driver.join(&claim, true), driver.leave(&place));
            left.unwrap();
            answer.unwrap()
        } else {
            driver.join(&claim, true).await.unwrap()
        };
        prop_assert_eq!(Ok(answer), step.answer);
        self.learn(name, joins, Some(answer));
        Ok(())
    }

    /// Of the claims that are known, one that was in when its line was last looked at.
    fn holder(&self, name: usize) -> Option<u128> {
        let view = self.lines[&name].view(self.now().at, &Name::new(NAMES[name]).unwrap());
        let ticket = view.holders.first()?.ticket;
        self.known
            .iter()
            .filter(|(key, known)| key.0 == name && **known == ticket)
            .map(|(key, _)| key.1)
            .min()
    }

    async fn renew(
        &mut self,
        places: &[(usize, u128, u8)],
        lease_ms: u64,
        last: bool,
        rung: &mut Vec<Rung>,
    ) -> Result<(), TestCaseError> {
        let now = self.now();
        self.tick_others(None, rung);
        let places: Vec<(usize, Place)> =
            places.iter().map(|&(name, id, how)| (name, self.place(name, id, how, lease_ms, last))).collect();
        let mut expected = vec![Standing::Unsure; places.len()];
        for nth in order_of_renewals::<S>(&places) {
            let (name, place) = &places[nth];
            let step = self.lines.get_mut(name).unwrap().renew(now, place);
            note(*name, step.bells, rung);
            expected[nth] = step.answer;
        }
        let asked: Vec<Place> = places.iter().map(|(_, place)| place.clone()).collect();
        let answers = self.subject.driver().renew(&asked).await.unwrap();
        prop_assert_eq!(&answers, &expected);
        for ((name, place), answer) in places.iter().zip(answers) {
            self.learn(*name, place.id.as_u128(), Some(answer));
        }
        Ok(())
    }

    async fn compare_views(&mut self, query: &Query, rung: &mut Vec<Rung>) -> Result<(), TestCaseError> {
        let now = self.now();
        for (&name, line) in &mut self.lines {
            // A walk over all lines looks at each; otherwise only the one that is asked for moves on.
            let looked_at = matches!(query, Query::Prefix(_)) || query.matches(NAMES[name]);
            if looked_at || S::ONE_LEDGER {
                note(name, line.tick(now).bells, rung);
            }
        }
        let mut found = self.subject.driver().view(query).await.unwrap();
        let mut expected: Vec<LineView> = (self.lines.iter().filter(|(_, line)| !line.is_empty()))
            .map(|(&name, line)| line.view(self.now().at, &Name::new(NAMES[name]).unwrap()))
            .filter(|line| query.matches(line.name.as_str()))
            .collect();
        for line in found.iter_mut().chain(&mut expected) {
            // Holds on one place that joined at the same moment have no order.
            line.holders.sort_by(|a, b| (a.ticket, &a.who.owner).cmp(&(b.ticket, &b.who.owner)));
            line.waiters.sort_by(|a, b| (a.ticket, &a.who.owner).cmp(&(b.ticket, &b.who.owner)));
        }
        expected.sort_by(|a, b| a.name.cmp(&b.name));
        for (line, expected) in found.iter().zip(&mut expected) {
            for (claim, expected) in line.holders.iter().zip(&mut expected.holders) {
                // Some engines keep only when the last one got in, who may be gone.
                if claim.held.is_none() && claim.mode != Mode::Exclusive {
                    expected.held = None;
                }
            }
        }
        prop_assert_eq!(found, expected);
        Ok(())
    }

    /// Mostly with the ticket it knows; sometimes with none, or with a wrong one.
    fn place(&self, name: usize, id: u128, how: u8, lease_ms: u64, last: bool) -> Place {
        let ticket = match how {
            0 => None,
            1 => Some(Ticket::new(12)),
            _ => self.known.get(&(name, id)).copied(),
        };
        let lease = Duration::from_millis(lease_ms);
        Place { name: Name::new(NAMES[name]).unwrap(), id: ClaimId::from_u128(id), ticket, lease, last }
    }

    fn learn(&mut self, name: usize, id: u128, standing: Option<Standing>) {
        if let Some(ticket) = standing.and_then(|standing| standing.ticket()) {
            self.known.insert((name, id), ticket);
        }
    }
}

fn claim(name: usize, id: u128, mode: Mode, lease_ms: u64, identity: Option<u8>) -> Claim {
    Claim {
        name: Name::new(NAMES[name]).unwrap(),
        id: ClaimId::from_u128(id),
        mode,
        lease: Duration::from_millis(lease_ms),
        who: Arc::new(Who { owner: format!("owner {id}"), host: "h".into(), pid: 7 }),
        identity: identity.map(|identity| format!("identity {identity}").into()),
        primitive: Primitive::Mutex,
    }
}

fn order_of_renewals<S: Subject>(places: &[(usize, Place)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    let each: HashSet<_> = places.iter().map(|(name, place)| (name, place.id)).collect();
    if S::RENEWS_BY_TICKET && each.len() == places.len() {
        order.sort_by_key(|&nth| (places[nth].0, places[nth].1.ticket));
    }
    order
}

fn note(name: usize, bells: Vec<Bell>, into: &mut Vec<Rung>) {
    let name = Name::new(NAMES[name]).unwrap();
    into.extend(
        bells
            .into_iter()
            .map(|Bell { id, ticket, news }| (name.clone(), ticket.get(), id.as_u128(), news == News::In)),
    );
}
