//! What a behaviour needs that not every engine offers. An engine that shares its locks with other clients has only what
//! their format has; its tests name what it lacks, and every behaviour that needs it is listed as *not offered*.

use std::fmt;

/// Something that an engine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Modes other than exclusive: readers, permits.
    Modes,
    /// A line in the engine: waiting claims have tickets, an order, and are seen and evicted by others.
    Line,
    /// Fencing tokens.
    Tokens,
    /// Tokens that rise although the engine lost its memory.
    Amnesia,
    /// An identity that several processes share.
    Identities,
    /// A message to the one claim that something happened to.
    Bells,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Need::Modes => "readers and permits",
            Need::Line => "a line",
            Need::Tokens => "tokens",
            Need::Amnesia => "tokens that outlive the engine's memory",
            Need::Identities => "shared identities",
            Need::Bells => "a bell for each claim",
        })
    }
}

/// What each behaviour needs; one that is not listed needs nothing that an engine may lack.
const NEEDS: &[(&str, &[Need])] = &[];

/// What a behaviour needs.
pub fn needs(behaviour: &str) -> &'static [Need] {
    NEEDS.iter().find(|(name, _)| *name == behaviour).map_or(&[], |(_, needs)| needs)
}

/// The behaviours that need something.
pub fn needy() -> impl Iterator<Item = &'static str> {
    NEEDS.iter().map(|(name, _)| *name)
}
