//! `lockline watch`: the locks, live. On a terminal the table is redrawn; elsewhere there is one line for each change.
//!
//! It asks again and again: who only looks stands in no line, so no bell rings for it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use lockline::line::LineView;
use lockline::{Locks, Name};
use tokio::time::{Instant, sleep};

use crate::cli::LsArgs;
use crate::engine::{Engine, on_runtime};
use crate::exit::Failure;
use crate::json::{EngineShut, Line, Shut};
use crate::keys::until_quit;
use crate::output::{Paint, data, json, shows_on_terminal};
use crate::table;

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Ages and leases move although no claim does.
const REDRAWN_EVERY: Duration = Duration::from_secs(1);
const HOME: &str = "\u{1b}[H";
const CLEAR_BELOW: &str = "\u{1b}[J";
const CLEAR_REST_OF_LINE: &str = "\u{1b}[K\n";

pub(crate) fn watch(args: LsArgs) -> Result<u8, Failure> {
    let engine = Engine::of(args.engine.on)?;
    on_runtime(async {
        let locks = wait_for_engine(&engine).await?;
        if !args.json && shows_on_terminal() {
            until_quit(redraw(&locks, &args.prefix)).await
        } else {
            follow(&locks, &args.prefix, args.json).await
        }
    })
}

/// Whoever only looks does not make the file, but waits until somebody has.
async fn wait_for_engine(engine: &Engine) -> Result<Locks, Failure> {
    loop {
        if let Some(locks) = engine.open_to_look().await? {
            return Ok(locks);
        }
        sleep(LOOK_EVERY).await;
    }
}

/// What counts as a change: who stands where, not how old it is.
fn order(line: &LineView) -> Vec<(u64, bool, bool)> {
    let holders = line.holders.iter().map(|claim| (claim.ticket.get(), true, claim.evicted));
    holders.chain(line.waiters.iter().map(|claim| (claim.ticket.get(), false, claim.evicted))).collect()
}

type Seen = BTreeMap<Name, Vec<(u64, bool, bool)>>;

/// The lines that are not as they were, freed ones included.
fn changes(seen: &mut Seen, lines: Vec<LineView>) -> Vec<LineView> {
    let mut now = Seen::new();
    let mut changed = Vec::new();
    for line in lines {
        let order = order(&line);
        if seen.remove(&line.name).as_ref() != Some(&order) {
            changed.push(line.clone());
        }
        now.insert(line.name, order);
    }
    changed.extend(std::mem::replace(seen, now).into_keys().map(LineView::free));
    changed
}

async fn follow(locks: &Locks, prefix: &str, as_json: bool) -> Result<u8, Failure> {
    let mut seen = Seen::new();
    let fencing = locks.guarantees().fencing;
    let mut was_shut = false;
    loop {
        let shut = locks.shut();
        if std::mem::replace(&mut was_shut, shut.is_some()) != shut.is_some() {
            let engine = locks.info();
            if as_json {
                json(&EngineShut { engine: &engine.address, shut: shut.as_ref().map(Shut::of) })?;
            } else {
                let opened = || format!("{} grants locks again", engine.driver);
                let text = shut.map_or_else(opened, |shut| shut.about(engine.driver));
                data(&format!("{} {text}\n", humantime::format_rfc3339_millis(SystemTime::now())))?;
            }
        }
        for line in changes(&mut seen, locks.view(prefix).await?) {
            if as_json {
                json(&Line::of(&line, fencing))?;
            } else {
                let time = humantime::format_rfc3339_millis(SystemTime::now());
                data(&format!("{time} {}\n", table::sentence(&line, fencing)))?;
            }
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn redraw(locks: &Locks, prefix: &str) -> Result<u8, Failure> {
    let paint = Paint::for_stdout();
    let mut seen = Seen::new();
    let mut due = Instant::now();
    loop {
        let lines = locks.view(prefix).await?;
        let text = table::locks(&lines, paint);
        if !changes(&mut seen, lines).is_empty() || Instant::now() >= due {
            due = Instant::now() + REDRAWN_EVERY;
            let text = if text.is_empty() { "nothing is locked\n".to_owned() } else { text };
            let shut = locks.shut().map(|shut| format!("{}\n", shut.about(locks.info().driver)));
            let text = shut.unwrap_or_default() + &text;
            data(&format!("{HOME}{}{CLEAR_BELOW}", fitted(&text).replace('\n', CLEAR_REST_OF_LINE)))?;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// As many lines as the terminal has: with more, the top would scroll away at every frame.
fn fitted(text: &str) -> String {
    let rows = terminal_size::terminal_size().map_or(24, |(_, height)| usize::from(height.0));
    text.split_inclusive('\n').take(rows.saturating_sub(1).max(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockline::Ticket;
    use lockline::line::{ClaimView, Mode, Who};

    fn line(name: &str, tickets: &[u64]) -> LineView {
        let claim = |ticket: &u64| ClaimView {
            ticket: Ticket::new(*ticket),
            mode: Mode::Exclusive,
            who: Who { owner: "o".into(), host: "h".into(), pid: 1 },
            remaining: Duration::ZERO,
            since: Duration::ZERO,
            held: None,
            evicted: false,
        };
        let mut claims = tickets.iter().map(claim);
        let holders = claims.by_ref().take(1).collect();
        LineView { name: Name::new(name).unwrap(), holders, waiters: claims.collect(), shut: None }
    }

    #[test]
    fn only_changes_are_told() {
        let mut seen = Seen::new();
        let names = |lines: Vec<LineView>| {
            lines.iter().map(|line| line.name.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(changes(&mut seen, vec![line("a", &[1]), line("b", &[2])])), "a b");
        assert_eq!(names(changes(&mut seen, vec![line("a", &[1]), line("b", &[2])])), "");
        assert_eq!(names(changes(&mut seen, vec![line("a", &[1, 3]), line("b", &[2])])), "a");
        let freed = changes(&mut seen, vec![line("a", &[1, 3])]);
        assert!(freed[0].holders.is_empty());
        assert_eq!(names(freed), "b");
    }
}
