//! What the routines answer.

use std::time::Duration;

use crate::driver::Bells;
use crate::line::{Bell, ClaimId, News, Standing, Ticket, look_again};
use crate::name::Name;

/// An answer, taken apart.
pub(in crate::drivers) struct Answer<'a> {
    /// What stands before the bells.
    pub(in crate::drivers) verdict: &'a str,
    bells: &'a str,
}

impl<'a> Answer<'a> {
    pub(in crate::drivers) fn new(text: &'a str) -> Answer<'a> {
        let (verdict, bells) = text.split_once('\n').unwrap_or((text, ""));
        Answer { verdict, bells }
    }

    /// Rings what is to be rung in this process. Done before the answer is given to its caller: a claim that got in by a
    /// release is told before the release returns. Answers whose they were.
    pub(in crate::drivers) fn ring(&self, board: &Bells) -> Vec<ClaimId> {
        self.ring_if(board, |_| true)
    }

    /// The same for those whose bell is news.
    pub(in crate::drivers) fn ring_if(
        &self,
        board: &Bells,
        is_news: impl Fn(ClaimId) -> bool,
    ) -> Vec<ClaimId> {
        let ring = |(name, bell): (Name, Bell)| {
            board.ring(&name, &bell);
            bell.id
        };
        let bells = self.bells.lines().filter_map(decode_bell);
        bells.filter(|(_, bell)| is_news(bell.id)).map(ring).collect()
    }

    /// One standing.
    pub(in crate::drivers) fn standing(&self) -> Option<Standing> {
        standing(self.verdict)
    }

    /// Whether the answer to a join says that nobody else stands there.
    pub(in crate::drivers) fn is_alone(&self) -> bool {
        self.verdict.ends_with(" alone")
    }

    /// Whether the answer to a join says that the claim before it is this client's, too: its last word is `0`.
    #[cfg(feature = "mysql")]
    pub(in crate::drivers) fn is_behind_own(&self) -> bool {
        self.verdict.split(' ').nth(5) == Some("0")
    }

    /// As many standings as were asked for.
    pub(in crate::drivers) fn standings(&self, asked: usize) -> Option<Vec<Standing>> {
        let all: Option<Vec<Standing>> = self.verdict.split(';').map(standing).collect();
        all.filter(|all| all.len() == asked)
    }
}

fn standing(text: &str) -> Option<Standing> {
    let mut words = text.split(' ');
    let verdict = words.next()?;
    let mut number = || words.next()?.parse::<i64>().ok();
    Some(match verdict {
        "L" => Standing::Lapsed,
        "O" => Standing::Out,
        "U" => Standing::Unsure,
        "I" => Standing::In { ticket: ticket(number()?)? },
        "W" => {
            let (ticket, ahead, lease, lapse) = (ticket(number()?)?, number()?, number()?, number()?);
            Standing::Waiting {
                ticket,
                ahead: u32::try_from(ahead).unwrap_or(u32::MAX),
                // -1 says that there is none before it.
                look_again: look_again(
                    Duration::from_micros(u64::try_from(lease).ok()?),
                    u64::try_from(lapse).ok().map(Duration::from_micros),
                    None,
                ),
            }
        }
        _ => return None,
    })
}

fn ticket(number: i64) -> Option<Ticket> {
    u64::try_from(number).ok().map(Ticket::new)
}

/// `ticket id news name`, the name in hex. On a channel anyone may send anything.
pub(in crate::drivers) fn decode_bell(text: &str) -> Option<(Name, Bell)> {
    let mut words = text.split(' ');
    let ticket = ticket(words.next()?.parse().ok()?)?;
    let id = u128::from_str_radix(&words.next()?.replace('-', ""), 16).ok()?;
    let news = match words.next()? {
        "in" => News::In,
        "out" => News::Out,
        _ => return None,
    };
    let name = String::from_utf8(unhex(words.next()?)?).ok()?;
    Some((Name::new(name).ok()?, Bell { id: ClaimId::from_u128(id), ticket, news }))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_are_understood() {
        let answer = Answer::new("I 7;W 9 1 10000000 -1;L;O\n8 0abc in 61");
        let standings = answer.standings(4).unwrap();
        assert_eq!(standings[0], Standing::In { ticket: Ticket::new(7) });
        let look_again = Duration::from_secs(1);
        assert_eq!(standings[1], Standing::Waiting { ticket: Ticket::new(9), ahead: 1, look_again });
        assert_eq!(standings[2..], [Standing::Lapsed, Standing::Out]);
        assert!(answer.standings(3).is_none());
        let alone = Answer::new("I 7 alone\n8 0abc in 61");
        assert_eq!((alone.standing(), alone.is_alone()), (Some(standings[0]), true));
        assert!(!answer.is_alone());
        let (name, bell) = decode_bell("17 00000000-0000-0000-0000-000000000abc out 61206220c3bc").unwrap();
        assert_eq!((name.as_str(), bell.id.as_u128(), bell.news), ("a b ü", 0xabc, News::Out));
    }

    proptest! {
        #[test]
        fn garbage_is_ignored(text in "[0-9a-z ;IWLO-]{0,60}", any in any::<String>()) {
            for text in [text, any] {
                decode_bell(&text);
                Answer::new(&text).standings(1);
            }
        }
    }

    #[test]
    fn broken_bells_and_answers_are_not_guessed_at() {
        let examples = [
            "17 00000000-0000-0000-0000-000000000abc out 61206220c3bc",
            "9223372036854775807 ffffffffffffffffffffffffffffffff in 61",
            "I 7;W 9 1 10000000 -1;L;O\n8 0abc in 61",
        ];
        crate::hostile::texts(&examples, |text| {
            for asked in 0..5 {
                let standings = Answer::new(text).standings(asked);
                assert!(standings.is_none_or(|standings| standings.len() == asked));
            }
            if let Some((name, bell)) = decode_bell(text) {
                let hex: String = name.as_str().bytes().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(text.split(' ').nth(3).map(str::to_lowercase), Some(hex), "{bell:?}");
            }
        });
    }

    #[test]
    fn half_a_byte_and_signs_are_no_hex() {
        assert_eq!(unhex("61C3bc"), Some(vec![0x61, 0xc3, 0xbc]));
        for bad in ["6", "616", "+f", "-1", "6 ", "ü"] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }
}
