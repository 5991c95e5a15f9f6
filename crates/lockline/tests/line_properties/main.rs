//! Long random histories of one line, compared step by step with a naive reference, and with what the design promises.
//!
//! The model checker (`src/model`) sees everything that can happen in a few steps; these histories see what takes
//! hundreds: many claims, all modes, shared identities, clocks that jump, evictions, fixed leases, restarts.

mod reference;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lockline::Name;
use lockline::line::{
    Bell, Claim, ClaimId, ClaimView, Line, Mode, News, Now, Place, Primitive, Standing, Ticket, Who,
};
use lockline::time::Time;
use proptest::prelude::*;

use reference::{Number, Reference, Rung, Wants};

/// Few enough that claims often meet themselves again, many enough for a line.
const CLAIMS: usize = 14;
const LONGEST_LEASE: Duration = Duration::from_millis(500);
const GUARD: Duration = Duration::from_millis(300);

#[derive(Clone, Debug)]
enum Verb {
    Join {
        claim: usize,
        wait: bool,
    },
    Renew {
        claim: usize,
        ticket: Knows,
        last: bool,
    },
    Leave {
        claim: usize,
    },
    /// Evicts the place that stands this far back, or a ticket that was never given.
    Evict {
        back: usize,
        at_once: bool,
    },
    DropGone {
        claim: usize,
    },
    Tick,
    Restart,
}

/// The ticket that a renewal names.
#[derive(Clone, Copy, Debug)]
enum Knows {
    Right,
    Another,
    None,
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        2 => Just(Mode::Exclusive),
        2 => Just(Mode::Shared),
        3 => (1u32..=2, 2u32..=4).prop_map(|(count, limit)| Mode::Permits { count, limit }),
    ]
}

fn wants() -> impl Strategy<Value = Wants> {
    let lease = prop_oneof![Just(10u64), Just(60), Just(200), Just(500)].prop_map(Duration::from_millis);
    let identity = prop_oneof![3 => Just(None), 2 => (0u8..2).prop_map(Some)];
    // The number is set when the table is made: it is the claim's position.
    (mode(), lease, identity).prop_map(|(mode, lease, identity)| Wants { number: 0, mode, lease, identity })
}

fn verb() -> impl Strategy<Value = Verb> {
    let claim = || 0..CLAIMS;
    let knows = prop_oneof![4 => Just(Knows::Right), 1 => Just(Knows::Another), 1 => Just(Knows::None)];
    prop_oneof![
        80 => (claim(), prop::bool::weighted(0.8)).prop_map(|(claim, wait)| Verb::Join { claim, wait }),
        50 => (claim(), knows, prop::bool::weighted(0.2))
            .prop_map(|(claim, ticket, last)| Verb::Renew { claim, ticket, last }),
        30 => claim().prop_map(|claim| Verb::Leave { claim }),
        12 => (0usize..6, prop::bool::weighted(0.3)).prop_map(|(back, at_once)| Verb::Evict { back, at_once }),
        4 => claim().prop_map(|claim| Verb::DropGone { claim }),
        8 => Just(Verb::Tick),
        1 => Just(Verb::Restart),
    ]
}

/// How many milliseconds the engine's clock goes on before a verb.
fn pace() -> impl Strategy<Value = i64> {
    prop_oneof![30 => Just(0i64), 60 => 1i64..15, 6 => 15i64..300, 1 => 400i64..1500, 2 => -30i64..0, 1 => -3000i64..-200]
}

fn id(number: Number) -> ClaimId {
    ClaimId::from_u128(u128::from(number) << 96)
}

fn number(id: ClaimId) -> Number {
    (id.as_u128() >> 96) as Number
}

fn name() -> Name {
    Name::new("line").expect("a name")
}

fn claim(wants: &Wants) -> Claim {
    Claim {
        name: name(),
        id: id(wants.number),
        mode: wants.mode,
        lease: wants.lease,
        // Ids are not shown to people; the pid tells the test who is who.
        who: Arc::new(Who { owner: String::new(), host: String::new(), pid: wants.number }),
        identity: wants.identity.map(|identity| format!("identity-{identity}").into()),
        primitive: Primitive::Mutex,
    }
}

/// What a verb did: the line's bells, the joiner who is told by its answer, and who was shown out.
type Done = (Vec<Bell>, Option<Number>, Vec<Rung>);

/// The line, the reference, and the clock that both are told.
struct Pair {
    line: Line,
    naive: Reference,
    at: Time,
}

impl Pair {
    fn now(&self) -> Now {
        Now { at: self.at, ticket_us: self.at.as_micros() }
    }

    fn pass(&mut self, ms: i64) {
        let by = Duration::from_millis(ms.unsigned_abs());
        self.at = if ms < 0 { self.at.minus(by) } else { self.at + by };
    }

