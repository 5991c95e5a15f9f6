//! A line that is lent: whether its borrower, who sends plain commands, and everybody else, who sends scripts, ever hold it together.
//!
//! A third model, of `drivers/redis/lent.rs` and `take_back` in its line.lua, and of nothing else: one lock that is taken without
//! waiting, no queue. Requests and answers may be late and lost, connections end and leave requests behind that come late, whoever waits
//! may stop waiting, leases end while their holders stand still. Bugs are put in on purpose, and each is found.

use std::collections::VecDeque;

use stateright::{Checker, Model, Property};

const ONE_HOLDER: &str = "at most one valid holder";
const TOKENS_RISE: &str = "every grant has a larger ticket than those before";
/// Something must happen at all: a lock is taken with a loan.
const BORROWED: &str = "somebody holds by a loan";

/// How many tickets go with a loan.
const TICKETS: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Plain commands do not ask whether the loan is still there.
    WritesAnyway,
    /// Whoever takes a line back leaves the key of the loan there.
    LeavesKey,
    /// The line goes on behind the last ticket that a script gave.
    ReservesNoTickets,
    /// What stands in a loan that is taken back is forgotten.
    ForgetsBorrower,
    /// The key of a loan is called like those before it.
    OneKeyForAll,
}

type ClaimId = (usize, u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Loan {
    last: u8,
    next: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Request {
    /// By a script.
    Join(ClaimId),
    Leave {
        claim: ClaimId,
        asks: bool,
    },
    /// Or looks at it: any other script.
    Renew(ClaimId),
    /// Into the key of the loan, if it is there.
    Write {
        loan: Loan,
        claim: Option<ClaimId>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Answer {
    In(u8),
    Busy,
    Left(Option<Loan>),
    Renewed,
    Written(bool),
}

/// What one client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Nothing,
    Joining { claim: ClaimId, with: Option<Loan>, valid: bool },
    Holding { claim: ClaimId, with: Option<Loan>, valid: bool },
    Leaving { claim: ClaimId, with: Option<Loan> },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    doing: Doing,
    loan: Option<Loan>,
    claims: u8,
    /// Requests that are not done, and answers that are not read, of the connection that is there.
    sent: VecDeque<Request>,
    answers: VecDeque<Answer>,
    /// A request that an earlier connection left behind.
    behind: Option<Request>,
    may_reconnect: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    /// The root: the last ticket, whether it is lent, and who stands there otherwise.
    last: u8,
    lent: bool,
    holder: Option<(ClaimId, u8)>,
    /// The key of a loan, by its last ticket, and who stands in it.
    key: Option<(u8, Option<(ClaimId, u8)>)>,
    granted: u8,
    rises: bool,
    clients: Vec<Client>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Join(usize),
    Leave(usize),
    Renew(usize),
    /// Stops waiting for an answer, and leaves.
    GiveUp(usize),
    Reconnect(usize),
    /// Stands still until its lease has ended.
    Pause(usize),
    Serve(usize),
    ServeLate(usize),
    LoseLate(usize),
    Read(usize),
    /// What nobody can hold any more ends, also a loan that is not used.
    Lapse,
}

struct Loans {
    bug: Bug,
    /// How many claims each client makes.
    claims: [u8; 2],
}

impl World {
    fn grant(&mut self, ticket: u8) {
        self.rises &= ticket > self.granted;
        self.granted = self.granted.max(ticket);
    }

    /// Whether the client may still believe in its claim.
    fn may_hold(&self, claim: ClaimId) -> bool {
        match self.clients[claim.0].doing {
            Doing::Joining { claim: own, valid, .. } | Doing::Holding { claim: own, valid, .. } => {
                own == claim && valid
            }
            Doing::Nothing | Doing::Leaving { .. } => false,
        }
    }

    fn lapse(&mut self) {
        if let Some((claim, _)) = self.holder
            && !self.may_hold(claim)
        {
            self.holder = None;
        }
        match self.key {
            Some((_, Some((claim, _)))) if !self.may_hold(claim) => self.key = None,
            Some((_, None)) => self.key = None,
            _ => {}
        }
    }
}

impl Loans {
    fn serve(&self, world: &mut World, request: Request) -> Answer {
        if let Request::Write { loan, claim } = request {
            let named = if self.bug == Bug::OneKeyForAll { 0 } else { loan.last };
            let is_there = world.key.is_some_and(|(key, _)| key == named);
            if is_there || self.bug == Bug::WritesAnyway {
                world.key = Some((named, claim.map(|claim| (claim, loan.next))));
                if claim.is_some() {
                    world.grant(loan.next);
                }
                return Answer::Written(true);
            }
            return Answer::Written(false);
        }
        // Every script takes the line back first.
        if std::mem::take(&mut world.lent)
            && let Some((_, held)) = world.key
        {
            world.holder = held.filter(|_| self.bug != Bug::ForgetsBorrower);
            world.key = world.key.filter(|_| self.bug == Bug::LeavesKey);
        }
        match request {
            Request::Join(claim) => match world.holder {
                Some((own, ticket)) if own == claim => Answer::In(ticket),
                Some(_) => Answer::Busy,
                None => {
                    world.last += 1;
                    world.holder = Some((claim, world.last));
                    world.grant(world.last);
                    Answer::In(world.last)
                }
            },
            Request::Leave { claim, asks } => {
                let stands = world.holder.is_some_and(|(own, _)| own == claim);
                if !stands {
                    return Answer::Left(None);
                }
                world.holder = None;
                if !asks {
                    return Answer::Left(None);
                }
                let loan = Loan { next: world.last + 1, last: world.last + TICKETS };
                if self.bug != Bug::ReservesNoTickets {
                    world.last = loan.last;
                }
                world.lent = true;
                world.key = Some((if self.bug == Bug::OneKeyForAll { 0 } else { loan.last }, None));
                Answer::Left(Some(loan))
            }
            Request::Renew(_) | Request::Write { .. } => Answer::Renewed,
        }
    }

    fn read(client: &mut Client, answer: Answer) {
        match (client.doing, answer) {
            (Doing::Joining { claim, with: Some(loan), valid }, Answer::Written(true)) => {
                let with = Some(Loan { next: loan.next + 1, ..loan });
                client.doing = Doing::Holding { claim, with, valid };
            }
            (Doing::Joining { claim, with: Some(_), .. }, Answer::Written(false)) => {
                // Sent anew, and counted from now.
                client.doing = Doing::Joining { claim, with: None, valid: true };
                client.sent.push_back(Request::Join(claim));
            }
            (Doing::Joining { claim, valid, .. }, Answer::In(_)) => {
                client.doing = Doing::Holding { claim, with: None, valid };
            }
            (Doing::Joining { .. }, Answer::Busy) => client.doing = Doing::Nothing,
            (Doing::Leaving { with: Some(loan), .. }, Answer::Written(true)) => {
                client.loan = Some(loan);
                client.doing = Doing::Nothing;
            }
            (Doing::Leaving { claim, with: Some(_) }, Answer::Written(false)) => {
                client.doing = Doing::Leaving { claim, with: None };
                client.sent.push_back(Request::Leave { claim, asks: false });
            }
            (Doing::Leaving { with: None, .. }, Answer::Left(loan)) => {
                client.loan = loan;
                client.doing = Doing::Nothing;
            }
            // The answer to what somebody stopped waiting for, or to a renewal.
            _ => {}
        }
    }

    fn join(client: &mut Client, nth: usize) {
        let claim = (nth, client.claims);
        client.claims += 1;
        let with = client.loan.take().filter(|loan| loan.next <= loan.last);
        client.sent.push_back(match with {
            Some(loan) => Request::Write { loan, claim: Some(claim) },
            None => Request::Join(claim),
        });
        client.doing = Doing::Joining { claim, with, valid: true };
    }

    fn give_up(client: &mut Client) {
        let (Doing::Joining { claim, .. } | Doing::Leaving { claim, .. }) = client.doing else { return };
        // What was not read by now is for nobody: answers belong to requests.
        client.answers.clear();
        client.doing = Doing::Leaving { claim, with: None };
        client.sent.push_back(Request::Leave { claim, asks: false });
    }

    fn reconnect(client: &mut Client) {
        client.may_reconnect = false;
        client.behind = client.sent.pop_front();
        client.sent.clear();
        client.answers.clear();
        client.loan = None;
        match client.doing {
            Doing::Joining { claim, .. } => {
                client.doing = Doing::Joining { claim, with: None, valid: true };
                client.sent.push_back(Request::Join(claim));
            }
            Doing::Leaving { claim, .. } => {
                client.doing = Doing::Leaving { claim, with: None };
                client.sent.push_back(Request::Leave { claim, asks: false });
            }
            Doing::Holding { claim, valid, .. } => client.doing = Doing::Holding { claim, with: None, valid },
            Doing::Nothing => {}
        }
    }
}

impl Model for Loans {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let client = Client {
            doing: Doing::Nothing,
            loan: None,
            claims: 0,
            sent: VecDeque::new(),
            answers: VecDeque::new(),
            behind: None,
            may_reconnect: true,
        };
        let clients = vec![client.clone(), Client { may_reconnect: false, ..client }];
        vec![World { last: 0, lent: false, holder: None, key: None, granted: 0, rises: true, clients }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        steps.push(Step::Lapse);
        for (nth, client) in world.clients.iter().enumerate() {
            let waits = !client.sent.is_empty() || !client.answers.is_empty();
            match client.doing {
                Doing::Nothing if client.claims < self.claims[nth] && !waits => steps.push(Step::Join(nth)),
                Doing::Joining { valid, .. } => {
                    steps.push(Step::GiveUp(nth));
                    if valid {
                        steps.push(Step::Pause(nth));
                    }
                }
                Doing::Holding { valid, .. } => {
                    if !waits {
                        steps.extend([Step::Leave(nth), Step::Renew(nth)]);
                    }
                    if valid {
                        steps.push(Step::Pause(nth));
                    }
                }
                Doing::Leaving { with: Some(_), .. } => steps.push(Step::GiveUp(nth)),
                Doing::Nothing | Doing::Leaving { .. } => {}
            }
            if client.may_reconnect {
                steps.push(Step::Reconnect(nth));
            }
            if !client.sent.is_empty() {
                steps.push(Step::Serve(nth));
            }
            if !client.answers.is_empty() {
                steps.push(Step::Read(nth));
            }
            if client.behind.is_some() {
                steps.extend([Step::ServeLate(nth), Step::LoseLate(nth)]);
            }
        }
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        match step {
            Step::Join(nth) => Loans::join(&mut world.clients[nth], nth),
            Step::Leave(nth) => {
                let client = &mut world.clients[nth];
                let Doing::Holding { claim, with, .. } = client.doing else { return None };
                client.doing = Doing::Leaving { claim, with };
                client.sent.push_back(match with {
                    Some(loan) => Request::Write { loan, claim: None },
                    None => Request::Leave { claim, asks: true },
                });
            }
            Step::Renew(nth) => {
                let client = &mut world.clients[nth];
                let Doing::Holding { claim, valid, .. } = client.doing else { return None };
                client.doing = Doing::Holding { claim, with: None, valid };
                client.sent.push_back(Request::Renew(claim));
            }
            Step::GiveUp(nth) => Loans::give_up(&mut world.clients[nth]),
            Step::Reconnect(nth) => Loans::reconnect(&mut world.clients[nth]),
            Step::Pause(nth) => match &mut world.clients[nth].doing {
                Doing::Joining { valid, .. } | Doing::Holding { valid, .. } => *valid = false,
                Doing::Nothing | Doing::Leaving { .. } => return None,
            },
            Step::Serve(nth) => {
                let request = world.clients[nth].sent.pop_front()?;
                let answer = self.serve(&mut world, request);
                world.clients[nth].answers.push_back(answer);
            }
            Step::ServeLate(nth) => {
                let request = world.clients[nth].behind.take()?;
                self.serve(&mut world, request);
            }
            Step::LoseLate(nth) => world.clients[nth].behind = None,
            Step::Read(nth) => {
                let answer = world.clients[nth].answers.pop_front()?;
                Loans::read(&mut world.clients[nth], answer);
            }
            Step::Lapse => world.lapse(),
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Loans>> {
        vec![
            Property::always(ONE_HOLDER, |_, world: &World| {
                let is_valid = |client: &&Client| matches!(client.doing, Doing::Holding { valid: true, .. });
                world.clients.iter().filter(is_valid).count() < 2
            }),
            Property::always(TOKENS_RISE, |_, world: &World| world.rises),
            Property::sometimes(BORROWED, |_, world: &World| {
                world
                    .clients
                    .iter()
                    .any(|client| matches!(client.doing, Doing::Holding { with: Some(_), .. }))
            }),
        ]
    }
}

#[test]
fn a_borrower_and_the_others_never_hold_together() {
    let checker = Loans { bug: Bug::None, claims: [3, 2] }.checker().threads(2).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn every_bug_in_the_loans_is_found() {
    for (bug, broken) in [
        (Bug::WritesAnyway, ONE_HOLDER),
        (Bug::LeavesKey, ONE_HOLDER),
        (Bug::ReservesNoTickets, TOKENS_RISE),
        (Bug::ForgetsBorrower, ONE_HOLDER),
        (Bug::OneKeyForAll, ONE_HOLDER),
    ] {
        let checker = Loans { bug, claims: [3, 1] }.checker().threads(2).spawn_bfs().join();
        let path = checker.discovery(broken);
        assert!(path.is_some(), "{bug:?} was not found");
        println!("{bug:?}: {} steps", path.map_or(0, |path| path.into_actions().len()));
    }
}
