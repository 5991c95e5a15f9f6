//! What the guardian is told through its pipe. Each word is written and read in one piece: a pipe does not mix pieces
//! this small.

use lockline::time::Time;
use nix::unistd::Pid;

pub(super) const SIZE: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The command's process group. Written by the command's own process, before it becomes the command.
    Group(Pid),
    /// When to ask the command to end, and when to kill it, unless another such word comes.
    Until { ask_at: Time, kill_at: Time },
    /// The command has ended: nothing is to be watched any more.
    Goodbye,
}

impl Word {
    pub(super) fn to_bytes(self) -> [u8; SIZE] {
        let numbers = match self {
            Word::Group(group) => [1, u64::from(group.as_raw().unsigned_abs()), 0],
            Word::Until { ask_at, kill_at } => [2, ask_at.as_micros(), kill_at.as_micros()],
            Word::Goodbye => [3, 0, 0],
        };
        let mut bytes = [0; SIZE];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    /// `None`: nobody writes that.
    pub(super) fn from_bytes(bytes: &[u8; SIZE]) -> Option<Word> {
        let mut numbers = [0; 3];
        for (number, place) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = u64::from_ne_bytes(place.try_into().ok()?);
        }
        match numbers {
            // 0 is our own group and 1 is everybody's: never to be killed by mistake.
            [1, group, _] => {
                i32::try_from(group).ok().filter(|g| *g > 1).map(|g| Word::Group(Pid::from_raw(g)))
            }
            [2, ask, kill] => {
                Some(Word::Until { ask_at: Time::from_micros(ask), kill_at: Time::from_micros(kill) })
            }
            [3, ..] => Some(Word::Goodbye),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_written() {
        let until = Word::Until { ask_at: Time::from_micros(7), kill_at: Time::from_micros(u64::MAX) };
        for word in [Word::Group(Pid::from_raw(42)), until, Word::Goodbye] {
            assert_eq!(Word::from_bytes(&word.to_bytes()), Some(word));
        }
    }

    #[test]
    fn a_group_that_is_everybodys_is_never_read() {
        for group in [0, 1] {
            assert_eq!(Word::from_bytes(&Word::Group(Pid::from_raw(group)).to_bytes()), None);
        }
        assert_eq!(Word::from_bytes(&[0xff; SIZE]), None);
    }
}
