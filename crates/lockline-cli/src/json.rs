//! The shapes of `--json`. Names are exact here: JSON escapes what needs it.

use std::time::Duration;

use lockline::driver::Fencing;
use lockline::line::{ClaimView, LineView, Mode};
use serde::Serialize;

use crate::members::Member;

#[derive(Debug, Serialize)]
pub(crate) struct Lines {
    pub(crate) locks: Vec<Line>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Line {
    name: String,
    holders: Vec<Claim>,
    waiters: Vec<Claim>,
}

/// `permits` and `limit` are 0 for claims that are not for permits.
#[derive(Debug, Serialize)]
struct Claim {
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
    },
    Acquired {
        name: &'a str,
        token: Option<u64>,
        waited_ms: u64,
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
    },
}

impl Line {
    /// A lock of an engine that gives such tokens.
    pub(crate) fn of(line: &LineView, fencing: Fencing) -> Line {
        let has_token = fencing != Fencing::None;
        let claims = |views: &[ClaimView], token: bool| views.iter().map(|view| claim(view, token)).collect();
        Line {
            name: line.name.as_str().to_owned(),
            holders: claims(&line.holders, has_token),
            waiters: claims(&line.waiters, false),
        }
    }
}

fn claim(view: &ClaimView, has_token: bool) -> Claim {
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
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
