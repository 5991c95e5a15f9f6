//! Nodes, clients, time, and what must hold.

use std::sync::Arc;
use std::time::Duration;

use super::client::{Client, Outcome};
use super::network::{Dice, Event, Network, Request, Weather};
use crate::drivers::redlock::tally::{Answer, majority};
use crate::line::{Claim, ClaimId, Line, Mode, Now, Place, Primitive, Proposed, Ticket, Who};
use crate::name::Name;
use crate::time::Time;

pub(super) const LEASE: Duration = Duration::from_secs(1);
pub(super) const LEASE_US: u64 = 1_000_000;
/// Where all clocks begin: tickets are microseconds, and larger than the times of a run.
const BEGIN: u64 = 1_000_000_000;
/// How long faults go on; then everything heals.
const FAULTS_END: u64 = 3 * LEASE_US;
/// By then everybody must have had its turns: those of dead clients end within a lease, a node sits out one more.
const PATIENCE: u64 = 30 * LEASE_US;
const TURNS: u32 = 3;

/// What came of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    pub(super) grants: u64,
    pub(super) yields: u64,
    pub(super) losses: u64,
    pub(super) crashes: u64,
    pub(super) amnesia: u64,
    pub(super) forgot: u64,
    pub(super) events: u64,
}

impl Fate {
    pub(super) fn add(&mut self, other: Fate) {
        self.grants += other.grants;
        self.yields += other.yields;
        self.losses += other.losses;
        self.crashes += other.crashes;
        self.amnesia += other.amnesia;
        self.forgot += other.forgot;
        self.events += other.events;
    }
}

/// A clock: its rate differs a little from others', and it may be set.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimClock {
    ppm: i64,
    offset_us: i64,
}

impl SimClock {
    pub(super) fn read(self, now: u64) -> Time {
        let drift = (now as i64) * self.ppm / 1_000_000;
        Time::from_micros((BEGIN as i64 + now as i64 + drift + self.offset_us).max(0) as u64)
    }
}

struct Node {
    line: Line,
    clock: SimClock,
    up: bool,
    paused_until: u64,
    /// When it last forgot what it had voted for.
    forgot_at: Option<u64>,
}

pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) network: Network,
    pub(super) now: u64,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    who: Arc<Who>,
    name: Name,
    fate: Fate,
    /// The largest token of any holder, and of any that held alone.
    newest: Ticket,
    newest_alone: Ticket,
    faults: bool,
}

impl World {
    pub(super) fn new(seed: u64, clients: usize) -> World {
        let mut dice = Dice::new(seed);
        let nodes = [3, 5, 5, 7][dice.between(0, 4) as usize];
        // A third of the runs are calm: in them, what costs time is the protocol itself.
        let faults = !dice.chance(333);
        let weather = if faults {
            Weather { lost: dice.between(0, 20), slow: dice.between(5, 150), straggles: dice.between(0, 6) }
        } else {
            Weather { lost: 0, slow: 20, straggles: 0 }
        };
        let network = Network::new(nodes, clients, weather, LEASE_US);
        let clock = |dice: &mut Dice, offset: u64| SimClock {
            ppm: dice.between(0, 8_000) as i64 - 4_000,
            offset_us: dice.between(0, 2 * offset + 1) as i64 - offset as i64,
        };
        let all: Vec<Node> = (0..nodes)
            .map(|_| Node {
                line: Line::default(),
                clock: clock(&mut dice, 5_000),
                up: true,
                paused_until: 0,
                forgot_at: None,
            })
            .collect();
        let clients =
            (0..clients).map(|index| Client::new(index, nodes, clock(&mut dice, 50_000), TURNS)).collect();
        let mut world = World {
            dice,
            network,
            now: 0,
            nodes: all,
            clients,
            who: Arc::new(Who { owner: "o".into(), host: "h".into(), pid: 1 }),
            name: Name::new("m").unwrap(),
            fate: Fate::default(),
            newest: Ticket::ZERO,
            newest_alone: Ticket::ZERO,
            faults,
        };
        world.plan();
        world
    }

