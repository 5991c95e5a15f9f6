//! The world at one moment, and what can happen next to it.

use super::EPOCH_US;
use super::client::{Client, client_of};
use super::engine::{Engine, Served};
use super::network::{Body, Message, Network};
use super::properties::Broken;
use super::scenarios::{DRIFT, Scenario, TICK};
use crate::hold::validity::Phase;
use crate::line::{Mode, Ticket};
use crate::time::Time;

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) tick: u16,
    pub(super) engine: Engine,
    pub(super) clients: Vec<Client>,
    pub(super) network: Network,
    pub(super) spent: Spent,
    /// The newest token an exclusive guard was believed with: what a fenced resource has seen.
    pub(super) mark: Ticket,
    pub(super) broken: Broken,
}

/// How much of each budget of the scenario is used up.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Spent {
    pub(super) sweeps: u8,
    pub(super) duplicates: u8,
    pub(super) evictions: u8,
    pub(super) restarts: u8,
    pub(super) steps_back: u8,
    pub(super) slow_ticks: u8,
    pub(super) attempts: u8,
    pub(super) retries: u8,
    pub(super) looks: u8,
    pub(super) leaves: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Start(usize),
    Retry(usize),
    Look(usize),
    Leave(usize),
    Deliver(usize),
    /// Delivers a message that will arrive once more.
    DeliverTwice(usize),
    Tick {
        slow: Option<usize>,
    },
    Sweep,
    Evict(Ticket),
    Restart,
    StepBack,
}

impl World {
    pub(super) fn client_now(&self, client: usize) -> Time {
        (Time::from_micros(EPOCH_US) + TICK * u32::from(self.tick)).minus(self.clients[client].behind)
    }

    pub(super) fn phase(&self, client: usize) -> Option<Phase> {
        Some(self.clients[client].attempt.as_ref()?.phase(self.client_now(client)))
    }

    /// The token of the guard that a client may act on now.
    pub(super) fn guard(&self, client: usize) -> Option<Ticket> {
        self.clients[client].attempt.as_ref()?.guard(self.client_now(client))
    }

    /// Nobody claims any more, and nobody will: no guard can come of what is still under way.
    pub(super) fn is_over(&self, scenario: &Scenario) -> bool {
        self.spent.attempts == scenario.attempts && self.clients.iter().all(|client| client.attempt.is_none())
    }

    /// Of clients that want the same, the first to start may as well be called the first.
    pub(super) fn would_only_swap_names(&self, scenario: &Scenario, client: usize) -> bool {
        let is_first = |other: usize| scenario.clients[other] == scenario.clients[client];
        client > 0 && is_first(client - 1) && self.clients[client - 1].started == 0
    }

    /// Drops messages that can no longer change anything. To the rest of the world they are lost, which any message
    /// may be.
    pub(super) fn drop_spent_messages(&mut self, scenario: &Scenario) {
        let mut network = std::mem::take(&mut self.network);
        network.retain(|message, joins| match message.body {
            Body::Leave => joins || self.engine.line.seen().any(|seen| seen.id == message.id),
            Body::Answer { .. } | Body::Bell { .. } => {
                let client = client_of(message.id);
                let knows = |state: &Client| state.attempt.as_ref().is_some_and(|a| a.id == message.id);
                !knows(&self.clients[client]) || {
                    let mut heard = self.clients[client].clone();
                    heard.hear(&scenario.clients[client], self.client_now(client), *message);
                    heard != self.clients[client]
                }
            }
            Body::Join { .. } | Body::Renew { .. } => true,
        });
        self.network = network;
    }

    /// Drops notes of places that nobody believes in any more.
    pub(super) fn drop_spent_memories(&mut self) {
        let clients = &self.clients;
        let believed = |id| clients.iter().flat_map(|client| &client.attempt).any(|attempt| attempt.id == id);
        self.engine.forgotten.retain(|(id, _)| believed(*id));
    }

