//! The verbs of a line, on rows: what [`Line`](crate::line::Line) does to a list, done inside one transaction.
//!
//! The rule of admission is [`Front`], as everywhere; SQL only finds rows. Nothing here waits, and nothing here looks
//! at other processes: a process that is stopped inside the transaction would hold up everyone on the file.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Rows, params};

use super::meta::Meta;
use super::platform;
use super::process::Process;
use super::rows::{HoldKey, id_at, int, micros, mode_at, stored_name, ticket_at, uint_at};
use crate::line::{
    Bell, Claim, ClaimId, Front, Mode, News, Now, Place, Refusal, Standing, Ticket, look_again,
};
use crate::name::Name;
use crate::time::Time;

type Sql<T> = rusqlite::Result<T>;

/// A bell to ring after the commit, and the process to ring it in.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    pub(super) name: Name,
    pub(super) bell: Bell,
    pub(super) to: Process,
}

/// One open transaction at one moment: every verb of a batch sees the same `now`.
pub(super) struct Ledger<'c> {
    db: &'c Connection,
    me: Process,
    now: Now,
    /// Lines that lost a claim and have not been looked at since: someone may have got in.
    unsettled: BTreeSet<String>,
    /// The tickets of lines in which somebody waits, read at most once: a thousand waiters that are renewed together
    /// must not count a thousand rows each.
    tickets: RefCell<HashMap<Name, Vec<i64>>>,
    rings: Vec<Ring>,
    has_new_places: Cell<bool>,
    meta: Meta,
}

/// A row found by its id.
struct Found {
    ticket: Ticket,
    is_in: bool,
    closed: bool,
    fixed: bool,
    lease: Duration,
    deadline: Time,
}