    /// Does one verb on both, compares answers and bells, then everything that can be seen.
    fn step(&mut self, table: &[Wants], verb: &Verb) -> Result<(), TestCaseError> {
        if let Verb::Restart = verb {
            self.line = Line::restarted(self.at, GUARD);
            self.naive = Reference::restarted(self.at, GUARD);
            return Ok(());
        }
        let in_before: BTreeSet<u64> = self.tickets_in();
        let last_before = self.line.last_ticket();
        self.naive.catch_up(self.at);
        let (bells, caller, evicted) = self.verb(table, verb, &in_before)?;
        let newly_in = self.naive.all_in(self.at).into_iter().filter(|ticket| !in_before.contains(ticket));
        let mut rung: Vec<Rung> = newly_in
            .flat_map(|ticket| self.naive.claims.iter().filter(move |claim| claim.ticket == ticket))
            .filter(|claim| Some(claim.number) != caller)
            .map(|claim| (claim.number, claim.ticket, false))
            .chain(evicted)
            .collect();
        let mut rang: Vec<Rung> = bells
            .iter()
            .map(|bell: &Bell| (number(bell.id), bell.ticket.get(), bell.news == News::Out))
            .collect();
        rung.sort_unstable();
        rang.sort_unstable();
        prop_assert_eq!(rang, rung, "bells exactly for those who got in or were shown out");
        self.compare(&in_before, last_before)
    }

    /// Does the verb on both, and compares the answers.
    fn verb(
        &mut self,
        table: &[Wants],
        verb: &Verb,
        in_before: &BTreeSet<u64>,
    ) -> Result<Done, TestCaseError> {
        let now = self.now();
        match *verb {
            Verb::Join { claim, wait } => {
                let bells = self.join(&table[claim], wait)?;
                Ok((bells, Some(table[claim].number), Vec::new()))
            }
            Verb::Renew { claim, ticket, last } => {
                let bells = self.renew(&table[claim], ticket, last)?;
                Ok((bells, None, Vec::new()))
            }
            Verb::Leave { claim } => {
                let bells = self.line.leave(now, id(table[claim].number)).bells;
                self.naive.leave(table[claim].number);
                prop_assert!(self.seen_of(table[claim].number).is_none(), "leave removes everything");
                Ok((bells, None, Vec::new()))
            }
            Verb::DropGone { claim } => {
                let gone = id(table[claim].number);
                let bells = self.line.drop_gone(now, |id| id == gone).bells;
                self.naive.leave(table[claim].number);
                Ok((bells, None, Vec::new()))
            }
            Verb::Evict { back, at_once } => {
                let ticket = self.naive.claims.get(back).map_or(u64::MAX, |claim| claim.ticket);
                // One that would get in by this very verb has not been told so: it is dropped as one that waits.
                let keeps_place = in_before.contains(&ticket) && !at_once;
                let (rung, found) = self.naive.evict(ticket, keeps_place);
                let step = self.line.evict(now, Ticket::new(ticket), at_once);
                prop_assert_eq!(step.answer, found, "evict says whether there was such a place");
                Ok((step.bells, None, rung))
            }
            Verb::Tick | Verb::Restart => Ok((self.line.tick(now).bells, None, Vec::new())),
        }
    }

    fn join(&mut self, wants: &Wants, wait: bool) -> Result<Vec<Bell>, TestCaseError> {
        let had = self.naive.find(wants.number).cloned();
        let expected = self.naive.join(self.at, wants, wait);
        let step = self.line.join(self.now(), &claim(wants), wait);
        prop_assert_eq!(step.answer.map_err(|_| ()), expected, "the answer to a join");
        let stands = self.seen_of(wants.number);
        if let Some(had) = had {
            let seen = stands.expect("a repeated join finds its place");
            prop_assert_eq!(seen.ticket.get(), had.ticket, "a repeated join finds the same ticket");
            let extends = !had.closed && !had.fixed;
            prop_assert!(!extends || seen.remaining >= wants.lease, "a repeated join extends");
        } else if expected == Ok(Standing::Out) {
            prop_assert!(!wait && stands.is_none(), "a refused try leaves nothing");
        }
        Ok(step.bells)
    }

    fn renew(&mut self, wants: &Wants, knows: Knows, last: bool) -> Result<Vec<Bell>, TestCaseError> {
        let had = self.naive.find(wants.number).cloned();
        let ticket = match (knows, &had) {
            (Knows::Right, Some(claim)) => Some(claim.ticket),
            (Knows::None, _) => None,
            _ => Some(7),
        };
        let expected = self.naive.renew(self.at, wants, ticket, last);
        let place = Place {
            name: name(),
            id: id(wants.number),
            ticket: ticket.map(Ticket::new),
            lease: wants.lease,
            last,
        };
        let step = self.line.renew(self.now(), &place);
        prop_assert_eq!(step.answer, expected, "the answer to a renewal");
        let stands = self.seen_of(wants.number);
        prop_assert_eq!(stands.is_some(), had.is_some(), "a renewal neither makes a place nor ends one");
        if let (Some(seen), Some(had)) = (stands, had.filter(|had| had.fixed || had.closed)) {
            prop_assert_eq!(
                seen.remaining,
                had.deadline.since(self.at),
                "nothing moves a fixed or closed deadline"
            );
        }
        Ok(step.bells)
    }

