//! A `lockline run` inside another one that waits for what the outer one holds would wait for itself.
//!
//! The command's environment lists the claims it runs under: ticket and process of each. Whether one of them is in the
//! way is asked of the engine, so neither another engine with a lock of the same name nor a variable that outlived its
//! hold is mistaken for it.

use lockline::line::{ClaimView, Mode};
use lockline::{Guard, Locks};

use crate::exit::Failure;
use crate::output::visible;

/// `TICKET@PID`, separated by blanks, the outermost first.
pub(crate) const HOLDS: &str = "LOCKLINE_HOLDS";

/// The list for a command that runs under this guard, too.
pub(crate) fn with(guard: &Guard) -> String {
    let mut list = outer();
    // An engine without tokens does not tell the ticket either.
    if !guard.fence().is_none() {
        list.push((guard.fence().token(), std::process::id()));
    }
    list.iter().map(|(ticket, pid)| format!("{ticket}@{pid}")).collect::<Vec<_>>().join(" ")
}

fn outer() -> Vec<(u64, u32)> {
    parse(&std::env::var(HOLDS).unwrap_or_default())
}

fn parse(list: &str) -> Vec<(u64, u32)> {
    let entry = |word: &str| word.split_once('@').and_then(|(t, p)| Some((t.parse().ok()?, p.parse().ok()?)));
    list.split_ascii_whitespace().filter_map(entry).collect()
}

/// Refuses to wait for a hold that an outer `lockline run` has for this very command.
pub(crate) async fn check(locks: &Locks, name: &str, wanted: Mode) -> Result<(), Failure> {
    let outer = outer();
    if outer.is_empty() {
        return Ok(());
    }
    // An engine that cannot be asked right now says so to the acquirer.
    let Ok(line) = locks.show(name).await else { return Ok(()) };
    let ours = |claim: &&ClaimView| outer.contains(&(claim.ticket.get(), claim.who.pid));
    match line.holders.iter().filter(ours).find(|claim| !fit(claim.mode, wanted)) {
        None => Ok(()),
        Some(claim) => Err(Failure::usage(format!(
            "{} is held by the lockline run around this one (pid {}): it would wait for itself",
            visible(name),
            claim.who.pid
        ))
        .hint("leave the inner one out, or use another name; -n would say busy instead")),
    }
}

/// Whether both can ever hold at once.
fn fit(one: Mode, other: Mode) -> bool {
    match (one, other) {
        (Mode::Shared, Mode::Shared) => true,
        (Mode::Permits { count, limit }, Mode::Permits { count: more, limit: most }) => {
            count.saturating_add(more) <= limit.min(most)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_never_be_is_refused() {
        let permits = |count, limit| Mode::Permits { count, limit };
        assert!(fit(Mode::Shared, Mode::Shared));
        assert!(fit(permits(1, 3), permits(2, 3)));
        assert!(!fit(permits(2, 3), permits(2, 3)));
        assert!(!fit(Mode::Shared, Mode::Exclusive));
        assert!(!fit(Mode::Exclusive, Mode::Shared));
        assert!(!fit(permits(1, 3), Mode::Shared));
    }

    #[test]
    fn a_broken_list_is_read_as_far_as_it_makes_sense() {
        assert_eq!(parse("12@34  x@1 5@ @ 7@8"), [(12, 34), (7, 8)]);
        assert_eq!(parse(""), []);
    }
}