    /// Decides what will go wrong, and when.
    fn plan(&mut self) {
        for client in 0..self.clients.len() {
            let at = self.dice.between(0, 3_000);
            self.network.at(at, Event::Alarm { client, life: 0, step: 0 });
        }
        if !self.faults {
            return;
        }
        for _ in 0..self.dice.between(0, 6) {
            let client = self.dice.between(0, self.clients.len() as u64) as usize;
            let at = self.dice.between(0, FAULTS_END);
            self.network.at(at, Event::Crash { client });
            self.network.at(at + self.dice.between(1_000, LEASE_US), Event::Reborn { client });
        }
        for _ in 0..self.dice.between(0, 6) {
            let client = self.dice.between(0, self.clients.len() as u64) as usize;
            let (at, for_us) =
                (self.dice.between(0, FAULTS_END), self.dice.between(LEASE_US / 2, 2 * LEASE_US));
            self.network.at(at, Event::CutOff { client, for_us });
        }
        // A minority may be wiped without anybody noticing, or have its clock set.
        let minority = self.nodes.len() - (self.nodes.len() / 2 + 1);
        for _ in 0..self.dice.between(0, 4) {
            let node = self.dice.between(0, minority as u64) as usize;
            let at = self.dice.between(0, FAULTS_END);
            // Forward by more than a lease: everything there lapses, as if it were forgotten.
            let step = self.dice.between(LEASE_US, 2 * LEASE_US) as i64;
            let step = if self.dice.chance(500) { step } else { -step };
            let event = if self.dice.chance(500) {
                Event::NodeWiped { node }
            } else {
                Event::ClockStep { node, by_us: step }
            };
            self.network.at(at, event);
        }
        // All may stop, pause or restart, and forget: who forgets knows it, and sits out.
        for _ in 0..self.dice.between(0, 5) {
            let node = self.dice.between(0, self.nodes.len() as u64) as usize;
            let (at, for_us) = (self.dice.between(0, FAULTS_END), self.dice.between(1_000, LEASE_US));
            let event = match self.dice.between(0, 3) {
                0 => Event::NodePaused { node, for_us },
                kind => Event::NodeDown { node, for_us, forgets: kind == 1 },
            };
            self.network.at(at, event);
        }
    }

    pub(super) fn run(mut self) -> Result<Fate, String> {
        while let Some((at, event)) = self.network.next() {
            self.now = at;
            self.fate.events += 1;
            if at > FAULTS_END {
                self.network.weather = Weather { lost: 0, slow: 10, straggles: 0 };
            }
            if at > PATIENCE {
                break;
            }
            self.happen(event)?;
        }
        let stuck: Vec<_> =
            self.clients.iter().filter(|client| client.turns > 0).map(Client::describe).collect();
        if !stuck.is_empty() {
            return Err(format!("stuck at {}: {stuck:?}", self.now));
        }
        if !self.faults {
            self.nothing_left_behind()?;
        }
        Ok(self.fate)
    }

    /// When all have left, and nothing was lost, nobody stands anywhere: not even for the rest of a lease.
    fn nothing_left_behind(&self) -> Result<(), String> {
        for (index, node) in self.nodes.iter().enumerate() {
            let now = node.clock.read(self.now);
            if let Some(seen) = node.line.seen().find(|seen| seen.deadline > now) {
                return Err(format!("left behind at node {index}: {seen:?}"));
            }
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Asked { node, client, life, round, sent, request } => {
                if self.nodes[node].paused_until > self.now {
                    self.network.at(self.nodes[node].paused_until, event);
                } else if self.nodes[node].up {
                    self.serve(node, (client, life), round, sent, request);
                }
                Ok(())
            }
            Event::NodeDown { node, for_us, forgets } => {
                self.nodes[node].up = false;
                self.network.at(self.now + for_us, Event::NodeUp { node, forgets });
                Ok(())
            }
            Event::NodeUp { node, forgets } => {
                let (now, node) = (self.now, &mut self.nodes[node]);
                node.up = true;
                if forgets {
                    node.forgot_at = Some(now);
                    self.fate.amnesia += 1;
                    node.line = Line::restarted(node.clock.read(now), LEASE);
                }
                Ok(())
            }
            Event::NodePaused { node, for_us } => {
                self.nodes[node].paused_until = self.now + for_us;
                Ok(())
            }
            Event::NodeWiped { node } => {
                if self.may_forget(node, event) {
                    self.nodes[node].line = Line::default();
                }
                Ok(())
            }
            Event::ClockStep { node, by_us } => {
                if by_us < 0 || self.may_forget(node, event) {
                    self.nodes[node].clock.offset_us += by_us;
                }
                Ok(())
            }
            Event::CutOff { client, for_us } => {
                self.network.cut_off[client] = self.now + for_us;
                Ok(())
            }
            Event::Crash { client } => {
                self.fate.crashes += 1;
                self.clients[client].crash();
                Ok(())
            }
            other => self.tell_client(other),
        }
    }

    /// Has a node forget without sitting out, if that can be survived; else it happens a little later.
    fn may_forget(&mut self, node: usize, event: Event) -> bool {
        let may = self.survives(node);
        if may {
            self.nodes[node].forgot_at = Some(self.now);
            self.fate.forgot += 1;
        } else if self.now < FAULTS_END {
            self.network.at(self.now + 700, event);
        }
        may
    }

