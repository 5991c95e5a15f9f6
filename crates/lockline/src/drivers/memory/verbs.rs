//! The pure machine behind a mutex.

use std::collections::HashMap;
use std::future::ready;

use super::{MemoryDriver, Shelf, Space};
use crate::driver::{Bells, Driver, DriverInfo, Exclusion, Fencing, Guarantees, Query, Verb};
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Bell, Claim, Line, LineView, Now, Place, Refusal, Standing, Step, Ticket};
use crate::name::Name;
use crate::sync::locked;

impl MemoryDriver {
    fn now(&self) -> Now {
        Now { at: self.memory.clock.now(), ticket_us: self.memory.clock.wall_micros() }
    }

    /// Does something to a line, and rings its bells once nothing is locked any more.
    fn on_line<T>(&self, name: &Name, act: impl FnOnce(&mut Shelf) -> Step<T>) -> T {
        let (step, ring) = locked(&self.memory.space).on_line(name, act);
        for (bells, bell) in ring {
            bells.ring(name, &bell);
        }
        step
    }

    fn join_now(&self, claim: &Claim, wait: bool) -> Result<Standing> {
        let answer = self.on_line(&claim.name, |shelf| {
            let step = shelf.line.join(self.now(), claim, wait);
            if let Ok(Standing::In { .. } | Standing::Waiting { .. }) = step.answer {
                shelf.bells.insert(claim.id, self.bells.clone());
            }
            step
        });
        answer.map_err(|Refusal::WouldWaitForItself| {
            let message =
                "this owner's identity stands in this line in another mode: it would wait for itself";
            Error::new(ErrorKind::Deadlock, "join", message)
        })
    }
}

impl Space {
    fn on_line<T>(
        &mut self,
        name: &Name,
        act: impl FnOnce(&mut Shelf) -> Step<T>,
    ) -> (T, Vec<(Bells, Bell)>) {
        let last = self.last_ticket;
        let shelf = self
            .lines
            .entry(name.clone())
            .or_insert_with(|| Shelf { line: Line::after(last), bells: HashMap::new() });
        let step = act(shelf);
        let ring = step
            .bells
            .into_iter()
            .filter_map(|bell| Some((shelf.bells.get(&bell.id)?.clone(), bell)))
            .collect();
        shelf.tidy();
        if shelf.line.is_empty() {
            self.last_ticket = self.last_ticket.max(shelf.line.last_ticket());
            self.lines.remove(name);
        }
        (step.answer, ring)
    }
}

impl Shelf {
    /// Forgets the bells of claims that lapsed, now and then: a claim that leaves takes its bell along.
    fn tidy(&mut self) {
        if self.bells.len() > 2 * self.line.len() + 16 {
            let line = &self.line;
            self.bells.retain(|id, _| line.contains(*id));
        }
    }
}

impl Driver for MemoryDriver {
    fn info(&self) -> &DriverInfo {
        &self.info
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees { fencing: Fencing::Always, exclusion: Exclusion::Always }
    }

    fn join<'a>(&'a self, claim: &'a Claim, wait: bool) -> Verb<'a, Standing> {
        Box::pin(async move { self.join_now(claim, wait) })
    }

    fn renew<'a>(&'a self, places: &'a [Place]) -> Verb<'a, Vec<Standing>> {
        Box::pin(async move {
            let one = |place: &Place| self.on_line(&place.name, |shelf| shelf.line.renew(self.now(), place));
            Ok(places.iter().map(one).collect())
        })
    }

    fn leave<'a>(&'a self, place: &'a Place) -> Verb<'a, ()> {
        Box::pin(async move {
            self.on_line(&place.name, |shelf| {
                shelf.bells.remove(&place.id);
                shelf.line.leave(self.now(), place.id)
            });
            Ok(())
        })
    }

    fn view<'a>(&'a self, query: &'a Query) -> Verb<'a, Vec<LineView>> {
        let names: Vec<Name> =
            locked(&self.memory.space).lines.keys().filter(|n| query.matches(n.as_str())).cloned().collect();
        let view = |name: Name| {
            self.on_line(&name, |shelf| {
                let now = self.now();
                let Step { bells, .. } = shelf.line.tick(now);
                Step { answer: shelf.line.view(now.at, &name), bells }
            })
        };
        let lines =
            names.into_iter().map(view).filter(|line| !line.holders.is_empty() || !line.waiters.is_empty());
        Box::pin(ready(Ok(lines.collect())))
    }

    fn evict<'a>(&'a self, name: &'a Name, ticket: Ticket, at_once: bool) -> Verb<'a, bool> {
        Box::pin(async move { Ok(self.on_line(name, |shelf| shelf.line.evict(self.now(), ticket, at_once))) })
    }
}
