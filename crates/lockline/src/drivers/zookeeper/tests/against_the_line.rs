//! The recipe against the pure machine: the same claims in the same order, and the answers, the bells and the views agree.
//!
//! Tickets are the ensemble's own numbers, so they are compared by their order. Leases do not end here: the ensemble knows
//! sessions, and what a client does when a lease ends is shown by the conformance suite.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{Ensemble, included, open, place};
use crate::driver::{Driver, Query};
use crate::drivers::testing::Heard;
use crate::drivers::zookeeper::{Zookeeper, ZookeeperConfig};
use crate::error::ErrorKind;
use crate::line::{
    Claim, ClaimId, Line, LineView, Mode, News, Now, Primitive, Refusal, Standing, Ticket, Who,
};
use crate::name::Name;
use crate::time::Time;

#[derive(Clone, Debug)]
enum Op {
    Join { mode: Mode, identity: Option<u8>, wait: bool, rwlock: bool },
    Again { nth: usize },
    Leave { nth: usize },
    Close { nth: usize },
    View,
}

fn op() -> impl Strategy<Value = Op> {
    let mode = prop_oneof![
        3 => Just(Mode::Exclusive),
        2 => Just(Mode::Shared),
        3 => (1u32..4, 1u32..5).prop_filter_map("never to be had", |(count, limit)| {
            (count <= limit).then_some(Mode::Permits { count, limit })
        }),
    ];
    prop_oneof![
        6 => (mode, prop::option::weighted(0.3, 0u8..2), prop::bool::weighted(0.8), any::<bool>())
            .prop_map(|(mode, identity, wait, rwlock)| Op::Join { mode, identity, wait, rwlock }),
        1 => (0usize..6).prop_map(|nth| Op::Again { nth }),
        5 => (0usize..6).prop_map(|nth| Op::Leave { nth }),
        1 => (0usize..2).prop_map(|nth| Op::Close { nth }),
        1 => Just(Op::View),
    ]
}

/// The machine, and the ensemble beside it.
struct Pair {
    line: Line,
    now_us: u64,
    driver: Zookeeper,
    heard: Arc<Heard>,
    /// Claims that stand in the line, oldest first.
    standing: Vec<Claim>,
    /// The machine's tickets, and the ensemble's.
    tickets: BTreeMap<Ticket, Ticket>,
    made: u128,
}

impl Pair {
    async fn new(config: ZookeeperConfig) -> Pair {
        let (driver, heard) = open(config).await;
        let tickets = BTreeMap::new();
        Pair { line: Line::default(), now_us: 1000, driver, heard, standing: Vec::new(), tickets, made: 0 }
    }

    fn now(&mut self) -> Now {
        self.now_us += 1000;
        Now { at: Time::from_micros(self.now_us), ticket_us: self.now_us }
    }

    /// Two tickets of the same place.
    fn same(&mut self, machine: Ticket, ensemble: Ticket) -> Result<(), TestCaseError> {
        prop_assert_eq!(*self.tickets.entry(machine).or_insert(ensemble), ensemble);
        prop_assert!(self.tickets.values().is_sorted(), "the order of tickets");
        Ok(())
    }

    async fn join(&mut self, claim: Claim, wait: bool) -> Result<Vec<(u128, bool)>, TestCaseError> {
        let now = self.now();
        let step = self.line.join(now, &claim, wait);
        let answer = self.driver.join(&claim, wait).await;
        match (&step.answer, &answer) {
            (Err(Refusal::WouldWaitForItself), Err(error)) => {
                prop_assert_eq!(error.kind(), ErrorKind::Deadlock)
            }
            (Ok(Standing::In { ticket: a }), Ok(Standing::In { ticket: b })) => self.same(*a, *b)?,
            (
                Ok(Standing::Waiting { ticket: a, ahead: before, .. }),
                Ok(Standing::Waiting { ticket: b, ahead, .. }),
            ) => {
                prop_assert_eq!(before, ahead);
                self.same(*a, *b)?;
            }
            (Ok(Standing::Out), Ok(Standing::Out)) => {}
            other => prop_assert!(false, "they disagree: {:?}", other),
        }
        if step.answer.is_ok_and(|standing| standing.ticket().is_some()) && !self.knows(claim.id) {
            self.standing.push(claim);
        }
        Ok(step.bells.into_iter().map(|bell| (bell.id.as_u128(), bell.news == News::In)).collect())
    }

    fn knows(&self, id: ClaimId) -> bool {
        self.standing.iter().any(|claim| claim.id == id)
    }

