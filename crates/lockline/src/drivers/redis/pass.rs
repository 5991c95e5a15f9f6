//! A leave that takes a join along: see [`Partners`](crate::drivers::partners::Partners).

use std::sync::Arc;

use redis::Cmd;

use super::answers::{Passed, passed};
use super::connection::Connection;
use super::error::nonsense;
use super::incarnation::micros;
use super::live::Live;
use super::scripts::Script;
use super::verbs::{hex, key_of};
use crate::drivers::partners::Partner;
use crate::error::Result;
use crate::line::{Bell, Claim, News, Place, Standing, look_again};

/// Where a join that was taken along stands, and the connection it ran on.
pub(super) type Joined = (Standing, Arc<Live>);

impl Connection {
    /// Stands in line with the call by which one of ours leaves it; `None` if none does soon, and nothing was done.
    pub(super) async fn join_along(&self, line: u128, claim: &Claim) -> Result<Option<Standing>> {
        match self.partners.go_along(line, claim).await {
            Some((standing, live)) => self.confirm_grant(claim, standing, &live).await.map(Some),
            None => Ok(None),
        }
    }

    /// Leaves, and takes a join along: what came of that. `None` if it must be done in two calls, and nothing was done.
    pub(super) async fn pass(
        &self,
        line: u128,
        place: &Place,
        partner: &Partner<Joined>,
    ) -> Result<Option<Joined>> {
        let (claim, name) = (&partner.claim, &place.name);
        let (key, mut tail) = (key_of(&self.config.space, line), String::with_capacity(160));
        self.push_tail(&mut tail, claim);
        let ring = u8::from(!self.rings_by_answer());
        let fill = |cmd: &mut Cmd| {
            self.add_keys(cmd, [&key]);
            cmd.arg(hex(place.id)).arg(name.as_str()).arg(&self.process);
            cmd.arg(hex(claim.id)).arg(micros(claim.lease)).arg(&tail).arg(ring);
        };
        let unheard = Unheard(self);
        let (answer, live) = self.run("leave", Script::Pass, &key, fill).await?;
        std::mem::forget(unheard);
        let Some(passed) = passed(&answer) else { return Err(nonsense("leave", &self.address)) };
        let Some(Passed { ticket, ahead, is_in, rings }) = passed else { return Ok(None) };
        if is_in.is_none() {
            self.partners.got_out(line);
        }
        // Who connects anew has everybody look.
        if let (Some(ticket), Some(id)) = (is_in, rings)
            && self.is_current(&live)
        {
            self.bells.ring(name, &Bell { id, ticket, news: News::In });
        }
        let standing = match ahead {
            0 => Standing::In { ticket },
            _ => Standing::Waiting { ticket, ahead, look_again: look_again(claim.lease, None, None) },
        };
        Ok(Some((standing, live)))
    }

    /// From now on, and until somebody leaves, joins to this line wait for that.
    #[cfg(test)]
    pub(super) fn expect_leave(&self, name: &crate::name::Name) {
        self.partners.got_in(super::verbs::hash_of(name.as_str()));
    }

    /// Whether a join that is called now waits for a leave.
    #[cfg(test)]
    pub(super) fn would_go_along(&self, name: &crate::name::Name) -> bool {
        self.partners.has(super::verbs::hash_of(name.as_str()))
    }
}

/// Dropped when nobody waited for an answer that may have been a bell: then everybody looks, behind what was sent.
struct Unheard<'a>(&'a Connection);

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        self.0.bells.look_at_all();
    }
}
