//! What may stand at the front together.

/// How a claim wants to hold a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone: a mutex, or the write side of a read-write lock.
    Exclusive,
    /// Together with other shared claims: the read side.
    Shared,
    /// Some of a limited number of permits: a semaphore.
    Permits {
        /// How many permits this claim takes.
        count: u32,
        /// How many there are in all, as this claimant understands it.
        limit: u32,
    },
}

impl Mode {
    /// The word used for this mode in JSON, tables and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
            Mode::Permits { .. } => "permits",
        }
    }

    /// Whether a holder of this mode may do what `other` asks for without a new claim.
    pub(crate) fn covers(self, other: Mode) -> bool {
        matches!(
            (self, other),
            (Mode::Exclusive, Mode::Exclusive | Mode::Shared) | (Mode::Shared, Mode::Shared)
        )
    }
}

/// Walks a line from its first claim and tells which claims are *in*.
///
/// This is the rule of a line, and the only place where it stands. Feed the modes in ticket order: the claims that
/// are in are exactly those for which [`admit`](Front::admit) answers `true`, and after the first `false` everything
/// is `false`, so an engine that reads rows lazily may stop reading there.
///
/// ```
/// use lockline::line::{Front, Mode};
/// let mut front = Front::default();
/// assert!(front.admit(Mode::Shared));
/// assert!(front.admit(Mode::Shared));
/// assert!(!front.admit(Mode::Exclusive));     // a writer waits for the readers …
/// assert!(!front.admit(Mode::Shared));        // … and a reader behind it waits too: nobody barges
/// ```
#[derive(Clone, Debug, Default)]
pub struct Front {
    standing: Option<Mode>,
    used: u64,
    smallest_limit: u32,
    closed: bool,
}

impl Front {
    /// Whether the next claim of the line, in `mode`, is in.
    pub fn admit(&mut self, mode: Mode) -> bool {
        let fits = !self.closed && self.fits(mode);
        if fits {
            self.take(mode);
        } else {
            self.closed = true;
        }
        fits
    }

    fn fits(&self, mode: Mode) -> bool {
        match (self.standing, mode) {
            (None, Mode::Permits { count, limit }) => count <= limit,
            (None, _) => true,
            (Some(Mode::Shared), Mode::Shared) => true,
            (Some(Mode::Permits { .. }), Mode::Permits { count, limit }) => {
                // The smallest limit rules: with the claim's own limit alone, a client that believes in ten
                // permits would get in beside one that was promised to be one of at most two.
                let limit = if mutant!(LargerLimitPasses) { limit } else { limit.min(self.smallest_limit) };
                self.used + u64::from(count) <= u64::from(limit)
            }
            (Some(Mode::Exclusive), Mode::Permits { .. }) if mutant!(PermitsBesideExclusive) => true,
            _ => false,
        }
    }

    fn take(&mut self, mode: Mode) {
        if let Mode::Permits { count, limit } = mode {
            let first = !matches!(self.standing, Some(Mode::Permits { .. }));
            self.used += u64::from(count);
            self.smallest_limit = if first { limit } else { limit.min(self.smallest_limit) };
        }
        self.standing = Some(mode);
    }
}
