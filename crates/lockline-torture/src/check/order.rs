//! Tokens rise with grants, nobody gets in before a smaller ticket, and who loses a lock is told in time.

use std::time::Duration;

use super::{Hold, Stops};
use crate::history::Mode;

/// How late a task on a busy machine may find out what its timer says.
const SLACK: Duration = Duration::from_millis(250);

/// Tokens must rise with exclusive grants; and nobody gets in before a smaller ticket, unless both are in side by side.
pub(super) fn token_order(holds: &[Hold]) -> (u64, u64) {
    let mut newest_exclusive = 0;
    let mut newest = 0;
    let (mut fences, mut order) = (0, 0);
    for hold in holds {
        fences += u64::from(hold.mode == Mode::Exclusive && hold.token <= newest_exclusive);
        // Side by side, the clock of a process that was stopped after its grant says little about the order.
        order += u64::from(hold.mode == Mode::Exclusive && hold.token < newest);
        newest = newest.max(hold.token);
        if hold.mode == Mode::Exclusive {
            newest_exclusive = newest_exclusive.max(hold.token);
        }
    }
    (fences, order)
}

/// Holders who were told later than their guard had said that it would end, although their process was not stopped.
pub(super) fn late_losses(holds: &[Hold], stops: &Stops) -> u64 {
    let is_late = |hold: &&Hold| {
        let Some((promised, told)) = hold.lost else { return false };
        let slept = stops
            .iter()
            .any(|(process, from, to)| *process == hold.process && *from <= told && promised <= *to + SLACK);
        told.since(promised) > SLACK && !slept
    };
    holds.iter().filter(is_late).count() as u64
}

#[cfg(test)]
mod tests {
    use lockline::time::Time;

    use super::super::tests::hold;
    use super::*;

    #[test]
    fn an_old_token_after_a_newer_one_is_found() {
        let old = [hold(0, 0, 10, Mode::Exclusive, 2), hold(0, 11, 12, Mode::Exclusive, 1)];
        assert_eq!(token_order(&old), (1, 1));
        let readers_side_by_side = [hold(0, 0, 10, Mode::Shared, 2), hold(0, 1, 12, Mode::Shared, 1)];
        assert_eq!(token_order(&readers_side_by_side), (0, 0));
    }

    #[test]
    fn who_is_told_late_must_have_slept() {
        let mut late = hold(0, 0, 10, Mode::Exclusive, 1);
        let time = Time::from_micros;
        late.lost = Some((time(1_000_000), time(1_300_000)));
        assert_eq!(late_losses(&[late], &[]), 1);
        assert_eq!(late_losses(&[late], &[(1, time(900_000), time(1_290_000))]), 1, "another process slept");
        assert_eq!(late_losses(&[late], &[(0, time(900_000), time(1_290_000))]), 0);
        late.lost = Some((time(1_000_000), time(1_200_000)));
        assert_eq!(late_losses(&[late], &[]), 0);
    }
}