impl<'c> Ledger<'c> {
    /// Starts with what every verb starts with: all lapsed claims go, of all lines. Dropping only those of the verb's
    /// own line would leave the rows of a name that nobody asks for again in the file for ever.
    pub(super) fn open(db: &'c Connection, me: Process, now: Now) -> Sql<Ledger<'c>> {
        let meta = Meta::read(db)?;
        let another_boot = meta.is_of_another_boot(now.at);
        if another_boot {
            meta.begin_boot(now);
        }
        let unsettled = if another_boot || meta.may_have_lapsed(now.at) {
            meta.drop_lapsed(db, now.at)?
        } else {
            BTreeSet::new()
        };
        Ok(Ledger {
            db,
            me,
            now,
            unsettled,
            tickets: RefCell::default(),
            rings: Vec::new(),
            has_new_places: Cell::new(false),
            meta,
        })
    }

    /// Looks at every line that is not settled yet, and hands out the bells. The caller commits, then rings.
    pub(super) fn close(mut self) -> Sql<Vec<Ring>> {
        while let Some(name) = self.unsettled.pop_first() {
            self.settle(&stored_name(&name)?, None)?;
        }
        self.meta.write(self.db)?;
        Ok(self.rings)
    }

    /// Whether this transaction may give as many tickets as there can be joins in it.
    pub(super) fn has_tickets(&self) -> bool {
        self.meta.has_tickets(self.now.ticket_us)
    }

    /// Whether more tickets are to be reserved soon.
    pub(super) fn is_low_on_tickets(&self) -> bool {
        self.meta.is_low_on_tickets(self.now.ticket_us)
    }

    /// Whether rows were added.
    pub(super) fn has_new_places(&self) -> bool {
        self.has_new_places.get()
    }

    /// See [`Line::join`](crate::line::Line::join).
    pub(super) fn join(&mut self, claim: &Claim, wait: bool) -> Sql<Result<Standing, Refusal>> {
        if let Some(found) = self.find(&claim.name, claim.id)? {
            // The join may be a second try after a lost reply, sent late: its client counts the new lease from that
            // second sending, so the place must live at least as long.
            if !found.closed {
                self.extend(&claim.name, claim.id, &found, claim.lease)?;
            }
        } else if let Some((ticket, mode, is_in)) = self.place_of_identity(claim)? {
            if mode != claim.mode {
                return Ok(Err(Refusal::WouldWaitForItself));
            }
            if !wait && !is_in {
                return Ok(Ok(Standing::Out));
            }
            self.insert(claim, ticket, is_in)?;
        } else {
            return self.join_at_the_end(claim, wait).map(Ok);
        }
        self.settle_if_needed(&claim.name, Some(claim.id))?;
        self.standing_of(&claim.name, claim.id).map(Ok)
    }

    fn join_at_the_end(&mut self, claim: &Claim, wait: bool) -> Sql<Standing> {
        let is_in = match self.settle(&claim.name, None)? {
            Some(mut front) => front.admit(claim.mode),
            None => false,
        };
        if !wait && !is_in {
            return Ok(Standing::Out);
        }
        let ticket = self.meta.next_ticket(self.now.ticket_us);
        self.insert(claim, ticket, is_in)?;
        if let Some(tickets) = self.tickets.get_mut().get_mut(&claim.name) {
            tickets.push(int(ticket.get()));
        }
        if is_in { Ok(Standing::In { ticket }) } else { self.waiting(&claim.name, ticket, claim.lease) }
    }

    /// See [`Line::renew`](crate::line::Line::renew).
    pub(super) fn renew(&mut self, place: &Place) -> Sql<Standing> {
        self.settle_if_needed(&place.name, None)?;
        let Some(found) = self.find(&place.name, place.id)? else { return Ok(Standing::Lapsed) };
        if found.closed {
            return Ok(Standing::Out);
        }
        let mut lease = found.lease;
        if place.ticket.is_none_or(|ticket| ticket == found.ticket) && !found.fixed {
            lease = place.lease;
            if place.last && found.is_in {
                self.set_deadline(&place.name, place.id, &found, lease, self.now.at + lease, true)?;
            } else {
                self.extend(&place.name, place.id, &found, lease)?;
            }
        }
        match found.is_in {
            true => Ok(Standing::In { ticket: found.ticket }),
            false => self.waiting(&place.name, found.ticket, lease),
        }
    }

    /// See [`Line::leave`](crate::line::Line::leave).
    pub(super) fn leave(&mut self, name: &Name, id: ClaimId) -> Sql<()> {
        let Some(found) = self.find(name, id)? else { return self.settle_if_needed(name, None) };
        let gone = self.db.prepare_cached(include_str!("sql/drop_hold.sql"))?.execute(params![
            name.as_str(),
            int(found.ticket.get()),
            id.as_u128().to_be_bytes()
        ])?;
        self.settle_after(name, gone)
    }

    /// See [`Line::evict`](crate::line::Line::evict).
    pub(super) fn evict(&mut self, name: &Name, ticket: Ticket, at_once: bool) -> Sql<bool> {
        let mut place = self.db.prepare_cached(include_str!("sql/place.sql"))?;
        let holds: Vec<(bool, ClaimId, Process)> = place
            .query_map(params![name.as_str(), int(ticket.get())], |row| {
                Ok((row.get(0)?, id_at(row, 1)?, Process::at(row, 2)?))
            })?
            .collect::<Sql<_>>()?;
        let is_in = holds.first().is_some_and(|hold| hold.0);
        for &(_, id, to) in &holds {
            self.rings.push(Ring { name: name.clone(), bell: Bell { id, ticket, news: News::Out }, to });
        }
        let change = if is_in && !at_once {
            include_str!("sql/close.sql")
        } else {
            include_str!("sql/drop_place.sql")
        };
        let changed = self.db.prepare_cached(change)?.execute(params![name.as_str(), int(ticket.get())])?;
        self.settle_after(name, changed)?;
        Ok(!holds.is_empty())
    }

    /// Drops holds whose process is gone, found before the transaction: a dead process adds none.
    pub(super) fn drop_holds(&mut self, holds: &[HoldKey]) -> Sql<()> {
        let mut drop_hold = self.db.prepare_cached(include_str!("sql/drop_hold.sql"))?;
        for HoldKey { name, ticket, id } in holds {
            if drop_hold.execute(params![name, ticket, id])? > 0 {
                // The only work of its transaction: no tickets have been read that would be wrong now.
                self.unsettled.insert(name.clone());
            }
        }
        Ok(())
    }

    fn settle_after(&mut self, name: &Name, changed: usize) -> Sql<()> {
        if changed == 0 {
            return self.settle_if_needed(name, None);
        }
        self.tickets.get_mut().remove(name);
        self.settle(name, None).map(drop)
    }

    fn settle_if_needed(&mut self, name: &Name, caller: Option<ClaimId>) -> Sql<()> {
        if self.unsettled.contains(name.as_str()) { self.settle(name, caller).map(drop) } else { Ok(()) }
    }

    /// Lets in whoever the front has room for and rings them, except the caller, who is told by its answer. Reads no
    /// further than the first that must wait. Answers the front if nobody has to wait.
    fn settle(&mut self, name: &Name, caller: Option<ClaimId>) -> Sql<Option<Front>> {
        self.unsettled.remove(name.as_str());
        let mut walk = self.db.prepare_cached(include_str!("sql/front.sql"))?;
        let mut entered = Vec::new();
        let front = self.walk(walk.query([name.as_str()])?, name, caller, &mut entered)?;
        let mut let_in = self.db.prepare_cached(include_str!("sql/let_in.sql"))?;
        for ticket in entered {
            let_in.execute(params![name.as_str(), int(ticket.get()), int(self.now.at.as_micros())])?;
        }
        Ok(front)
    }

    fn walk(
        &mut self,
        mut rows: Rows<'_>,
        name: &Name,
        caller: Option<ClaimId>,
        entered: &mut Vec<Ticket>,
    ) -> Sql<Option<Front>> {
        let mut front = Front::default();
        let mut last = Ticket::ZERO;
        while let Some(row) = rows.next()? {
            let ticket = ticket_at(row, 0)?;
            // Several holds of one identity stand on one place, and are admitted once.
            if ticket != last && !front.admit(mode_at(row, 1)?) {
                return Ok(None);
            }
            let is_in: bool = row.get(4)?;
            if !is_in {
                if ticket != last {
                    entered.push(ticket);
                }
                let bell = Bell { id: id_at(row, 5)?, ticket, news: News::In };
                if Some(bell.id) != caller {
                    self.rings.push(Ring { name: name.clone(), bell, to: Process::at(row, 6)? });
                }
            }
            last = ticket;
        }
        Ok(Some(front))
    }

    fn find(&self, name: &Name, id: ClaimId) -> Sql<Option<Found>> {
        self.db
            .prepare_cached(include_str!("sql/find.sql"))?
            .query_row(params![name.as_str(), id.as_u128().to_be_bytes()], |row| {
                Ok(Found {
                    ticket: ticket_at(row, 0)?,
                    is_in: row.get(1)?,
                    closed: row.get(2)?,
                    fixed: row.get(3)?,
                    lease: Duration::from_micros(uint_at(row, 4)?),
                    deadline: Time::from_micros(uint_at(row, 5)?),
                })
            })
            .optional()
    }

    fn place_of_identity(&mut self, claim: &Claim) -> Sql<Option<(Ticket, Mode, bool)>> {
        let Some(identity) = &claim.identity else { return Ok(None) };
        // The holder before it may just have lapsed: then the place is in by this very verb.
        self.settle_if_needed(&claim.name, None)?;
        self.db
            .prepare_cached(include_str!("sql/identity.sql"))?
            .query_row(params![claim.name.as_str(), identity], |row| {
                Ok((ticket_at(row, 0)?, mode_at(row, 1)?, row.get(4)?))
            })
            .optional()
    }

    fn standing_of(&self, name: &Name, id: ClaimId) -> Sql<Standing> {
        let Some(found) = self.find(name, id)? else { return Ok(Standing::Lapsed) };
        match found {
            Found { closed: true, .. } => Ok(Standing::Out),
            Found { is_in: true, ticket, .. } => Ok(Standing::In { ticket }),
            Found { ticket, lease, .. } => self.waiting(name, ticket, lease),
        }
    }

    fn waiting(&self, name: &Name, ticket: Ticket, lease: Duration) -> Sql<Standing> {
        let ahead = self.ahead(name, ticket)?;
        let interesting = self.now.at + look_again(lease, None, None);
        let lapse = if self.meta.may_have_lapsed(interesting) {
            self.db
                .prepare_cached(include_str!("sql/next_lapse.sql"))?
                .query_row(params![name.as_str(), int(ticket.get()), int(interesting.as_micros())], |row| {
                    uint_at(row, 0)
                })
                .optional()?
        } else {
            None
        };
        let next_lapse = lapse.map(|lapse| Time::from_micros(lapse).since(self.now.at));
        let look_again = look_again(lease, next_lapse, None);
        // Where no bell can ring, who waits must look.
        let look_again = platform::LOOK_AGAIN.map_or(look_again, |most| look_again.min(most));
        Ok(Standing::Waiting { ticket, ahead, look_again })
    }

    fn ahead(&self, name: &Name, ticket: Ticket) -> Sql<u32> {
        let mut known = self.tickets.borrow_mut();
        if !known.contains_key(name) {
            let mut select = self.db.prepare_cached(include_str!("sql/tickets.sql"))?;
            let tickets = select.query_map([name.as_str()], |row| row.get(0))?.collect::<Sql<_>>()?;
            known.insert(name.clone(), tickets);
        }
        let before =
            known.get(name).map_or(0, |tickets| tickets.partition_point(|&other| other < int(ticket.get())));
        Ok(u32::try_from(before).unwrap_or(u32::MAX))
    }

    fn insert(&self, claim: &Claim, ticket: Ticket, is_in: bool) -> Sql<()> {
        let (kind, permits, limit) = match claim.mode {
            Mode::Exclusive => (0, 0, 0),
            Mode::Shared => (1, 0, 0),
            Mode::Permits { count, limit } => (2, count, limit),
        };
        self.db.prepare_cached(include_str!("sql/insert.sql"))?.execute(params![
            claim.name.as_str(),
            int(ticket.get()),
            claim.id.as_u128().to_be_bytes(),
            kind,
            permits,
            limit,
            is_in,
            micros(claim.lease),
            int((self.now.at + claim.lease).as_micros()),
            int(self.now.at.as_micros()),
            claim.who.owner,
            claim.who.host,
            claim.who.pid,
            claim.identity,
            self.me.nonce.to_be_bytes(),
            self.me.pid,
            int(self.me.start),
            int(self.me.pid_ns),
        ])?;
        self.meta.renewed(self.now.at, self.now.at + claim.lease);
        self.has_new_places.set(true);
        Ok(())
    }

    fn extend(&self, name: &Name, id: ClaimId, found: &Found, lease: Duration) -> Sql<()> {
        if found.fixed {
            return Ok(());
        }
        self.set_deadline(name, id, found, lease, found.deadline.max(self.now.at + lease), false)
    }

    fn set_deadline(
        &self,
        name: &Name,
        id: ClaimId,
        found: &Found,
        lease: Duration,
        deadline: Time,
        fixed: bool,
    ) -> Sql<()> {
        // A fixed lease may be the shorter one.
        self.meta.renewed(self.now.at, deadline);
        self.db.prepare_cached(include_str!("sql/extend.sql"))?.execute(params![
            name.as_str(),
            int(found.ticket.get()),
            id.as_u128().to_be_bytes(),
            micros(lease),
            int(deadline.as_micros()),
            int(self.now.at.as_micros()),
            fixed,
        ])?;
        Ok(())
    }
}