    async fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let mut rung = match op {
            Op::Join { mode, identity, wait, rwlock } => {
                self.made += 1;
                let claim = Claim {
                    name: Name::new("m").unwrap(),
                    id: ClaimId::from_u128(self.made),
                    mode: *mode,
                    lease: Duration::from_secs(30),
                    who: Arc::new(Who { owner: format!("owner {}", self.made), host: "h".into(), pid: 7 }),
                    identity: identity.map(|identity| format!("identity {identity}").into()),
                    primitive: if *rwlock { Primitive::RwLock } else { Primitive::Mutex },
                };
                self.join(claim, *wait).await?
            }
            Op::Again { nth } => match self.standing.get(*nth).cloned() {
                Some(claim) => self.join(claim, true).await?,
                None => return Ok(()),
            },
            Op::Leave { nth } => {
                if *nth >= self.standing.len() {
                    return Ok(());
                }
                let claim = self.standing.remove(*nth);
                let now = self.now();
                let bells = self.line.leave(now, claim.id).bells;
                self.driver.leave(&place(&claim, None)).await.unwrap();
                bells.into_iter().map(|bell| (bell.id.as_u128(), bell.news == News::In)).collect()
            }
            Op::Close { nth } => self.close(*nth).await?,
            Op::View => return self.compare_views().await,
        };
        // A bell is on its way for as long as the ensemble takes to tell.
        let start = Instant::now();
        while self.heard.count() < rung.len() && start.elapsed() < Duration::from_secs(5) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut heard: Vec<_> = self
            .heard
            .take()
            .into_iter()
            .map(|(_, bell)| (bell.id.as_u128(), bell.news == News::In))
            .collect();
        rung.sort_unstable();
        heard.sort_unstable();
        prop_assert_eq!(heard, rung);
        Ok(())
    }

    /// Evicts a holder: it stays where it is, and is told.
    async fn close(&mut self, nth: usize) -> Result<Vec<(u128, bool)>, TestCaseError> {
        let now = self.now();
        let view = self.line.view(now.at, &Name::new("m").unwrap());
        let Some(holder) = view.holders.get(nth).filter(|holder| !holder.evicted) else {
            return Ok(Vec::new());
        };
        // Until its own znode is watched.
        tokio::time::sleep(Duration::from_millis(250)).await;
        let step = self.line.evict(now, holder.ticket, false);
        let ticket = self.tickets[&holder.ticket];
        prop_assert_eq!(self.driver.evict(&view.name, ticket, false).await.unwrap(), step.answer);
        // Its clients leave when they are told; only that lets the others in.
        let mut rung: Vec<_> =
            step.bells.iter().map(|bell| (bell.id.as_u128(), bell.news == News::In)).collect();
        let told: Vec<_> = rung.iter().map(|(id, _)| ClaimId::from_u128(*id)).collect();
        for id in told {
            let start = Instant::now();
            while self.heard.count() < step.bells.len() && start.elapsed() < Duration::from_secs(5) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let Some(index) = self.standing.iter().position(|claim| claim.id == id) else { continue };
            let claim = self.standing.remove(index);
            let now = self.now();
            let bells = self.line.leave(now, claim.id).bells;
            rung.extend(bells.iter().map(|bell| (bell.id.as_u128(), bell.news == News::In)));
            self.driver.leave(&place(&claim, None)).await.unwrap();
        }
        Ok(rung)
    }

    async fn compare_views(&mut self) -> Result<(), TestCaseError> {
        let now = self.now();
        let name = Name::new("m").unwrap();
        let expected = self.line.view(now.at, &name);
        let found = self.driver.view(&Query::Name(name.clone())).await.unwrap();
        let found = found.into_iter().next().unwrap_or_else(|| LineView::free(name));
        for (expected, found) in [(&expected.holders, &found.holders), (&expected.waiters, &found.waiters)] {
            let seen = |claims: &[crate::line::ClaimView]| -> Vec<_> {
                claims.iter().map(|claim| (claim.who.clone(), claim.mode, claim.evicted)).collect()
            };
            prop_assert_eq!(seen(found), seen(expected));
            for (expected, found) in expected.iter().zip(found) {
                self.same(expected.ticket, found.ticket)?;
            }
        }
        Ok(())
    }
}

#[test]
fn the_recipe_is_the_line() {
    if !included() {
        return;
    }
    let ensemble = Ensemble::start(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config {
        cases: 24,
        max_shrink_iters: 60,
        failure_persistence: None,
        ..Config::default()
    });
    let case = std::cell::Cell::new(0u32);
    let histories = prop::collection::vec(op(), 20..80);
    let result = runner.run(&histories, |ops| {
        case.set(case.get() + 1);
        runtime.block_on(async {
            let mut pair = Pair::new(ensemble.config().base(format!("/case-{}", case.get()))).await;
            for op in &ops {
                pair.step(op).await?;
            }
            pair.compare_views().await
        })
    });
    result.unwrap();
}
