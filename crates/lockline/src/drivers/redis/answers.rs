//! What scripts answer.

use std::time::Duration;

use redis::Value;

use crate::line::{ClaimId, ClaimView, LineView, Mode, Standing, Ticket, Who, look_again};
use crate::name::Name;
use crate::time::Time;

pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

pub(in crate::drivers) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        other => text(other)?.parse().ok(),
    }
}

/// As `standing` in rules.lua writes it.
pub(in crate::drivers) fn standing(answer: &Value) -> Option<Standing> {
    let parts = match answer {
        Value::Array(parts) => parts,
        Value::Int(ticket) => {
            return u64::try_from(*ticket).ok().map(|ticket| Standing::In { ticket: Ticket::new(ticket) });
        }
        _ => return None,
    };
    Some(match parts.as_slice() {
        [Value::Int(0)] => Standing::Lapsed,
        [Value::Int(2), ticket, ahead, lease, lapse, guard] => Standing::Waiting {
            ticket: Ticket::new(number(ticket)?),
            ahead: u32::try_from(number(ahead)?).unwrap_or(u32::MAX),
            // -1, which is no number here, says that there is none.
            look_again: look_again(
                Duration::from_micros(number(lease)?),
                number(lapse).map(Duration::from_micros),
                number(guard).map(Duration::from_micros),
            ),
        },
        [Value::Int(3)] => Standing::Out,
        _ => return None,
    })
}

/// What came of a leave that took a join along.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Passed {
    /// Of whoever joined, and how many places are before it.
    pub(super) ticket: Ticket,
    pub(super) ahead: u32,
    /// The ticket of whoever is in now, if that is one of ours.
    pub(super) is_in: Option<Ticket>,
    /// For whom this is the bell.
    pub(super) rings: Option<ClaimId>,
}

/// As pass.lua writes it; `Some(None)` if nothing was done.
pub(super) fn passed(answer: &Value) -> Option<Option<Passed>> {
    let parts = match answer {
        Value::Array(parts) => parts.as_slice(),
        Value::Nil => return Some(None),
        _ => return None,
    };
    let [ticket, ahead, ours @ ..] = parts else { return None };
    let rings = ours.get(1).and_then(text).and_then(|id| u128::from_str_radix(id, 16).ok());
    Some(Some(Passed {
        ticket: Ticket::new(number(ticket)?),
        ahead: u32::try_from(number(ahead)?).unwrap_or(u32::MAX),
        is_in: ours.first().and_then(number).map(Ticket::new),
        rings: rings.map(ClaimId::from_u128),
    }))
}

/// Whether a line, as view.lua writes it, has the place with this ticket, and it is in.
pub(super) fn is_in(answer: &Value, ticket: Ticket) -> bool {
    let Value::Array(lines) = answer else { return false };
    lines.iter().filter_map(line).any(|line| line.holders.iter().any(|holder| holder.ticket == ticket))
}

/// As view.lua writes it.
pub(super) fn line(answer: &Value) -> Option<LineView> {
    let Value::Array(parts) = answer else { return None };
    let [name, through, now, entered, claims @ ..] = parts.as_slice() else { return None };
    // -1, which is no number here, says that nobody knows.
    let entered = number(entered).map(Time::from_micros);
    let (through, now) = (Ticket::new(number(through)?), Time::from_micros(number(now)?));
    let mut line = LineView::free(Name::new(text(name)?).ok()?);
    let mut all = Vec::new();
    for pair in claims.chunks_exact(2) {
        all.push(claim(text(&pair[0])?, Time::from_micros(number(&pair[1])?), now)?);
    }
    // Of the claims on one place the one that came first stands first.
    all.sort_by(|a, b| a.ticket.cmp(&b.ticket).then(b.since.cmp(&a.since)));
    for last in all.iter_mut().filter(|claim| claim.ticket == through) {
        // Whoever joins others on their place is in no sooner than it came.
        last.held = entered.map(|entered| now.since(entered).min(last.since));
    }
    (line.holders, line.waiters) = all.into_iter().partition(|claim| claim.ticket <= through);
    Some(line)
}

fn claim(stored: &str, deadline: Time, now: Time) -> Option<ClaimView> {
    let parts: Vec<&str> = stored.splitn(13, ' ').collect();
    let [ticket, _lease, flags, since, mode, count, limit, _shared, _process, pid, owner, host, names] =
        parts.as_slice()
    else {
        return None;
    };
    let (owner, rest) = names.split_at_checked(owner.parse().ok()?)?;
    let (host, _identity) = rest.split_at_checked(host.parse().ok()?)?;
    Some(ClaimView {
        ticket: Ticket::new(ticket.parse().ok()?),
        mode: match *mode {
            "s" => Mode::Shared,
            "p" => Mode::Permits { count: count.parse().ok()?, limit: limit.parse().ok()? },
            _ => Mode::Exclusive,
        },
        who: Who { owner: owner.to_owned(), host: host.to_owned(), pid: pid.parse().ok()? },
        remaining: deadline.since(now),
        since: now.since(Time::from_micros(since.parse().ok()?)),
        held: None,
        evicted: flags.parse::<u8>().ok()? >= 2,
    })
}

/// An answer that nobody meant to give: built of what answers are built of.
#[cfg(test)]
pub(super) fn any_value(depth: u64) -> Value {
    use crate::hostile::any_of;
    use crate::simulation::chance::below;
    let numbers = [0, 1, 2, 3, 4, 7, -1, 5_460, 16_383, 16_384, 60_000, 1 << 40, i64::MAX, i64::MIN];
    let texts = [
        "",
        "a",
        "-1",
        "7",
        "18446744073709551615",
        "127.0.0.1",
        "ü",
        "17 10000000 0 5 x 0 0 0 p1 42 2 1 mehi",
        "17 1 2 5 p 2 4 1 p1 42 1 1 üh",
        "1 1 0 1 s 0 0 0 p 1 99 1 x",
    ];
    match below(if depth == 0 { 3 } else { 8 }) {
        0 => Value::Int(numbers[below(numbers.len() as u64) as usize]),
        1 => Value::BulkString(any_of(&texts).into()),
        2 => Value::Nil,
        _ => Value::Array((0..below(7)).map(|_| any_value(depth - 1)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_answers_are_refused_or_understood() {
        crate::hostile::cases_of(|| {
            let answer = any_value(3);
            let _ = (standing(&answer), number(&answer), is_in(&answer, Ticket::new(7)));
        });
    }

    #[test]
    fn broken_claims_are_refused_or_understood() {
        let stored = ["17 10000000 0 5 x 0 0 0 p1 42 2 1 mehi", "17 1 2 5 p 2 4 1 p1 42 2 1 üh"];
        crate::hostile::texts(&stored, |text| {
            if let Some(claim) = claim(text, Time::from_micros(u64::MAX), Time::from_micros(9)) {
                assert!(text.contains(&claim.who.owner));
            }
        });
    }
}
