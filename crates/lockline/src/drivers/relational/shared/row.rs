//! A row of a shared table, as look.sql of each server writes it: one text, whose fields cannot be mistaken for each other.

use std::time::Duration;

/// What a row says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::drivers) struct Row {
    /// Which of the keys that were asked for it is.
    pub(in crate::drivers) nth: usize,
    /// It has expired, or was released: whoever comes may take it.
    pub(in crate::drivers) is_free: bool,
    pub(in crate::drivers) rest: Duration,
    /// For how long it has been held; zero if nobody wrote that down.
    pub(in crate::drivers) since: Duration,
    pub(in crate::drivers) owner: String,
    /// The last column, as text: hold ids, or since when it is held.
    pub(in crate::drivers) last: String,
}

impl Row {
    /// `nth free rest_us since_us owner last`, the last two in hex; `None` for anything else.
    pub(in crate::drivers) fn parse(text: &str) -> Option<Row> {
        let mut fields = text.split(' ');
        let mut number = || fields.next()?.parse::<i64>().ok();
        let (nth, is_free, rest, since) = (number()?, number()?, number()?, number()?);
        let micros = |n: i64| Duration::from_micros(u64::try_from(n).unwrap_or(0));
        let (owner, last) = (unhex(fields.next()?)?, unhex(fields.next()?)?);
        if fields.next().is_some() {
            return None;
        }
        let nth = usize::try_from(nth).ok()?;
        Some(Row { nth, is_free: is_free != 0, rest: micros(rest), since: micros(since), owner, last })
    }
}

/// Reads what a server's `HEX` or `encode` wrote.
pub(in crate::drivers) fn unhex(text: &str) -> Option<String> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).ok();
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    String::from_utf8(bytes?).ok()
}

/// All of these texts read as hex.
pub(in crate::drivers) fn hex(texts: &[String]) -> Option<Vec<String>> {
    texts.iter().map(|text| unhex(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read() {
        let row = Row::parse("3 0 1500000 -7 c3a4 ").unwrap();
        let expected = Row {
            nth: 3,
            is_free: false,
            rest: Duration::from_millis(1500),
            since: Duration::ZERO,
            owner: "ä".to_owned(),
            last: String::new(),
        };
        assert_eq!(row, expected);
    }

    #[test]
    fn broken_rows_are_none() {
        for text in
            ["", "1", "1 0 5 5 41", "1 0 5 5 4 41", "1 0 5 5 ff 41", "-1 0 5 5 41 41", "1 0 5 5 41 41 41"]
        {
            assert_eq!(Row::parse(text), None, "{text}");
        }
        crate::hostile::texts(&["3 0 1500000 7 c3a4 41"], |text| {
            Row::parse(text);
        });
    }
}