    /// Whether those who vote for a claim, for as long as its client relies on it, are a majority without this node, and
    /// those who know the newest token are, too: that is all that a majority of votes can survive.
    fn survives(&self, node: usize) -> bool {
        let (majority, lease_ago) = (self.nodes.len() / 2 + 1, self.now.saturating_sub(2 * LEASE_US));
        let remembers = |node: &Node| node.forgot_at.is_none_or(|at| at < lease_ago);
        let others =
            || self.nodes.iter().enumerate().filter(|(index, other)| *index != node && remembers(other));
        let relied_on = |id: ClaimId| self.clients[owner(id).0].relies_on(self.now, id);
        let voters = |id: ClaimId, rest: u64| {
            let votes = |other: &Node| {
                let until = other.clock.read(self.now) + Duration::from_micros(rest);
                other.line.seen().any(|seen| seen.id == id && seen.is_in && seen.deadline >= until)
            };
            others().filter(|(_, other)| votes(other)).count()
        };
        let known = others().filter(|(_, other)| other.line.last_ticket() >= self.newest).count();
        let in_there = self.nodes[node].line.seen().filter(|seen| seen.is_in).map(|seen| seen.id);
        let mut believed = in_there.filter_map(|id| relied_on(id).map(|rest| (id, rest)));
        // One that sits out must not be hurried.
        remembers(&self.nodes[node])
            && known >= majority
            && believed.all(|(id, rest)| voters(id, rest) >= majority)
    }

    fn tell_client(&mut self, event: Event) -> Result<(), String> {
        let client = match event {
            Event::Reborn { client }
            | Event::Answered { client, .. }
            | Event::Left { client, .. }
            | Event::Rang { client, .. }
            | Event::RoundOver { client, .. }
            | Event::Alarm { client, .. }
            | Event::LeaveAgain { client, .. } => client,
            _ => return Ok(()),
        };
        let (now, dice, network) = (self.now, &mut self.dice, &mut self.network);
        match self.clients[client].hear(now, dice, network, event) {
            Outcome::Nothing => {}
            Outcome::Yielded => self.fate.yields += 1,
            Outcome::Lost => self.fate.losses += 1,
            Outcome::Granted { ticket, shared } => return self.granted(client, ticket, shared),
        }
        Ok(())
    }

    /// Somebody believes that it holds the lock.
    fn granted(&mut self, client: usize, ticket: Ticket, shared: bool) -> Result<(), String> {
        self.fate.grants += 1;
        let now = self.now;
        for (other, seen) in self.clients.iter_mut().enumerate() {
            let Some((theirs, both)) = seen.holds(now) else { continue };
            if other != client && !(shared && both) {
                return Err(format!(
                    "two holders at {now}: {client} on {ticket:?} beside {other} on {theirs:?}"
                ));
            }
        }
        let before = if shared { self.newest_alone } else { self.newest };
        if ticket <= before {
            return Err(format!("token {ticket:?} of {client} at {now} is not larger than {before:?}"));
        }
        self.newest = self.newest.max(ticket);
        if !shared {
            self.newest_alone = self.newest_alone.max(ticket);
        }
        Ok(())
    }

    /// A node does what it is asked for, answers, and rings.
    fn serve(&mut self, node: usize, (client, life): (usize, u32), round: u64, sent: Time, request: Request) {
        let at = self.nodes[node].clock.read(self.now);
        let now = Now { at, ticket_us: at.as_micros() };
        let line = &mut self.nodes[node].line;
        let place = |id, ticket| Place {
            name: self.name.clone(),
            id,
            ticket: Some(ticket),
            lease: LEASE,
            last: false,
        };
        let (answer, bells) = match request {
            Request::Propose { id, ticket, shared, wait } => {
                let mode = if shared { Mode::Shared } else { Mode::Exclusive };
                let (name, who) = (self.name.clone(), self.who.clone());
                let claim =
                    Claim { name, id, mode, lease: LEASE, who, identity: None, primitive: Primitive::Mutex };
                let step = line.propose(now, &claim, wait, ticket);
                let answer = match step.answer {
                    Proposed::Stands(standing) => Answer::Stands(standing),
                    Proposed::Behind(last) => Answer::Behind(last),
                    Proposed::Refused(_) => Answer::WouldWaitForItself,
                };
                (Some((id, ticket, answer)), step.bells)
            }
            Request::Renew { id, ticket } => {
                let step = line.renew(now, &place(id, ticket));
                (Some((id, ticket, Answer::Stands(step.answer))), step.bells)
            }
            Request::Leave { id } => {
                let step = line.leave(now, id);
                let left = Event::Left { client, life, node, id };
                self.network.send(&mut self.dice, self.now, (client, node), true, left);
                (None, step.bells)
            }
        };
        for bell in bells {
            let (client, life) = owner(bell.id);
            let rang = Event::Rang { client, life, node, bell };
            self.network.send(&mut self.dice, self.now, (client, node), true, rang);
        }
        if let Some((id, ticket, answer)) = answer {
            let answered = Event::Answered { client, life, node, round, sent, id, ticket, answer };
            self.network.send(&mut self.dice, self.now, (client, node), true, answered);
        }
    }
}

/// An id says whose it is.
pub(super) fn id_of(client: usize, life: u32, number: u64) -> ClaimId {
    ClaimId::from_u128((client as u128) << 96 | u128::from(life) << 64 | u128::from(number))
}

fn owner(id: ClaimId) -> (usize, u32) {
    ((id.as_u128() >> 96) as usize, (id.as_u128() >> 64) as u32)
}

#[test]
fn majorities_meet() {
    for nodes in [3, 5, 7] {
        assert!(2 * majority(nodes) > nodes);
    }
}
