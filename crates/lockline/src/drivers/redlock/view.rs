//! The lines of all nodes as one, for people. Pure.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::line::{ClaimView, LineView, Ticket, Who};
use crate::name::Name;

/// One claim: its ticket, who claims, and which of those it is that look the same.
type Key = (Ticket, String, String, u32, usize);

#[derive(Default)]
struct Seen {
    claims: Vec<ClaimView>,
    votes: usize,
}

/// What most of the nodes that answered have in line; a holder is who a majority of all nodes votes for.
pub(super) fn merge(views: &[Vec<LineView>], majority: usize) -> Vec<LineView> {
    let mut lines: BTreeMap<Name, BTreeMap<Key, Seen>> = BTreeMap::new();
    for line in views.iter().flatten() {
        let all = lines.entry(line.name.clone()).or_default();
        let mut alike: HashMap<(Ticket, &Who), usize> = HashMap::new();
        let in_line = line
            .holders
            .iter()
            .map(|claim| (claim, true))
            .chain(line.waiters.iter().map(|claim| (claim, false)));
        for (claim, votes) in in_line {
            let nth = alike.entry((claim.ticket, &claim.who)).or_default();
            let Who { owner, host, pid } = &claim.who;
            let seen = all.entry((claim.ticket, owner.clone(), host.clone(), *pid, *nth)).or_default();
            *nth += 1;
            seen.claims.push(claim.clone());
            seen.votes += usize::from(votes);
        }
    }
    let merged = lines.into_iter().map(|(name, all)| {
        let mut line = LineView::free(name);
        for seen in all.into_values().filter(|seen| 2 * seen.claims.len() > views.len()) {
            let list = if seen.votes >= majority { &mut line.holders } else { &mut line.waiters };
            list.extend(one(seen.claims, majority));
        }
        line
    });
    merged.filter(|line| !line.holders.is_empty() || !line.waiters.is_empty()).collect()
}

/// What is left of a claim is what is left of it at most of the nodes. It stands in line, and holds, since a majority had it there,
/// or had let it in: who got in at once has held it all the time.
fn one(mut claims: Vec<ClaimView>, majority: usize) -> Option<ClaimView> {
    claims.sort_by_key(|claim| claim.remaining);
    let remaining = claims.get((claims.len() - 1) / 2).map_or(Duration::ZERO, |claim| claim.remaining);
    let mut since: Vec<Duration> = claims.iter().map(|claim| claim.since).collect();
    since.sort_unstable_by(|a, b| b.cmp(a));
    let since = since.get(majority - 1).or(since.last()).copied().unwrap_or_default();
    let evicted = claims.iter().any(|claim| claim.evicted);
    let mut held: Vec<Duration> = claims.iter().filter_map(|claim| claim.held).collect();
    held.sort_unstable_by(|a, b| b.cmp(a));
    let held = held.get(majority - 1).copied();
    claims.pop().map(|claim| ClaimView { remaining, since, held, evicted, ..claim })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Mode;

    fn claim(ticket: u64, remaining: u64) -> ClaimView {
        ClaimView {
            ticket: Ticket::new(ticket),
            mode: Mode::Exclusive,
            who: Who { owner: "o".into(), host: "h".into(), pid: 1 },
            remaining: Duration::from_secs(remaining),
            held: None,
            since: Duration::ZERO,
            evicted: false,
        }
    }

    #[test]
    fn who_got_in_at_once_has_held_it_all_the_time() {
        let at = |ms| {
            let since = Duration::from_millis(ms);
            ClaimView { since, held: Some(since), ..claim(1, 9) }
        };
        let merged = one(vec![at(7), at(9), at(8)], 2).unwrap();
        assert_eq!((merged.since, merged.held), (Duration::from_millis(8), Some(Duration::from_millis(8))));
    }

    #[test]
    fn a_majority_is_what_people_see() {
        let line =
            |holders, waiters| vec![LineView { name: Name::new("m").unwrap(), holders, waiters, shut: None }];
        let views = [
            line(vec![claim(1, 9)], vec![claim(2, 9)]),
            line(vec![claim(1, 7)], vec![claim(2, 9)]),
            line(vec![claim(2, 9)], vec![]),
        ];
        let merged = merge(&views, 2);
        assert_eq!((merged[0].holders.len(), merged[0].waiters.len()), (1, 1));
        assert_eq!(merged[0].holders[0].remaining, Duration::from_secs(7));
        assert!(
            merge(&[line(vec![claim(1, 9)], vec![]), vec![], vec![]], 2).is_empty(),
            "one node of three is nobody"
        );
        assert_eq!(
            merge(
                &[line(vec![claim(1, 9), claim(1, 9)], vec![]), line(vec![claim(1, 9), claim(1, 9)], vec![])],
                2
            )[0]
            .holders
            .len(),
            2
        );
    }
}
