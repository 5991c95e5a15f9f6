//! A leave that takes a join along: see [`Partners`](crate::drivers::partners::Partners).

use super::verbs::{Verbs, bytes};
use super::wire::Value;
use crate::drivers::partners::Partner;
use crate::drivers::relational::{micros, ticket_column};
use crate::error::Result;
use crate::line::{Bell, Claim, Mode, News, Place, Standing, Ticket, look_again};

/// What pass.sql multiplies a ticket by, to say in the same number how many places are before it, as far as it can count.
const PLACES: u64 = 1024;
/// What it adds to that if the server's settings keep less than they should.
const WEAK: u64 = 512;

impl Verbs {
    /// Stands in line with the call by which one of ours leaves it; `None` if none does soon, and nothing was done.
    pub(super) async fn join_along(&self, line: u128, claim: &Claim, wait: bool) -> Option<Standing> {
        if !wait || claim.mode != Mode::Exclusive || claim.identity.is_some() {
            return None;
        }
        match self.partners.go_along(line, claim).await {
            // Whoever took it along has noted that it waits.
            Some(standing) => {
                self.quiet.note(line, false);
                Some(standing)
            }
            None => None,
        }
    }

    /// Leaves to the next one, which is ours, and takes a join along: where that stands. `None` if it must be done in two calls, and
    /// nothing was done.
    pub(super) async fn pass(
        &self,
        line: u128,
        place: &Place,
        partner: &Partner<Standing>,
    ) -> Result<Option<Standing>> {
        let (claim, name) = (&partner.claim, &place.name);
        let turn = self.lanes.of(place.id).turn().await?;
        // Only now: whoever was sent before this may have become the last.
        let Some((next, next_ticket, last)) = self.watch.first_and_last(name) else { return Ok(None) };
        let gone = ticket_column(place.ticket);
        let (line_bits, lease) = (Value::Bits(line), Value::Int(micros(claim.lease)));
        let values = vec![
            Value::Bits(place.id.as_u128()),
            Value::Int(ticket_column(Some(next_ticket))),
            Value::Bits(next.as_u128()),
            lease.clone(),
            Value::Bits(self.process),
            Value::Bits(claim.id.as_u128()),
            Value::Int(ticket_column(Some(last))),
            lease.clone(),
            lease.clone(),
            Value::Int(claim.who.pid.into()),
            Value::Bits(self.process),
            bytes(&claim.who.owner),
            bytes(&claim.who.host),
            line_bits.clone(),
            line_bits.clone(),
            Value::Int(gone),
            line_bits,
            Value::Int(gone),
            Value::Int(ticket_column(Some(last))),
            lease,
        ];
        let text = self.on_clock(include_str!("sql/pass.sql"));
        let Some(number) = turn.change("leave", text, values).await? else { return Ok(None) };
        self.durability.note(number % PLACES >= WEAK);
        let ahead = u32::try_from(number % WEAK).unwrap_or(u32::MAX);
        let standing = Standing::Waiting {
            ticket: Ticket::new(number / PLACES),
            ahead,
            look_again: look_again(claim.lease, None, None),
        };
        self.lanes.came_along(line, claim.id, place.id, claim.lease);
        // Before anybody else leaves: it is the last of ours now.
        self.watch.stands(name, claim.id, standing, false);
        if partner.is_gone() {
            self.watch.forget(name, claim.id);
        }
        self.watch.got_in(name, next);
        self.bells.ring(name, &Bell { id: next, ticket: next_ticket, news: News::In });
        self.watch.left(name, true);
        Ok(Some(standing))
    }
}
