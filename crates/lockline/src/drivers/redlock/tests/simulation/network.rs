//! Chance, and messages that are late, lost, reordered and repeated.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::drivers::redlock::tally::Answer;
use crate::line::{Bell, ClaimId, Ticket};
use crate::time::Time;

/// Numbers by chance, the same for the same seed.
#[derive(Debug)]
pub(in crate::drivers::redlock::tests) struct Dice(u64);

impl Dice {
    pub(in crate::drivers::redlock::tests) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }

    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `low` up to, but not, `high`.
    pub(in crate::drivers::redlock::tests) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll() % (high - low).max(1)
    }

    /// Once in a thousand, times `permille`.
    pub(in crate::drivers::redlock::tests) fn chance(&mut self, permille: u64) -> bool {
        self.roll() % 1000 < permille
    }
}

/// What a client asks a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    Propose { id: ClaimId, ticket: Ticket, shared: bool, wait: bool },
    Renew { id: ClaimId, ticket: Ticket },
    Leave { id: ClaimId },
}

/// What happens next.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Asked {
        node: usize,
        client: usize,
        life: u32,
        round: u64,
        sent: Time,
        request: Request,
    },
    Answered {
        client: usize,
        life: u32,
        node: usize,
        round: u64,
        sent: Time,
        id: ClaimId,
        ticket: Ticket,
        answer: Answer,
    },
    Left {
        client: usize,
        life: u32,
        node: usize,
        id: ClaimId,
    },
    Rang {
        client: usize,
        life: u32,
        node: usize,
        bell: Bell,
    },
    /// Nobody waits any longer for the answers of this round.
    RoundOver {
        client: usize,
        life: u32,
        round: u64,
    },
    /// The client looks at what it is doing; `step` tells old alarms from the newest.
    Alarm {
        client: usize,
        life: u32,
        step: u64,
    },
    /// A leave is sent again to who did not answer.
    LeaveAgain {
        client: usize,
        life: u32,
        id: ClaimId,
    },
    Crash {
        client: usize,
    },
    CutOff {
        client: usize,
        for_us: u64,
    },
    Reborn {
        client: usize,
    },
    NodeDown {
        node: usize,
        for_us: u64,
        forgets: bool,
    },
    NodeUp {
        node: usize,
        forgets: bool,
    },
    NodePaused {
        node: usize,
        for_us: u64,
    },
    NodeWiped {
        node: usize,
    },
    ClockStep {
        node: usize,
        by_us: i64,
    },
}

/// How bad a network is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    pub(super) lost: u64,
    pub(super) slow: u64,
    pub(super) straggles: u64,
}

/// Everything under way, in the order of time.
#[derive(Debug)]
pub(super) struct Network {
    /// When, in which order of those at the same time, and where in `events`: what is sorted is small.
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<Event>>,
    /// Places in `events` that are free.
    free: Vec<usize>,
    sequence: u64,
    /// When the last message arrives that was sent from a client to a node, and back: a connection keeps their order.
    last: Vec<[u64; 2]>,
    clients: usize,
    pub(super) weather: Weather,
    lease_us: u64,
    /// Until when nothing reaches a client, nor comes from it.
    pub(super) cut_off: Vec<u64>,
}

impl Network {
    pub(super) fn new(nodes: usize, clients: usize, weather: Weather, lease_us: u64) -> Network {
        Network {
            queue: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            sequence: 0,
            last: vec![[0; 2]; nodes * clients],
            clients,
            weather,
            lease_us,
            cut_off: vec![0; clients],
        }
    }

    pub(super) fn at(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(event);
        self.queue.push(Reverse((at, self.sequence, place)));
    }

    pub(super) fn next(&mut self) -> Option<(u64, Event)> {
        let Reverse((at, _, place)) = self.queue.pop()?;
        self.free.push(place);
        self.events[place].take().map(|event| (at, event))
    }

    /// Sends a message over a connection; `back` is from the node to the client.
    pub(super) fn send(
        &mut self,
        dice: &mut Dice,
        now: u64,
        (client, node): (usize, usize),
        back: bool,
        event: Event,
    ) {
        if dice.chance(self.weather.lost) || self.cut_off[client] > now {
            return;
        }
        if dice.chance(self.weather.straggles) {
            // From an old connection: it comes long after, past everything that was sent later. Perhaps a second time.
            let late = now + dice.between(self.lease_us / 50, self.lease_us * 3 / 2);
            self.at(late, event.clone());
            if dice.chance(500) {
                return;
            }
        }
        let mut at = now + dice.between(40, 260);
        if dice.chance(self.weather.slow) {
            at += dice.between(1_000, self.lease_us / 12);
        }
        let last = &mut self.last[node * self.clients + client][usize::from(back)];
        at = at.max(*last + 1);
        *last = at;
        self.at(at, event);
    }
}
