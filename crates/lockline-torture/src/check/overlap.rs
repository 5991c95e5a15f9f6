//! Two guards that do not fit together were never valid at one moment.

use super::Hold;
use crate::history::Mode;

/// Pairs of holds, in the order in which they began, that lie at the same moment and do not fit together.
pub(super) fn overlaps(holds: &[Hold]) -> u64 {
    let mut found = 0;
    let mut inside: Vec<Hold> = Vec::new();
    for &hold in holds {
        inside.retain(|other| other.to > hold.from);
        found += match hold.mode {
            Mode::Permit => u64::from(inside.iter().filter(|other| other.mode == Mode::Permit).count() >= 2),
            _ => inside
                .iter()
                .filter(|other| !(other.mode == Mode::Shared && hold.mode == Mode::Shared))
                .count() as u64,
        };
        inside.push(hold);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::hold;
    use super::*;

    #[test]
    fn guards_that_fit_together_are_left_alone() {
        let good = [
            hold(0, 0, 10, Mode::Exclusive, 1),
            hold(0, 10, 20, Mode::Shared, 2),
            hold(0, 12, 22, Mode::Shared, 3),
        ];
        assert_eq!(overlaps(&good), 0);
    }

    #[test]
    fn guards_that_do_not_are_found() {
        let two_writers = [hold(0, 0, 10, Mode::Exclusive, 1), hold(0, 5, 15, Mode::Exclusive, 2)];
        assert_eq!(overlaps(&two_writers), 1);
        let reader_beside_writer = [hold(0, 0, 10, Mode::Shared, 1), hold(0, 5, 15, Mode::Exclusive, 2)];
        assert_eq!(overlaps(&reader_beside_writer), 1);
        let three_permits = [
            hold(0, 0, 10, Mode::Permit, 1),
            hold(0, 1, 10, Mode::Permit, 2),
            hold(0, 2, 10, Mode::Permit, 3),
        ];
        assert_eq!(overlaps(&three_permits), 1);
    }
}