    fn seen_of(&self, number: Number) -> Option<ClaimView> {
        let view = self.line.view(self.at, &name());
        view.holders.into_iter().chain(view.waiters).find(|seen| seen.who.pid == number)
    }

    fn tickets_in(&self) -> BTreeSet<u64> {
        // Also those that lapse at this very verb: at the origin of time nothing has lapsed.
        self.line.view(Time::ZERO, &name()).holders.iter().map(|seen| seen.ticket.get()).collect()
    }

    /// Compares what can be seen, and what must be true of it whatever the reference says.
    fn compare(&self, in_before: &BTreeSet<u64>, last_before: Ticket) -> Result<(), TestCaseError> {
        let view = self.line.view(self.at, &name());
        let seen = |list: &[ClaimView]| -> Vec<(Number, u64, Duration, Duration, bool)> {
            let claims = list.iter();
            let mut all: Vec<_> = claims
                .map(|seen| (seen.who.pid, seen.ticket.get(), seen.remaining, seen.since, seen.evicted))
                .collect();
            all.sort_unstable();
            all
        };
        let expected = |is_in: bool| {
            let claims =
                self.naive.claims.iter().filter(|claim| self.naive.is_in(claim.ticket, self.at) == is_in);
            let mut all: Vec<_> = claims
                .map(|claim| {
                    let remaining = claim.deadline.since(self.at);
                    (claim.number, claim.ticket, remaining, self.at.since(claim.since), claim.closed)
                })
                .collect();
            all.sort_unstable();
            all
        };
        prop_assert_eq!(seen(&view.holders), expected(true), "who holds");
        prop_assert_eq!(seen(&view.waiters), expected(false), "who waits");
        prop_assert_eq!(self.line.is_empty(), self.naive.claims.is_empty());
        prop_assert_eq!(
            self.line.last_ticket().get(),
            self.naive.last_ticket,
            "tickets are max(last + 1, clock)"
        );

        prop_assert!(self.line.last_ticket() >= last_before, "tickets rise");
        let everyone = || view.holders.iter().chain(&view.waiters);
        prop_assert!(
            everyone().map(|seen| seen.ticket).is_sorted(),
            "holders, then waiters, in ticket order"
        );
        let waits_again = view.waiters.iter().any(|seen| in_before.contains(&seen.ticket.get()));
        prop_assert!(!waits_again, "once in, in until gone");
        let numbers: BTreeSet<u32> = everyone().map(|seen| seen.who.pid).collect();
        prop_assert_eq!(numbers.len(), everyone().count(), "no claim stands twice");
        Ok(())
    }

    fn everything_lapses(mut self) -> Result<(), TestCaseError> {
        self.line.tick(self.now());
        self.at = self.at + LONGEST_LEASE;
        self.line.tick(self.now());
        prop_assert!(self.line.is_empty(), "one lease after the last word nothing is left");
        Ok(())
    }
}

fn run(begins: Pair, mut table: Vec<Wants>, history: &[(i64, Verb)]) -> Result<(), TestCaseError> {
    let mut pair = begins;
    (0..).zip(&mut table).for_each(|(number, wants)| wants.number = number);
    for (ms, verb) in history {
        pair.pass(*ms);
        pair.step(&table, verb)?;
    }
    pair.everything_lapses()
}

const BEGIN: Time = Time::from_micros(3_600_000_000);

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn a_line_does_what_the_design_says(
        table in prop::collection::vec(wants(), CLAIMS),
        history in prop::collection::vec((pace(), verb()), 1..400),
    ) {
        run(Pair { line: Line::default(), naive: Reference::default(), at: BEGIN }, table, &history)?;
    }

    #[test]
    fn a_line_goes_on_after_a_ticket(
        ahead in 0u64..10_000_000,
        table in prop::collection::vec(wants(), CLAIMS),
        history in prop::collection::vec((pace(), verb()), 1..100),
    ) {
        let last = BEGIN.as_micros() + ahead;
        run(Pair { line: Line::after(Ticket::new(last)), naive: Reference::after(last), at: BEGIN }, table, &history)?;
    }

    #[test]
    fn a_restarted_line_lets_nobody_in_before_its_guard_ends(
        table in prop::collection::vec(wants(), CLAIMS),
        history in prop::collection::vec((1i64..4, verb()), 1..100),
    ) {
        let mut pair = Pair { line: Line::restarted(BEGIN, GUARD), naive: Reference::restarted(BEGIN, GUARD), at: BEGIN };
        let table: Vec<Wants> =
            (0..).zip(table).map(|(number, wants)| Wants { number, ..wants }).collect();
        for (ms, verb) in history.iter().filter(|(_, verb)| !matches!(verb, Verb::Restart)) {
            pair.pass(*ms);
            pair.step(&table, verb)?;
            let holders = pair.line.view(pair.at, &name()).holders;
            prop_assert!(pair.at >= BEGIN + GUARD || holders.is_empty());
            let begins = (BEGIN + GUARD).as_micros();
            prop_assert!(holders.iter().all(|seen| seen.ticket.get() >= begins));
        }
    }
}
