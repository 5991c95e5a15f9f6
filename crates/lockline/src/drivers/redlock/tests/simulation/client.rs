//! A client: core's belief and the driver's counting, moved by events instead of tasks.

use std::collections::HashMap;

use super::network::{Dice, Event, Network, Request};
use super::world::{LEASE, LEASE_US, SimClock, id_of};
use crate::drivers::redlock::ballot::Ballot;
use crate::drivers::redlock::tally::{Answer, Tally, Verdict, majority};
use crate::drivers::redlock::tickets::Tickets;
use crate::hold::validity::{Belief, Phase};
use crate::line::{ClaimId, News, Standing, Ticket};
use crate::time::Time;

/// How long one node is waited for.
const NODE_DEADLINE: u64 = LEASE_US / 12;
/// How often one join is sent with another ticket.
const ROUNDS: u32 = 8;

/// What a client did that others care for.
#[derive(Debug)]
pub(super) enum Outcome {
    Nothing,
    Yielded,
    Lost,
    Granted { ticket: Ticket, shared: bool },
}

pub(super) struct Client {
    index: usize,
    nodes: usize,
    life: u32,
    alive: bool,
    clock: SimClock,
    tickets: Tickets,
    attempt: Option<Attempt>,
    /// Leaves that too few nodes have answered: until when they are sent again, and who has answered.
    departures: HashMap<ClaimId, (u64, Vec<bool>)>,
    pub(super) turns: u32,
    claims: u64,
    rounds: u64,
    step: u64,
}

struct Attempt {
    id: ClaimId,
    shared: bool,
    wait: bool,
    belief: Belief,
    ballot: Ballot,
    round: Option<Round>,
    /// How many times it has yielded in this join.
    yields: u32,
    holds: bool,
    hold_ends: u64,
    give_up: u64,
}

struct Round {
    number: u64,
    join: bool,
    began: Time,
    tally: Tally,
}

struct Wires<'a> {
    now: u64,
    dice: &'a mut Dice,
    network: &'a mut Network,
}

impl Client {
    pub(super) fn new(index: usize, nodes: usize, clock: SimClock, turns: u32) -> Client {
        Client {
            index,
            nodes,
            life: 0,
            alive: true,
            clock,
            tickets: Tickets::default(),
            attempt: None,
            departures: HashMap::new(),
            turns,
            claims: 0,
            rounds: 0,
            step: 0,
        }
    }

    pub(super) fn describe(&self) -> String {
        let attempt = self.attempt.as_ref();
        let phase =
            attempt.map(|attempt| (attempt.belief.phase(), attempt.ballot.ticket(), attempt.round.is_some()));
        format!("{} alive {} turns {} {phase:?}", self.index, self.alive, self.turns)
    }

    pub(super) fn crash(&mut self) {
        self.alive = false;
        self.life += 1;
        self.attempt = None;
        self.departures.clear();
        self.tickets = Tickets::default();
    }

    /// What it holds, looked at now, and whether it would share it.
    pub(super) fn holds(&mut self, now: u64) -> Option<(Ticket, bool)> {
        let at = self.clock.read(now);
        let attempt = self.attempt.as_mut().filter(|attempt| attempt.holds)?;
        (attempt.belief.look(at) == Phase::In).then(|| (attempt.ballot.ticket(), attempt.shared))
    }

    /// For how long it relies on this claim, in microseconds; the whole lease while it asks. `None`: not at all.
    pub(super) fn relies_on(&self, now: u64, id: ClaimId) -> Option<u64> {
        let attempt = self.attempt.as_ref().filter(|attempt| attempt.id == id)?;
        let asks = attempt.round.is_some() || attempt.belief.phase() == Phase::Joining;
        let rest = attempt.belief.valid_until().since(self.clock.read(now)).as_micros() as u64;
        Some(if asks { LEASE_US } else { rest })
    }

    pub(super) fn hear(&mut self, now: u64, dice: &mut Dice, network: &mut Network, event: Event) -> Outcome {
        let wires = &mut Wires { now, dice, network };
        let (life, alive) = (self.life, self.alive);
        let mine = |of: u32| alive && of == life;
        match event {
            Event::Reborn { .. } => {
                self.alive = true;
                self.alarm(wires, 1);
                Outcome::Nothing
            }
            Event::Alarm { life, step, .. } if mine(life) && step == self.step => self.look(wires),
            Event::RoundOver { life, round, .. } if mine(life) => self.round_over(wires, round),
            Event::Answered { life, node, round, sent, id, ticket, answer, .. } if mine(life) => {
                self.answered(wires, (node, round), sent, (id, ticket), answer)
            }
            Event::Rang { life, node, bell, .. } if mine(life) => {
                let known = self.attempt.as_mut().filter(|attempt| attempt.id == bell.id);
                let Some(attempt) = known else {
                    // A copy of a join came late: nobody wants its place.
                    if !self.departures.contains_key(&bell.id) && bell.news == News::In {
                        self.leave(wires, bell.id, None);
                    }
                    return Outcome::Nothing;
                };
                let heard = attempt.ballot.bell(node, bell.ticket, bell.news);
                self.ring(wires, heard)
            }
            Event::Left { life, node, id, .. } if mine(life) => {
                if let Some((_, answered)) = self.departures.get_mut(&id) {
                    answered[node] = true;
                    if answered.iter().all(|answered| *answered) {
                        self.departures.remove(&id);
                    }
                }
                Outcome::Nothing
            }
            Event::LeaveAgain { life, id, .. } if mine(life) => {
                self.leave_again(wires, id);
                Outcome::Nothing
            }
            _ => Outcome::Nothing,
        }
    }