    /// Lets a message arrive, and sends what comes of it.
    pub(super) fn deliver(&mut self, scenario: &Scenario, message: Message) {
        match message.body {
            Body::Join { .. } | Body::Renew { .. } | Body::Leave => {
                let served = self.engine.serve(scenario, self.tick, message);
                self.accept(served);
            }
            Body::Answer { .. } | Body::Bell { .. } => {
                let client = client_of(message.id);
                let now = self.client_now(client);
                let reply = self.clients[client].hear(&scenario.clients[client], now, message);
                reply.into_iter().for_each(|reply| self.network.send(reply));
            }
        }
    }

    /// Takes over what the engine sends, but for answers that would say nothing to anyone.
    pub(super) fn accept(&mut self, served: Served) {
        self.broken.merge(&served.broken);
        for message in served.sends {
            let known =
                self.clients[client_of(message.id)].attempt.as_ref().is_some_and(|a| a.id == message.id);
            if known || !message.is_silence_for_strangers() {
                self.network.send(message);
            }
        }
    }

    pub(super) fn leave(&mut self, scenario: &Scenario, client: usize) {
        let now = self.client_now(client);
        if let Some(attempt) = &self.clients[client].attempt {
            self.network.forget(attempt.id);
        }
        let message = self.clients[client].leave(&scenario.clients[client], now);
        message.into_iter().for_each(|message| self.network.send(message));
    }

    /// Does one thing. `None`: it cannot happen here.
    pub(super) fn act(&mut self, scenario: &Scenario, action: Action) -> Option<()> {
        match action {
            Action::Start(client) => {
                let now = self.client_now(client);
                self.spent.attempts += 1;
                let join = self.clients[client].start(client, now);
                self.network.send(join);
            }
            Action::Retry(client) => {
                let now = self.client_now(client);
                let join = self.clients[client].retry(now)?;
                self.spent.retries += 1;
                self.network.send(join);
            }
            Action::Look(client) => {
                let now = self.client_now(client);
                let renew = self.clients[client].look(&scenario.clients[client], now)?;
                self.spent.looks += 1;
                self.network.send(renew);
            }
            Action::Leave(client) => {
                let of_free_will = !matches!(self.phase(client), Some(Phase::Lost(_)));
                self.spent.leaves += u8::from(of_free_will);
                self.leave(scenario, client);
            }
            Action::Deliver(index) => {
                let message = self.network.take(index);
                self.deliver(scenario, message);
            }
            Action::DeliverTwice(index) => {
                self.spent.duplicates += 1;
                let message = self.network.take(index);
                self.network.send(Message { copy: true, ..message });
                self.deliver(scenario, message);
            }
            Action::Tick { slow } => {
                self.tick += 1;
                for attempt in self.clients.iter_mut().filter_map(|client| client.attempt.as_mut()) {
                    attempt.just_asked = false;
                }
                if let Some(client) = slow {
                    self.spent.slow_ticks += 1;
                    self.clients[client].behind += DRIFT;
                }
            }
            Action::Sweep => {
                self.spent.sweeps += 1;
                let served = self.engine.sweep(self.tick);
                self.accept(served);
            }
            Action::Evict(ticket) => {
                self.spent.evictions += 1;
                let served = self.engine.evict(self.tick, ticket);
                self.accept(served);
            }
            Action::Restart => {
                self.spent.restarts += 1;
                self.engine.restart(scenario, self.tick);
            }
            Action::StepBack => {
                self.spent.steps_back += 1;
                self.engine.stepped_back += TICK * scenario.step_ticks;
            }
        }
        Some(())
    }

    /// Notes what the step did to guards that the state itself does not show: a lost one that came back, a token
    /// older than one a fenced resource may have seen.
    pub(super) fn compare_guards(&mut self, scenario: &Scenario, before: &World) {
        for client in 0..self.clients.len() {
            let (Some(old), Some(new)) = (&before.clients[client].attempt, &self.clients[client].attempt)
            else {
                continue;
            };
            let was_lost = matches!(before.phase(client), Some(Phase::Lost(_)));
            let is_lost = matches!(self.phase(client), Some(Phase::Lost(_)));
            self.broken.came_back |= old.id == new.id && was_lost && !is_lost;
            let (Some(token), None) = (self.guard(client), before.guard(client)) else { continue };
            self.broken.tokens |= token <= self.mark;
            if scenario.clients[client].mode == Mode::Exclusive {
                self.mark = token;
            }
        }
    }
}
