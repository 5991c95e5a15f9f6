//! The script of a node against `Line::propose`: generated histories must agree step by step, answers and bells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::included;
use super::simulation::network::Dice;
use crate::drivers::redis::RestartGuard;
use crate::drivers::redis::connection::Connection;
use crate::drivers::redis::tests::Server;
use crate::drivers::redlock::tally::Answer;
use crate::drivers::redlock::verbs::propose;
use crate::drivers::testing::Heard;
use crate::line::{Bell, Claim, ClaimId, Line, Mode, News, Now, Place, Primitive, Proposed, Ticket, Who};
use crate::name::Name;
use crate::time::Time;

const BEGINS: u64 = 1_000_000_000;
const HISTORIES: u64 = 60;
const STEPS: usize = 120;

/// A node, the pure node beside it, and the time of both.
struct Pair {
    node: Connection,
    heard: Arc<Heard>,
    clock: Arc<AtomicU64>,
    line: Line,
    name: Name,
    dice: Dice,
}

impl Pair {
    async fn new(server: &Server, seed: u64, guard: Option<Duration>) -> Pair {
        let (clock, heard) = (Arc::new(AtomicU64::new(BEGINS)), Arc::new(Heard::default()));
        let mut config = server.config().space(format!("space-{seed}")).restart_guard(RestartGuard::Off);
        config.of_a_quorum = true;
        config.clock = Some(clock.clone());
        let mut line = Line::default();
        if let Some(guard) = guard {
            let length = guard.as_micros() as u64;
            config.guard = Some((BEGINS + length, length));
            line = Line::restarted(Time::from_micros(BEGINS), guard);
        }
        let node = Connection::open(config, heard.clone()).await.unwrap();
        Pair { node, heard, clock, line, name: Name::new("ü'\"%{a}").unwrap(), dice: Dice::new(seed) }
    }

    fn now(&self) -> Now {
        let us = self.clock.load(Ordering::SeqCst);
        Now { at: Time::from_micros(us), ticket_us: us }
    }

    fn lease(&mut self) -> Duration {
        Duration::from_millis([40, 900, 3_000, 10_000][self.dice.between(0, 4) as usize])
    }

    fn id(&mut self) -> ClaimId {
        ClaimId::from_u128(u128::from(self.dice.between(1, 11)))
    }

    /// A ticket near the last one, on both sides.
    fn ticket(&mut self) -> Ticket {
        let last = self.line.last_ticket().get().max(BEGINS);
        Ticket::new(last + self.dice.between(0, 9) - 3)
    }

    async fn step(&mut self, steps_back: bool) -> Result<(), String> {
        let rung = match self.dice.between(0, 10) {
            0 => {
                let by = self.dice.between(0, 2_500_000);
                self.clock.fetch_add(by, Ordering::SeqCst);
                return Ok(());
            }
            1 if steps_back && self.dice.chance(200) => {
                self.clock.fetch_sub(3_000_000, Ordering::SeqCst);
                return Ok(());
            }
            1..=5 => self.propose().await?,
            6 | 7 => self.renew().await?,
            8 => {
                let place = self.place();
                self.node.leave(&place).await.map_err(|e| format!("{e:?}"))?;
                self.line.leave(self.now(), place.id).bells
            }
            _ => {
                let (ticket, at_once) = (self.ticket(), self.dice.chance(500));
                let found =
                    self.node.evict(&self.name, ticket, at_once).await.map_err(|e| format!("{e:?}"))?;
                let step = self.line.evict(self.now(), ticket, at_once);
                same("evict", found, step.answer)?;
                step.bells
            }
        };
        self.same_bells(rung).await
    }

    async fn propose(&mut self) -> Result<Vec<Bell>, String> {
        let mode = if self.dice.chance(400) { Mode::Shared } else { Mode::Exclusive };
        let identity = self.dice.chance(200).then(|| format!("id {}", self.dice.between(0, 2)).into());
        let who = Arc::new(Who { owner: "o w".into(), host: "h".into(), pid: 7 });
        let (id, lease) = (self.id(), self.lease());
        let claim =
            Claim { name: self.name.clone(), id, mode, lease, who, identity, primitive: Primitive::Mutex };
        let (wait, ticket) = (!self.dice.chance(200), self.ticket());
        let answer = propose(&self.node, &claim, wait, ticket).await.map_err(|e| format!("{e:?}"))?;
        let step = self.line.propose(self.now(), &claim, wait, ticket);
        let expected = match step.answer {
            Proposed::Stands(standing) => Answer::Stands(standing),
            Proposed::Behind(last) => Answer::Behind(last),
            Proposed::Refused(_) => Answer::WouldWaitForItself,
        };
        same(&format!("propose {claim:?} {wait} {ticket}"), answer, expected)?;
        Ok(step.bells)
    }

    async fn renew(&mut self) -> Result<Vec<Bell>, String> {
        let place = self.place();
        let standings = self.node.renew(std::slice::from_ref(&place)).await.map_err(|e| format!("{e:?}"))?;
        let step = self.line.renew(self.now(), &place);
        same("renew", standings[0], step.answer)?;
        Ok(step.bells)
    }

    fn place(&mut self) -> Place {
        let (id, lease) = (self.id(), self.lease());
        let known = self.line.seen().find(|seen| seen.id == id).map(|seen| seen.ticket);
        let ticket = if self.dice.chance(200) { Some(self.ticket()) } else { known.or(Some(Ticket::new(7))) };
        Place { name: self.name.clone(), id, ticket, lease, last: self.dice.chance(100) }
    }

    async fn same_bells(&mut self, expected: Vec<Bell>) -> Result<(), String> {
        // What was published to us before this is answered came before the answer.
        self.node.plain("ping", &redis::cmd("PING")).await.map_err(|e| format!("{e:?}"))?;
        let start = Instant::now();
        while self.heard.count() < expected.len() && start.elapsed() < Duration::from_millis(500) {
            tokio::task::yield_now().await;
        }
        let key = |bell: &Bell| (bell.ticket, bell.id, bell.news == News::In);
        let mut rung: Vec<_> = self.heard.take().iter().map(|(_, bell)| key(bell)).collect();
        let mut expected: Vec<_> = expected.iter().map(key).collect();
        rung.sort_unstable();
        expected.sort_unstable();
        same("bells", rung, expected)
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, node: T, line: T) -> Result<(), String> {
    if node == line { Ok(()) } else { Err(format!("{what}: the node says {node:?}, the line {line:?}")) }
}

fn compare(guard: Option<Duration>) {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for seed in 0..HISTORIES {
        runtime.block_on(async {
            let mut pair = Pair::new(&server, seed, guard).await;
            for step in 0..STEPS {
                if let Err(different) = pair.step(guard.is_none()).await {
                    panic!("seed {seed}, step {step}: {different}");
                }
            }
        });
    }
}

#[test]
fn a_node_does_what_the_line_does() {
    compare(None);
}

#[test]
fn a_node_that_sits_out_does_what_the_line_does() {
    compare(Some(Duration::from_secs(20)));
}
