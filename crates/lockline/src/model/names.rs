//! Several names at once: which ways of taking them can wait in a circle.
//!
//! A second, smaller model: a [`Line`] for each name, no faults and no time, because a circle needs neither. Clients
//! join what their plan says, and leave everything once they have everything. A state in which somebody is unfinished
//! and nobody can do anything is a deadlock.

use std::sync::Arc;
use std::time::Duration;

use stateright::{Checker, Model, Property};

use crate::line::{Claim, ClaimId, Line, Mode, Now, Primitive, Who};
use crate::name::Name;
use crate::time::Time;

const NO_DEADLOCK: &str = "somebody can go on until all are done";

/// When a client joins the lines of its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The next only when in the one before.
    OneByOne,
    /// All without waiting: the requests may overtake one another, as each goes to a line of its own.
    Pipelined,
    /// All in one step, as an engine could offer.
    AtOnce,
}

/// What a client takes, in its order: names by number, which is also how they sort.
#[derive(Clone, Debug)]
struct Plan {
    way: Way,
    wants: Vec<(usize, Mode)>,
    /// An owner identity that the engine knows, shared by all claims of this client.
    identity: bool,
}

impl Plan {
    fn one_by_one(names: impl IntoIterator<Item = usize>) -> Plan {
        let wants = names.into_iter().map(|name| (name, Mode::Exclusive)).collect();
        Plan { way: Way::OneByOne, wants, identity: false }
    }

