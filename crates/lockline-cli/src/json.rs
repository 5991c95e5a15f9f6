//! The shapes of `--json`. Names are exact here: JSON escapes what needs it.

use std::time::Duration;

use lockline::driver::Fencing;
use lockline::line::{ClaimView, LineView, Mode};
use serde::Serialize;

use crate::members::Member;

#[derive(Debug, Serialize)]
pub(crate) struct Lines<'a> {
    pub(crate) engine: &'a str,
    pub(crate) locks: Vec<Line>,
    /// Nobody gets any lock yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shut: Option<Shut>,
}

/// An engine, or a lock, that lets nobody in although the engine is up.
#[derive(Debug, Serialize)]
pub(crate) struct Shut {
    opens_ms: u64,
    reason: &'static str,
    ago_ms: Option<u64>,
}

impl Shut {
    pub(crate) fn of(shut: &lockline::line::Shut) -> Shut {
        Shut { opens_ms: millis(shut.opens_in), reason: shut.reason.word(), ago_ms: shut.ago.map(millis) }
    }
}

/// What `watch --json` says when the engine begins to let nobody in, and when it lets people in again.
#[derive(Debug, Serialize)]
pub(crate) struct EngineShut<'a> {
    pub(crate) engine: &'a str,
    pub(crate) shut: Option<Shut>,
}

/// One lock and where it is.
#[derive(Debug, Serialize)]
pub(crate) struct LineOn<'a> {
    #[serde(flatten)]
    pub(crate) line: Line,
    pub(crate) engine: &'a str,
}

#[derive(Debug, Serialize)]
pub(crate) struct Line {
    name: String,
    holders: Vec<Claim>,
    waiters: Vec<Claim>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shut: Option<Shut>,
}

/// `permits` and `limit` are 0 for claims that are not for permits.
#[derive(Debug, Serialize)]
pub(crate) struct Claim {
    ticket: u64,
    token: Option<u64>,
    owner: String,
    host: String,
    pid: u32,
    mode: &'static str,
    permits: u32,
    limit: u32,
    remaining_ms: u64,
    since_ms: u64,
    /// How long it waited, and how long it has held it; null where the engine does not keep when it got in.
    waited_ms: Option<u64>,
    held_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Evicted<'a> {
    pub(crate) name: &'a str,
    pub(crate) token: u64,
    pub(crate) evicted: bool,
    pub(crate) now: bool,
}

/// What `run --json` says, one per line, on standard error.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Event<'a> {
    Waiting {
        name: &'a str,
        engine: &'a str,
    },
    /// The engine is up, and lets nobody in yet.
    Shut {
        name: &'a str,
        engine: &'a str,
        #[serde(flatten)]
        state: Shut,
        message: &'a str,
    },
    Acquired {
        name: &'a str,
        token: Option<u64>,
        waited_ms: u64,
        engine: &'a str,
    },
    /// Something that does not change how it ends.
    Warning {
        message: &'a str,
        hint: Option<&'a str>,
    },
    /// The lock is lost, and these processes of the command could not be stopped.
    Unstoppable {
        name: &'a str,
        processes: &'a [Member],
        message: &'a str,
        hint: Option<&'a str>,
    },
    Failed {
        exit: u8,
        message: &'a str,
        hint: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
        /// Who holds it, if that is why.
        #[serde(skip_serializing_if = "<[Claim]>::is_empty")]
        holders: &'a [Claim],
        #[serde(skip_serializing_if = "Option::is_none")]
        engine: Option<&'a str>,
    },
}

/// Those who hold a lock of an engine that gives such tokens.
pub(crate) fn holders(line: &LineView, fencing: Fencing) -> Vec<Claim> {
    line.holders.iter().map(|view| claim(view, fencing != Fencing::None, true)).collect()
}

impl Line {
    /// A lock of an engine that gives such tokens.
    pub(crate) fn of(line: &LineView, fencing: Fencing) -> Line {
        let has_token = fencing != Fencing::None;
        Line {
            name: line.name.as_str().to_owned(),
            holders: line.holders.iter().map(|view| claim(view, has_token, true)).collect(),
            waiters: line.waiters.iter().map(|view| claim(view, false, false)).collect(),
            shut: line.shut.as_ref().map(Shut::of),
        }
    }
}

fn claim(view: &ClaimView, has_token: bool, is_in: bool) -> Claim {
    let (permits, limit) = match view.mode {
        Mode::Permits { count, limit } => (count, limit),
        Mode::Exclusive | Mode::Shared => (0, 0),
    };
    Claim {
        ticket: view.ticket.get(),
        token: has_token.then(|| view.ticket.get()),
        owner: view.who.owner.clone(),
        host: view.who.host.clone(),
        pid: view.who.pid,
        mode: view.mode.word(),
        permits,
        limit,
        remaining_ms: millis(view.remaining),
        since_ms: millis(view.since),
        waited_ms: match view.held {
            Some(held) => Some(millis(view.since.saturating_sub(held))),
            None => (!is_in).then(|| millis(view.since)),
        },
        held_ms: view.held.map(millis),
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
