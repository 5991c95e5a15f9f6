//! The whole protocol, checked state by state.
//!
//! [`stateright`] visits every state that a few clients, an engine and the network between them can reach, and looks
//! for one that breaks a rule. The engine is the library's own [`Line`](crate::line::Line), what a client believes is
//! the library's own [`Belief`](crate::hold::validity::Belief): nothing of their rules is written here again.
//!
//! # What is modelled
//! - **Clients** ([`client`]): register, join, ask an unanswered join again with the same id, look again by renewing,
//!   leave, cancel at any moment, start anew with a new id after a loss, answer what concerns a forgotten claim with
//!   `leave`. Every step is a choice, so a pause of any length at any point is among the runs.
//! - **The network** ([`network`]): any message under way may be the next to arrive, or never arrive: late, reordered
//!   and lost. Some arrive twice. Only a `leave` waits for the joins of its claim, as a driver promises.
//! - **The engine** ([`engine`]): drops what lapsed only when a verb comes, may forget everything (then the restart
//!   guard), its clock may step back, an operator may evict, strangers may sweep.
//! - **Time**: ticks of 10 ms, leases of one to three ticks. A slow client clock loses 2 ms, within the margin of
//!   2 ms and 1 % that a lease of a few ticks has.
//! - **Rules** ([`properties`]), in every state; **progress** ([`progress`]): every state is continued without faults,
//!   and everyone who waits must get in, with everything under way lost, with everything arriving, with all holders
//!   dead, and with any one holder staying for ever where there is room beside it.
//! - **Several names** ([`names`]): a second, small model of the ways to wait in a circle.
//! - **Lines that are lent** (`loans`): a third one, of a shortcut that Redis has.
//!
//! # What is left out, and why that is sound
//! - Time ends after some ticks. Leases are short against that, so every lease begun in the first ticks is seen to end.
//!   What takes longer is for the property tests (`tests/line_properties`).
//! - Budgets: so many attempts, retries, looks, releases and faults of each kind in a run; see [`scenarios`]. Each
//!   scenario is explored to its last state; none is cut by depth.
//! - No message is lost by an action of its own: never arriving is the same, and saves the states in between.
//! - Messages that change nothing when they arrive are dropped at once ([`World::drop_spent_messages`]): answers that
//!   teach nothing, leaves of a claim that has neither a place nor a join under way. The one trace such a leave would
//!   make, sweeping the line, is the action [`Action::Sweep`]. A dropped answer would also have caused one more
//!   `leave`, had it come after its client forgot the claim; that is one helpful message less, which any network may
//!   lose.
//! - What no verb can tell apart is one state: [`Line::normalise`](crate::line::Line::normalise).
//! - Of clients that want the same, the first to start is called the first: the others are its mirror images.
//! - A run ends when nobody claims any more: no guard can come of what is still under way.
//! - Eviction *at once* is left out (only the token protects then, by design), and so are shared identities and
//!   `max_hold` (an end like that of a fixed lease): the property tests have the first two. Engine clocks never step
//!   forward here: no engine promises exclusion then.
//! - `tokens_rise` is waived in the one scenario where an engine forgets everything *and* its clock is far behind: the
//!   model does find older tokens there, which is the limit that `Fencing::ClockBounded` names.
//!
//! # Sizes
//! Unique states and depth, as printed by `no_scenario_breaks_a_rule`; 5.6 M in all, in 43 s of processor time.
//!
//! | scenario | states | depth |
//! |---|---|---|
//! | two writers, a join asked again | 103140 | 17 |
//! | two writers, renewals | 230360 | 22 |
//! | two writers, a line that others sweep | 234362 | 20 |
//! | two writers, a message arrives twice | 270641 | 18 |
//! | two writers, one claims anew | 214099 | 19 |
//! | two writers, one claims anew, the other asks again | 644081 | 21 |
//! | two writers, a second place for one id | 445757 | 20 |
//! | two writers, one with a slow clock | 267363 | 18 |
//! | two writers, a forgetful engine | 101109 | 16 |
//! | two writers, an engine that forgets twice | 70508 | 17 |
//! | two writers, a forgetful engine, a message arrives twice | 683768 | 21 |
//! | a long and a short lease, a forgetful engine | 152756 | 16 |
//! | two writers, the engine's clock steps back a tick | 287069 | 19 |
//! | two writers, the engine's clock steps back by far | 106842 | 16 |
//! | two writers, a forgetful engine whose clock steps back a tick | 99195 | 17 |
//! | two writers, a forgetful engine whose clock steps back by far | 137009 | 17 |
//! | two writers, one shown out | 349750 | 20 |
//! | a fixed lease and a writer | 371899 | 22 |
//! | a fixed lease shorter than the wait's, a message arrives twice | 147180 | 20 |
//! | a reader, a writer, a reader that tries | 234053 | 18 |
//! | three writers | 139524 | 18 |
//! | two readers and a writer | 199985 | 18 |
//! | three want one of two permits | 103134 | 17 |
//! | a writer and a permit on one name | 26719 | 15 |
//! | one of one permit, one of ten | 23575 | 14 |
//!
//! # Seeded bugs
//! As printed by `every_mutant_is_caught`: the rule that catches each, and the length of the shortest counterexample.
//!
//! | mutant | scenario | breaks | steps |
//! |---|---|---|---|
//! | BelieveById | a join asked again | valid guards fit together | 11 |
//! | StaleBellById | one claims anew, the other asks again | valid guards fit together | 15 |
//! | RejoinDoesNotExtend | a join asked again | valid guards fit together | 10 |
//! | ValidFromReceipt | one claims anew | valid guards fit together | 8 |
//! | BellCountsFromReceipt | one claims anew | valid guards fit together | 13 |
//! | EvictDropsHolder | one shown out | valid guards fit together | 7 |
//! | PermitsBesideExclusive | a writer and a permit | valid guards fit together | 6 |
//! | LargerLimitPasses | one of one permit, one of ten | valid guards fit together | 6 |
//! | LapsedOnlyFromFront | three want one of two permits | never stuck | 7 |
//! | ClockNeverBack | the clock steps back by far | never stuck | 5 |
//! | LeaveByName | one claims anew | valid guards fit together | 10 |
//! | PlainCounter | a forgetful engine | tokens rise | 7 |
//! | NoRestartGuard | a forgetful engine | valid guards fit together | 7 |
//! | ShortRestartGuard | a forgetful engine | valid guards fit together | 8 |
//! | TryPastWaiting | a reader, a writer, a reader that tries | a refused try leaves nothing | 6 |
//! | NoMargin | one with a slow clock | valid guards fit together | 8 |
//! | NeverLooksAgain | renewals | never stuck | 7 |
//!
//! Several names: unsorted 4 steps to a deadlock, re-entry inside `all` 4, read to write 2, the same name twice 2,
//! permits one by one 4, pipelined 4, one by one beside all at once 3; sorted one by one: none, over all pairs of
//! subsets of three names.

mod client;
mod engine;
mod loans;
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