    /// Has the client look at itself after a while; older alarms are void.
    fn alarm(&mut self, wires: &mut Wires<'_>, after: u64) {
        self.step += 1;
        let event = Event::Alarm { client: self.index, life: self.life, step: self.step };
        wires.network.at(wires.now + after, event);
    }

    fn look(&mut self, wires: &mut Wires<'_>) -> Outcome {
        let now = self.clock.read(wires.now);
        let Some(attempt) = &mut self.attempt else {
            if self.turns > 0 {
                self.begin(wires);
            }
            return Outcome::Nothing;
        };
        let phase = attempt.belief.look(now);
        if attempt.holds && (phase != Phase::In || wires.now >= attempt.hold_ends) {
            // It did its work, or lost the lock meanwhile.
            let lost = phase != Phase::In;
            self.turns -= 1;
            self.depart(wires);
            let pause = wires.dice.between(10, 4_000);
            self.alarm(wires, pause);
            return if lost { Outcome::Lost } else { Outcome::Nothing };
        }
        match phase {
            Phase::Joining if wires.now >= attempt.give_up => {
                self.depart(wires);
                self.alarm(wires, 10_000);
            }
            Phase::Joining if attempt.round.is_none() => self.ask(wires, true),
            Phase::Waiting | Phase::In if attempt.round.is_none() => self.ask(wires, false),
            Phase::Lost(_) => {
                self.depart(wires);
                self.begin(wires);
                return Outcome::Lost;
            }
            _ => {}
        }
        Outcome::Nothing
    }

    fn begin(&mut self, wires: &mut Wires<'_>) {
        self.claims += 1;
        let ticket = self.tickets.next(self.clock.read(wires.now).as_micros());
        self.attempt = Some(Attempt {
            id: id_of(self.index, self.life, self.claims),
            shared: wires.dice.chance(200),
            wait: !wires.dice.chance(100),
            belief: Belief::new(),
            ballot: Ballot::new(self.nodes, ticket),
            round: None,
            yields: 0,
            holds: false,
            hold_ends: 0,
            give_up: wires.now + LEASE_US,
        });
        self.ask(wires, true);
    }

    /// Begins a round: the same question to all nodes.
    fn ask(&mut self, wires: &mut Wires<'_>, join: bool) {
        let began = self.clock.read(wires.now);
        self.ask_as_of(wires, join, began);
    }

    fn ask_as_of(&mut self, wires: &mut Wires<'_>, join: bool, began: Time) {
        let Some(attempt) = &mut self.attempt else { return };
        self.rounds += 1;
        let number = self.rounds;
        attempt.round = Some(Round { number, join, began, tally: Tally::new(self.nodes) });
        let (id, ticket, shared, wait) = (attempt.id, attempt.ballot.ticket(), attempt.shared, attempt.wait);
        let request =
            if join { Request::Propose { id, ticket, shared, wait } } else { Request::Renew { id, ticket } };
        for node in 0..self.nodes {
            let (client, life) = (self.index, self.life);
            let asked = Event::Asked { node, client, life, round: number, sent: began, request };
            wires.network.send(wires.dice, wires.now, (client, node), false, asked);
        }
        let over = Event::RoundOver { client: self.index, life: self.life, round: number };
        wires.network.at(wires.now + NODE_DEADLINE, over);
    }

