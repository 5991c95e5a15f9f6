//! wip

mod client;
mod engine;
mod names;
mod network;
mod progress;
mod properties;
mod scenarios;
mod tests;
mod world;

use std::collections::BTreeSet;
use std::sync::Mutex;

use stateright::{Model, Property};

use self::client::Client;
use self::engine::Engine;
use self::network::Network;
use self::properties::Broken;
use self::scenarios::Scenario;
use self::world::{Action, Spent, World};
use crate::hold::validity::Phase;
use crate::line::Ticket;
use crate::mutant::{self, Mutant};

/// Where the clocks begin: far enough from zero for a step back.
const EPOCH_US: u64 = 10_000_000;

/// A scenario to check, perhaps with a bug in it.
struct Lockline {
    scenario: Scenario,
    mutant: Option<Mutant>,
    /// The properties already seen broken. The checker goes on after a discovery and would report its last
    /// counterexample; the first one is the shortest.
    found: Mutex<BTreeSet<&'static str>>,
}

impl Lockline {
    fn new(scenario: Scenario, mutant: Option<Mutant>) -> Lockline {
        Lockline { scenario, mutant, found: Mutex::default() }
    }
}

impl Model for Lockline {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            tick: 0,
            engine: Engine::default(),
            clients: vec![Client::default(); self.scenario.clients.len()],
            network: Network::default(),
            spent: Spent::default(),
            mark: Ticket::ZERO,
            broken: Broken::default(),
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let scenario = &self.scenario;
        if world.is_over(scenario) {
            return;
        }
        for (client, state) in world.clients.iter().enumerate() {
            let Some(attempt) = &state.attempt else {
                if world.spent.attempts < scenario.attempts && !world.would_only_swap_names(scenario, client)
                {
                    actions.push(Action::Start(client));
                }
                continue;
            };
            let phase = attempt.phase(world.client_now(client));
            // A call is given up, and asked again, only when its deadline has passed: not in the tick of its sending.
            if phase == Phase::Joining && !attempt.just_asked && world.spent.retries < scenario.retries {
                actions.push(Action::Retry(client));
            }
            if matches!(phase, Phase::Waiting | Phase::In)
                && !attempt.just_asked
                && world.spent.looks < scenario.looks
            {
                actions.push(Action::Look(client));
            }
            if matches!(phase, Phase::Lost(_)) || world.spent.leaves < scenario.leaves {
                actions.push(Action::Leave(client));
            }
        }
        for index in world.network.deliverable() {
            actions.push(Action::Deliver(index));
            if world.spent.duplicates < scenario.duplicates {
                actions.push(Action::DeliverTwice(index));
            }
        }
        if world.tick < scenario.ticks {
            actions.push(Action::Tick { slow: None });
            if world.spent.slow_ticks < scenario.slow_ticks {
                actions.extend((0..world.clients.len()).map(|slow| Action::Tick { slow: Some(slow) }));
            }
        }
        if world.spent.sweeps < scenario.sweeps {
            actions.push(Action::Sweep);
        }
        if world.spent.evictions < scenario.evictions {
            actions.extend(world.engine.line.seen().map(|seen| Action::Evict(seen.ticket)));
        }
        if world.spent.restarts < scenario.restarts {
            actions.push(Action::Restart);
        }
        if world.spent.steps_back < scenario.steps_back {
            actions.push(Action::StepBack);
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        mutant::with(self.mutant, || {
            let mut world = before.clone();
            world.act(&self.scenario, action)?;
            world.compare_guards(&self.scenario, before);
            world.drop_spent_messages(&self.scenario);
            world.drop_spent_memories();
            let now = world.engine.now(world.tick).at;
            world.engine.line.normalise(now, self.scenario.steps_back > 0);
            Some(world)
        })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
