//! Generated histories, run on the pure machine and on a real file, must agree step by step: answers, bells, views.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::Heard;
use crate::driver::{Driver, Query};
use crate::drivers::sqlite::{Sqlite, SqliteConfig};
use crate::error::ErrorKind;
use crate::line::{
    Bell, Claim, ClaimId, Line, LineView, Mode, News, Now, Place, Refusal, Standing, Ticket, Who,
};
use crate::name::Name;
use crate::time::Time;

const NAMES: [&str; 3] = ["a", "a/b", "ü'\"%"];

#[derive(Clone, Debug)]
enum Op {
    Pass { ms: u64, wall: i64 },
    Join { name: usize, id: u128, mode: Mode, lease_ms: u64, identity: Option<u8>, wait: bool },
    Renew { places: Vec<(usize, u128, u8)>, lease_ms: u64, last: bool },
    Leave { name: usize, id: u128 },
    Evict { name: usize, nth: usize, at_once: bool },
    View { prefix: &'static str },
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        3 => Just(Mode::Exclusive),
        2 => Just(Mode::Shared),
        2 => (1u32..4, 1u32..5).prop_map(|(count, limit)| Mode::Permits { count, limit }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let name = 0..NAMES.len();
    let id = 0u128..14;
    let lease = prop_oneof![Just(40u64), Just(900), Just(3000), Just(10_000)];
    prop_oneof![
        3 => (prop_oneof![0u64..5, 0u64..2000, Just(4000u64)], -3000i64..6000)
            .prop_map(|(ms, wall)| Op::Pass { ms, wall }),
        8 => (name.clone(), id.clone(), mode(), lease.clone(), prop::option::weighted(0.3, 0u8..2), prop::bool::weighted(0.8))
            .prop_map(|(name, id, mode, lease_ms, identity, wait)| Op::Join { name, id, mode, lease_ms, identity, wait }),
        4 => (prop::collection::vec((name.clone(), id.clone(), 0u8..8), 1..5), lease, prop::bool::weighted(0.2))
            .prop_map(|(places, lease_ms, last)| Op::Renew { places, lease_ms, last }),
        4 => (name.clone(), id).prop_map(|(name, id)| Op::Leave { name, id }),
        1 => (name, 0usize..5, any::<bool>()).prop_map(|(name, nth, at_once)| Op::Evict { name, nth, at_once }),
        1 => prop_oneof![Just(""), Just("a"), Just("a/"), Just("ü")].prop_map(|prefix| Op::View { prefix }),
    ]
}

/// The machine, one line per name with one ticket counter for all, and the file beside it.
struct Pair {
    lines: BTreeMap<usize, Line>,
    now_us: u64,
    wall_us: u64,
    clock: Arc<(AtomicU64, AtomicU64)>,
    file: Sqlite,
    heard: Arc<Heard>,
    known: HashMap<(usize, u128), Ticket>,
}

type Rung = (Name, u64, u128, bool);

impl Pair {
    async fn new(dir: &tempfile::TempDir) -> Pair {
        let clock = Arc::new((AtomicU64::new(1_000_000), AtomicU64::new(50_000_000)));
        let reads = clock.clone();
        let config = SqliteConfig::new(dir.path().join("locks.db")).clock(move || Now {
            at: Time::from_micros(reads.0.load(Ordering::SeqCst)),
            ticket_us: reads.1.load(Ordering::SeqCst),
        });
        let heard = Arc::new(Heard::default());
        let file = Sqlite::open(config, heard.clone()).await.unwrap();
        let lines = (0..NAMES.len()).map(|name| (name, Line::default())).collect();
        let (now_us, wall_us) = (1_000_000, 50_000_000);
        Pair { lines, now_us, wall_us, clock, file, heard, known: HashMap::new() }
    }

    fn now(&self) -> Now {
        let last = self.lines.values().map(|line| line.last_ticket().get()).max().unwrap_or(0);
        Now { at: Time::from_micros(self.now_us), ticket_us: self.wall_us.max(last + 1) }
    }

    /// The file drops what lapsed in all lines with every verb; the machine only in its own.
    fn tick_others(&mut self, but: Option<usize>, rung: &mut Vec<Rung>) {
        let now = self.now();
        for (&name, line) in self.lines.iter_mut().filter(|(name, _)| Some(**name) != but) {
            note(name, line.tick(now).bells, rung);
        }
    }

    async fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let mut rung = Vec::new();
        match op {
            Op::Pass { ms, wall } => {
                self.now_us += ms * 1000;
                self.wall_us = self.wall_us.saturating_add_signed(*wall);
                self.clock.0.store(self.now_us, Ordering::SeqCst);
                self.clock.1.store(self.wall_us, Ordering::SeqCst);
            }
            Op::Join { name, id, mode, lease_ms, identity, wait } => {
                let claim = Claim {
                    name: Name::new(NAMES[*name]).unwrap(),
                    id: ClaimId::from_u128(*id),
                    mode: *mode,
                    lease: Duration::from_millis(*lease_ms),
                    who: Arc::new(Who { owner: format!("owner {id}"), host: "h".into(), pid: 7 }),
                    identity: identity.map(|identity| format!("identity {identity}").into()),
                };
                let now = self.now();
                self.tick_others(Some(*name), &mut rung);
                let step = self.lines.get_mut(name).unwrap().join(now, &claim, *wait);
                note(*name, step.bells, &mut rung);
                let answer = self.file.join(&claim, *wait).await.map_err(|e| {
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
                self.file.leave(&self.place(*name, *id, 0, 1, false)).await.unwrap();
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
                prop_assert_eq!(self.file.evict(&name, ticket, *at_once).await.unwrap(), step.answer);
            }
            Op::View { prefix } => {
                self.tick_others(None, &mut rung);
                self.compare_views(&Query::Prefix((*prefix).to_owned())).await?;
                self.compare_views(&Query::Name(Name::new(NAMES[0]).unwrap())).await?;
            }
        }
        let mut heard = Vec::new();
        for (name, bell) in self.heard.take() {
            note(NAMES.iter().position(|known| *known == name.as_str()).unwrap(), vec![bell], &mut heard);
        }
        rung.sort();
        heard.sort();
        prop_assert_eq!(heard, rung);
        Ok(())
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
        let mut expected = Vec::new();
        for (name, place) in &places {
            let step = self.lines.get_mut(name).unwrap().renew(now, place);
            note(*name, step.bells, rung);
            expected.push(step.answer);
        }
        let asked: Vec<Place> = places.iter().map(|(_, place)| place.clone()).collect();
        let answers = self.file.renew(&asked).await.unwrap();
        prop_assert_eq!(&answers, &expected);
        for ((name, place), answer) in places.iter().zip(answers) {
            self.learn(*name, place.id.as_u128(), Some(answer));
        }
        Ok(())
    }

    async fn compare_views(&self, query: &Query) -> Result<(), TestCaseError> {
        let mut found = self.file.view(query).await.unwrap();
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

fn note(name: usize, bells: Vec<Bell>, into: &mut Vec<Rung>) {
    let name = Name::new(NAMES[name]).unwrap();
    into.extend(
        bells
            .into_iter()
            .map(|Bell { id, ticket, news }| (name.clone(), ticket.get(), id.as_u128(), news == News::In)),
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn the_file_does_what_the_line_does(ops in prop::collection::vec(op(), 100..400)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let mut pair = Pair::new(&dir).await;
            for op in &ops {
                pair.step(op).await?;
            }
            Ok::<(), TestCaseError>(())
        })?;
    }
}