    fn answered(
        &mut self,
        wires: &mut Wires<'_>,
        (node, round): (usize, u64),
        sent: Time,
        (id, ticket): (ClaimId, Ticket),
        answer: Answer,
    ) -> Outcome {
        let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.id == id) else {
            return Outcome::Nothing;
        };
        if let Answer::Stands(standing) = answer
            && ticket == attempt.ballot.ticket()
        {
            attempt.ballot.answered(node, sent, standing);
        }
        if let Some(open) = attempt.round.as_mut().filter(|open| open.number == round) {
            open.tally.note(node, answer);
            return self.conclude(wires);
        }
        // Too late for its round; but it may tell that a vote counts.
        let heard = attempt.ballot.wins().then_some(News::In);
        self.ring(wires, heard)
    }

    fn round_over(&mut self, wires: &mut Wires<'_>, round: u64) -> Outcome {
        let open = self.attempt.as_mut().and_then(|attempt| attempt.round.as_mut());
        let Some(open) = open.filter(|open| open.number == round) else { return Outcome::Nothing };
        open.tally.close();
        self.conclude(wires)
    }

    /// Looks whether the round is decided, and does what follows.
    fn conclude(&mut self, wires: &mut Wires<'_>) -> Outcome {
        let Some(attempt) = &mut self.attempt else { return Outcome::Nothing };
        let Some(round) = &attempt.round else { return Outcome::Nothing };
        let won = attempt.ballot.won();
        let verdict = match (round.join, attempt.wait) {
            (true, true) => round.tally.join(won),
            (true, false) => round.tally.try_join(),
            (false, _) => round.tally.renew(won),
        };
        let Some(verdict) = verdict else { return Outcome::Nothing };
        let Some(Round { began, join, .. }) = attempt.round.take() else { return Outcome::Nothing };
        match verdict {
            Verdict::Again(above) if attempt.yields < ROUNDS => {
                attempt.yields += 1;
                let wall = self.clock.read(wires.now).as_micros();
                self.tickets.saw(above, wall);
                attempt.ballot.yields(self.tickets.next(wall));
                // One verb, however many rounds: core counts from its beginning.
                self.ask_as_of(wires, true, began);
                Outcome::Yielded
            }
            Verdict::Stands(Standing::Out) if join && !attempt.wait => {
                self.depart(wires);
                let pause = wires.dice.between(100, 5_000);
                self.alarm(wires, pause);
                Outcome::Nothing
            }
            Verdict::Stands(standing) => {
                attempt.yields = 0;
                let standing = attempt.ballot.tell(began, standing);
                let now = self.clock.read(wires.now);
                attempt.belief.answer(began, now, LEASE, standing);
                let after = match standing {
                    Standing::Waiting { look_again, .. } => look_again.as_micros() as u64,
                    _ => LEASE_US / 3,
                };
                self.believe(wires, after)
            }
            Verdict::Again(_) | Verdict::NoQuorum | Verdict::WouldWaitForItself => {
                attempt.yields = 0;
                attempt.belief.unreachable = true;
                self.believe(wires, LEASE_US / 24)
            }
        }
    }

    fn ring(&mut self, wires: &mut Wires<'_>, heard: Option<News>) -> Outcome {
        let now = self.clock.read(wires.now);
        let (Some(news), Some(attempt)) = (heard, &mut self.attempt) else { return Outcome::Nothing };
        attempt.belief.bell(attempt.ballot.ticket(), news, now, LEASE);
        self.believe(wires, LEASE_US / 3)
    }

    /// Does what follows from what it believes now; looks again after a while.
    fn believe(&mut self, wires: &mut Wires<'_>, after: u64) -> Outcome {
        let now = self.clock.read(wires.now);
        let Some(attempt) = &mut self.attempt else { return Outcome::Nothing };
        let phase = attempt.belief.look(now);
        if phase == Phase::In && !attempt.holds {
            attempt.holds = true;
            let work = if wires.dice.chance(40) { LEASE_US * 3 / 2 } else { wires.dice.between(100, 12_000) };
            attempt.hold_ends = wires.now + work;
            let outcome = Outcome::Granted { ticket: attempt.ballot.ticket(), shared: attempt.shared };
            self.alarm(wires, work.min(LEASE_US / 3));
            return outcome;
        }
        if let Phase::Lost(_) = phase {
            self.alarm(wires, 1);
            return Outcome::Nothing;
        }
        let rest = attempt.belief.valid_until().since(now).as_micros() as u64;
        let rest = if phase == Phase::Joining { after } else { rest + 1 };
        let hold = if attempt.holds { attempt.hold_ends.saturating_sub(wires.now).max(1) } else { after };
        self.alarm(wires, after.min(rest).min(hold));
        Outcome::Nothing
    }

    /// Gives up what it has, at all nodes, also those that never answered.
    fn depart(&mut self, wires: &mut Wires<'_>) {
        let Some(mut attempt) = self.attempt.take() else { return };
        attempt.ballot.depart();
        self.leave(wires, attempt.id, Some(&attempt.ballot));
    }

    fn leave(&mut self, wires: &mut Wires<'_>, id: ClaimId, ballot: Option<&Ballot>) {
        let skipped =
            |node: usize| mutant!(LeaveWhereGranted) && ballot.is_some_and(|ballot| !ballot.votes(node));
        let answered: Vec<bool> = (0..self.nodes).map(skipped).collect();
        self.send_leave(wires, id, &answered);
        self.departures.insert(id, (wires.now + LEASE_US, answered));
    }

    fn leave_again(&mut self, wires: &mut Wires<'_>, id: ClaimId) {
        let Some((until, answered)) = self.departures.get(&id).cloned() else { return };
        if wires.now >= until || answered.iter().filter(|answered| **answered).count() >= majority(self.nodes)
        {
            self.departures.remove(&id);
        } else {
            self.send_leave(wires, id, &answered);
        }
    }

    fn send_leave(&self, wires: &mut Wires<'_>, id: ClaimId, answered: &[bool]) {
        let (client, life) = (self.index, self.life);
        for node in (0..self.nodes).filter(|node| !answered[*node]) {
            let request = Request::Leave { id };
            let asked = Event::Asked { node, client, life, round: 0, sent: Time::ZERO, request };
            wires.network.send(wires.dice, wires.now, (client, node), false, asked);
        }
        wires.network.at(wires.now + NODE_DEADLINE, Event::LeaveAgain { client, life, id });
    }
}
