//! Nobody waits for ever: the fair continuation of a state.
//!
//! A checker of finite runs cannot ask for "eventually". Instead each state is continued, without faults and without
//! choice, for longer than a restart guard and a lease last: waiters look, ask again and join anew as clients do; who
//! holds stops dead, so that only its lease ends its hold. Every waiter must have got in by then.

use super::engine::fit_together;
use super::network::{Body, Message};
use super::scenarios::Scenario;
use super::{Lockline, World};
use crate::hold::validity::Phase;

/// What becomes of the messages under way when the faults cease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InFlight {
    Lost,
    Arrives,
}

/// Whether every client that waits gets in. `stays`: a holder that goes on renewing for ever; then only those are
/// expected who fit beside it, and the others stop dead.
pub(super) fn everyone_gets_in(
    model: &Lockline,
    world: &World,
    in_flight: InFlight,
    stays: Option<usize>,
) -> bool {
    let scenario = &model.scenario;
    let mut waiting: Vec<usize> = (0..world.clients.len())
        .filter(|client| matches!(world.phase(*client), Some(Phase::Joining | Phase::Waiting)))
        .filter(|client| scenario.clients[*client].wait)
        .filter(|client| fits_beside(scenario, stays, *client))
        .collect();
    if waiting.is_empty() {
        return true;
    }
    let mut world = world.clone();
    for message in world.network.drain() {
        if in_flight == InFlight::Arrives {
            world.exchange(scenario, message);
        }
    }
    for _ in 0..patience(scenario) {
        waiting.retain(|client| world.takes_a_fair_turn(scenario, *client));
        if waiting.is_empty() {
            return true;
        }
        if let Some(renew) = stays.and_then(|client| world.look(scenario, client)) {
            world.exchange(scenario, renew);
        }
        world.tick += 1;
    }
    false
}

/// A restart guard, a lease that runs out, a turn for each, and some.
fn patience(scenario: &Scenario) -> u16 {
    3 * scenario.longest_lease_ticks() + 2 * scenario.clients.len() as u16 + 4
}

fn fits_beside(scenario: &Scenario, stays: Option<usize>, client: usize) -> bool {
    stays.is_none_or(|stays| {
        scenario.clients[stays].fixed.is_none()
            && fit_together(&[scenario.clients[stays].mode, scenario.clients[client].mode])
    })
}

impl World {
    /// One turn of a waiter. Answers whether it still waits; one that is in leaves again.
    fn takes_a_fair_turn(&mut self, scenario: &Scenario, client: usize) -> bool {
        let now = self.client_now(client);
        match self.phase(client) {
            Some(Phase::In) => {
                self.leave(scenario, client);
                self.settle(scenario);
                return false;
            }
            Some(Phase::Waiting) => {
                let renew = self.look(scenario, client);
                renew.into_iter().for_each(|renew| self.exchange(scenario, renew));
            }
            Some(Phase::Joining) => {
                let join = self.clients[client].retry(now);
                join.into_iter().for_each(|join| self.exchange(scenario, join));
            }
            Some(Phase::Lost(_)) | None => {
                self.leave(scenario, client);
                self.settle(scenario);
                let join = self.clients[client].start(client, now);
                self.exchange(scenario, join);
            }
        }
        true
    }

    fn look(&mut self, scenario: &Scenario, client: usize) -> Option<Message> {
        let now = self.client_now(client);
        self.clients[client].look(&scenario.clients[client], now)
    }

    /// Delivers a message and everything that comes of it, at once.
    fn exchange(&mut self, scenario: &Scenario, message: Message) {
        self.deliver(scenario, message);
        self.settle(scenario);
    }

    fn settle(&mut self, scenario: &Scenario) {
        for message in self.network.drain() {
            // A message can cause at most: a request its answer, an answer a leave, a leave some bells.
            debug_assert!(!matches!(message.body, Body::Renew { .. }), "nobody renews by itself");
            self.exchange(scenario, message);
        }
    }
}
