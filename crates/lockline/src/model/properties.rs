//! What must hold in every state that can be reached.

use stateright::Property;

use super::engine::fit_together;
use super::progress::{InFlight, everyone_gets_in};
use super::{Lockline, World};
use crate::hold::validity::Phase;
use crate::line::Mode;
use crate::mutant;

pub(super) const EXCLUSION: &str = "valid guards fit together";
pub(super) const TOKENS: &str = "tokens rise in the order of grants";
pub(super) const NO_COMEBACK: &str = "a lost guard never comes back";
pub(super) const PLACE_BEHIND: &str = "a valid guard has a place that is in, or the engine forgot it";
pub(super) const ORDER: &str = "who is in is the prefix that the table says";
pub(super) const NO_DOUBLE: &str = "the same id is the same place, once";
pub(super) const TRY: &str = "a refused try leaves nothing";
pub(super) const NOTHING_REMAINS: &str = "nothing remains one lease after the last word";
pub(super) const NEVER_STUCK: &str = "when faults cease, everyone who waits gets in";
const SOMEBODY_HOLDS: &str = "somebody holds a valid guard";
const SOMEBODY_WAITS: &str = "somebody waits in line";

/// Rules whose breach is seen only in the step that breaks them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Broken {
    pub(super) tokens: bool,
    pub(super) came_back: bool,
    pub(super) order: bool,
    pub(super) doubled: bool,
    pub(super) try_left_something: bool,
}

impl Broken {
    pub(super) fn merge(&mut self, other: &Broken) {
        self.tokens |= other.tokens;
        self.came_back |= other.came_back;
        self.order |= other.order;
        self.doubled |= other.doubled;
        self.try_left_something |= other.try_left_something;
    }
}

/// Evaluates a property with the model's bug switched on, and reports only its first breach.
fn check(model: &Lockline, name: &'static str, holds: impl FnOnce() -> bool) -> bool {
    mutant::with(model.mutant, holds) || !model.found.lock().expect("found").insert(name)
}

pub(super) fn all() -> Vec<Property<Lockline>> {
    vec![
        Property::always(EXCLUSION, |model, world: &World| {
            check(model, EXCLUSION, || guards_fit(model, world))
        }),
        Property::always(TOKENS, |model, world: &World| {
            check(model, TOKENS, || !(model.scenario.tokens_rise && world.broken.tokens))
        }),
        Property::always(NO_COMEBACK, |model, world: &World| {
            check(model, NO_COMEBACK, || !world.broken.came_back)
        }),
        Property::always(PLACE_BEHIND, |model, world: &World| {
            check(model, PLACE_BEHIND, || guards_have_places(world))
        }),
        Property::always(ORDER, |model, world: &World| check(model, ORDER, || !world.broken.order)),
        Property::always(NO_DOUBLE, |model, world: &World| check(model, NO_DOUBLE, || !world.broken.doubled)),
        Property::always(TRY, |model, world: &World| check(model, TRY, || !world.broken.try_left_something)),
        Property::always(NOTHING_REMAINS, |model, world: &World| {
            check(model, NOTHING_REMAINS, || nothing_remains(model, world))
        }),
        // That there is something to break: without these an empty model would pass.
        Property::sometimes(SOMEBODY_HOLDS, |_, world: &World| {
            (0..world.clients.len()).any(|client| world.guard(client).is_some())
        }),
        Property::sometimes(SOMEBODY_WAITS, |_, world: &World| {
            (0..world.clients.len()).any(|client| world.phase(client) == Some(Phase::Waiting))
        }),
        Property::always(NEVER_STUCK, |model, world: &World| {
            check(model, NEVER_STUCK, || never_stuck(model, world))
        }),
    ]
}

fn guards_fit(model: &Lockline, world: &World) -> bool {
    let modes: Vec<Mode> = (0..world.clients.len())
        .filter(|client| world.guard(*client).is_some())
        .map(|client| model.scenario.clients[client].mode)
        .collect();
    modes.is_empty() || fit_together(&modes)
}

/// Both a check of its own and the reason why guards fit: whatever a client believes, the engine keeps.
fn guards_have_places(world: &World) -> bool {
    let now = world.engine.now(world.tick).at;
    (0..world.clients.len()).all(|client| {
        let Some(token) = world.guard(client) else { return true };
        let id = world.clients[client].attempt.as_ref().expect("a guard has an attempt").id;
        let stands = |seen: crate::line::Seen| {
            (seen.id, seen.ticket) == (id, token) && seen.is_in && seen.deadline > now
        };
        world.engine.line.seen().any(stands) || world.engine.forgotten.contains(&(id, token))
    })
}

/// Stronger than "when all clients are gone": whatever stands in line now is gone one lease from now, unless somebody
/// says another word.
fn nothing_remains(model: &Lockline, world: &World) -> bool {
    let mut line = world.engine.line.clone();
    line.tick(world.engine.now(world.tick));
    line.tick(world.engine.now(world.tick + model.scenario.longest_lease_ticks()));
    line.is_empty()
}

/// From here on no fault happens, and all that is under way is lost or has just arrived. Everyone who waits gets in,
/// also when a holder beside whom there is room stays for ever.
fn never_stuck(model: &Lockline, world: &World) -> bool {
    [InFlight::Lost, InFlight::Arrives].into_iter().all(|in_flight| {
        let stays = (0..world.clients.len()).filter(|client| world.guard(*client).is_some()).map(Some);
        std::iter::once(None).chain(stays).all(|stays| everyone_gets_in(model, world, in_flight, stays))
    })
}