    /// The rule above the driver: an owner takes a name only if it sorts after all that it holds. The unsorted plan,
    /// re-entry inside `all`, the upgrade, the same name twice and permits one by one are all refused by it.
    fn is_refused(&self, next: usize) -> bool {
        self.wants[..next].iter().any(|held| held.0 >= self.wants[next].0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lines {
    lines: Vec<Line>,
    clients: Vec<Progress>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Progress {
    /// Which wants of the plan have joined.
    Joined(Vec<bool>),
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Join {
        client: usize,
        want: usize,
    },
    JoinAll {
        client: usize,
    },
    /// Has everything, or was refused: leaves everything.
    Finish {
        client: usize,
    },
}

struct Names {
    plans: Vec<Plan>,
    /// Whether the rule above the driver is asked before each join.
    refuses: bool,
}

const NOW: Now = Now { at: Time::from_micros(1), ticket_us: 1 };

impl Names {
    fn claim(&self, client: usize, want: usize) -> Claim {
        let (name, mode) = self.plans[client].wants[want];
        let owner = format!("owner-{client}");
        Claim {
            name: Name::new(format!("name-{name}")).expect("a name"),
            id: ClaimId::from_u128(((client as u128) << 8) | want as u128),
            mode,
            lease: Duration::from_secs(1),
            identity: self.plans[client].identity.then(|| owner.as_str().into()),
            primitive: Primitive::Mutex,
            who: Arc::new(Who { owner, host: String::new(), pid: 0 }),
        }
    }

    fn is_in(&self, lines: &Lines, client: usize, want: usize) -> bool {
        let claim = self.claim(client, want);
        lines.lines[self.plans[client].wants[want].0].seen().any(|seen| seen.id == claim.id && seen.is_in)
    }

    /// Joins; a refusal by the line ends the plan.
    fn join(&self, lines: &mut Lines, client: usize, want: usize) {
        let name = self.plans[client].wants[want].0;
        let answer = lines.lines[name].join(NOW, &self.claim(client, want), true).answer;
        match &mut lines.clients[client] {
            Progress::Joined(joined) if answer.is_ok() => joined[want] = true,
            _ => self.finish(lines, client),
        }
    }

    fn finish(&self, lines: &mut Lines, client: usize) {
        for (want, (name, _)) in self.plans[client].wants.iter().enumerate() {
            lines.lines[*name].leave(NOW, self.claim(client, want).id);
        }
        lines.clients[client] = Progress::Done;
    }

    fn steps_of(&self, lines: &Lines, client: usize) -> Vec<Step> {
        let Progress::Joined(joined) = &lines.clients[client] else { return Vec::new() };
        let plan = &self.plans[client];
        let all_in = |wants: usize| (0..wants).all(|want| joined[want] && self.is_in(lines, client, want));
        if all_in(joined.len()) {
            return vec![Step::Finish { client }];
        }
        let missing = (0..joined.len()).filter(|want| !joined[*want]);
        match plan.way {
            Way::Pipelined => missing.map(|want| Step::Join { client, want }).collect(),
            Way::AtOnce => missing.take(1).map(|_| Step::JoinAll { client }).collect(),
            Way::OneByOne => {
                let next = missing.take(1).filter(|want| all_in(*want));
                next.map(|want| match self.refuses && plan.is_refused(want) {
                    true => Step::Finish { client },
                    false => Step::Join { client, want },
                })
                .collect()
            }
        }
    }
}

impl Model for Names {
    type State = Lines;
    type Action = Step;

    fn init_states(&self) -> Vec<Lines> {
        let names = self.plans.iter().flat_map(|plan| &plan.wants).map(|want| want.0 + 1).max().unwrap_or(0);
        let clients = self.plans.iter().map(|plan| Progress::Joined(vec![false; plan.wants.len()])).collect();
        vec![Lines { lines: vec![Line::default(); names], clients }]
    }

    fn actions(&self, lines: &Lines, actions: &mut Vec<Step>) {
        actions.extend((0..self.plans.len()).flat_map(|client| self.steps_of(lines, client)));
    }

    fn next_state(&self, lines: &Lines, step: Step) -> Option<Lines> {
        let mut next = lines.clone();
        match step {
            Step::Join { client, want } => self.join(&mut next, client, want),
            Step::JoinAll { client } => {
                (0..self.plans[client].wants.len()).for_each(|want| self.join(&mut next, client, want));
            }
            Step::Finish { client } => self.finish(&mut next, client),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Names>> {
        vec![Property::always(NO_DEADLOCK, |model: &Names, lines: &Lines| {
            let done = lines.clients.iter().all(|client| *client == Progress::Done);
            done || (0..model.plans.len()).any(|client| !model.steps_of(lines, client).is_empty())
        })]
    }
}

/// The steps to a deadlock, if there is one.
fn deadlock(plans: &[Plan], refuses: bool) -> Option<Vec<Step>> {
    let checker = Names { plans: plans.to_vec(), refuses }.checker().threads(1).spawn_bfs().join();
    checker.discovery(NO_DEADLOCK).map(|path| path.into_actions())
}

fn subset(bits: usize) -> Plan {
    Plan::one_by_one((0..3).filter(|name| bits & (1 << name) != 0))
}

#[test]
fn sorted_one_by_one_never_waits_in_a_circle() {
    for (first, second) in (1..8).flat_map(|first| (1..8).map(move |second| (first, second))) {
        assert_eq!(deadlock(&[subset(first), subset(second)], false), None, "{first:b} and {second:b}");
    }
    let three = [Plan::one_by_one([0, 1]), Plan::one_by_one([1, 2]), Plan::one_by_one([0, 2])];
    assert_eq!(deadlock(&three, false), None);
}

/// Two clients, or one that waits for itself: every plan here deadlocks, and none does once the rule refuses it.
#[test]
fn every_plan_against_the_rule_waits_in_a_circle() {
    let taking = |wants: &[(usize, Mode)]| Plan { wants: wants.to_vec(), ..Plan::one_by_one([]) };
    let permit = Mode::Permits { count: 1, limit: 2 };
    let sorted = Plan::one_by_one([0, 1]);
    let against: [(&str, Vec<Plan>); 5] = [
        ("unsorted", vec![sorted.clone(), Plan::one_by_one([1, 0])]),
        // Holds 1, then takes all of 0 and 1: only 0 is missing, and it sorts before.
        ("re-entry inside all", vec![sorted, taking(&[(1, Mode::Exclusive), (0, Mode::Exclusive)])]),
        ("read to write", vec![taking(&[(0, Mode::Shared), (0, Mode::Exclusive)])]),
        ("the same name twice", vec![Plan::one_by_one([0, 0])]),
        (
            "permits one by one",
            vec![taking(&[(0, permit), (0, permit)]), taking(&[(0, permit), (0, permit)])],
        ),
    ];
    for (what, plans) in against {
        let steps = deadlock(&plans, false).unwrap_or_else(|| panic!("{what} should deadlock"));
        println!("{what}: deadlock in {} steps: {steps:?}", steps.len());
        assert_eq!(deadlock(&plans, true), None, "{what}, refused");
    }
}

#[test]
fn pipelined_and_mixed_ways_wait_in_a_circle() {
    let sorted = Plan::one_by_one([0, 1]);
    let pipelined = Plan { way: Way::Pipelined, ..sorted.clone() };
    let at_once = Plan { way: Way::AtOnce, ..sorted.clone() };
    for (what, plans) in [
        ("pipelined", [pipelined.clone(), pipelined]),
        ("one by one beside all at once", [sorted, at_once.clone()]),
    ] {
        let steps = deadlock(&plans, true).unwrap_or_else(|| panic!("{what} should deadlock"));
        println!("{what}: deadlock in {} steps: {steps:?}", steps.len());
    }
    // Alone it would do: what fails is the mixture.
    assert_eq!(deadlock(&[at_once.clone(), at_once], true), None);
}

/// With an identity that the engine knows, the line itself sees that a claim would wait for itself.
#[test]
fn an_identity_never_waits_for_itself() {
    let upgrade =
        Plan { wants: vec![(0, Mode::Shared), (0, Mode::Exclusive)], identity: true, ..Plan::one_by_one([]) };
    assert_eq!(deadlock(&[upgrade.clone(), upgrade], false), None);
    let twice = Plan { identity: true, ..Plan::one_by_one([0, 0]) };
    assert_eq!(deadlock(&[twice.clone(), twice], false), None);
}
