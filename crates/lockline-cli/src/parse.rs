//! From words to values. What is refused here is refused before anything is touched.

use std::str::FromStr;
use std::time::Duration;

const LEASE_SHORTEST: Duration = Duration::from_millis(100);
const LEASE_LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
const OWNER_BYTES_MAX: usize = 256;
/// A century: far beyond any use, and far from where adding it to a clock overflows.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// So many permits of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permits {
    pub(crate) count: u32,
    pub(crate) limit: u32,
}

impl FromStr for Permits {
    type Err = String;

    fn from_str(text: &str) -> Result<Permits, String> {
        let (count, limit) = text
            .split_once('/')
            .and_then(|(count, limit)| Some((count.parse().ok()?, limit.parse().ok()?)))
            .ok_or("it is written K/N, such as 1/4")?;
        if (1..=limit).contains(&count) {
            Ok(Permits { count, limit })
        } else {
            Err("that can never be had; K is at least 1 and at most N".to_owned())
        }
    }
}

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) => Ok(duration.min(LONGEST)),
        Err(_) => Err("it is not a duration such as 500ms, 10s or 5m".to_owned()),
    }
}

/// Seconds as `flock(1)` takes them.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let refused =
        "it is a number of seconds, 0 or more, such as 2.5 (for durations such as 500ms there is --wait)";
    let seconds: f64 = text.parse().map_err(|_| refused)?;
    if !seconds.is_finite() || seconds < 0.0 {
        return Err(refused.to_owned());
    }
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST))
}

pub(crate) fn lease(text: &str) -> Result<Duration, String> {
    let lease = duration(text)?;
    if (LEASE_SHORTEST..=LEASE_LONGEST).contains(&lease) {
        Ok(lease)
    } else {
        Err("a lease is from 100ms to 24h".to_owned())
    }
}

pub(crate) fn max_hold(text: &str) -> Result<Duration, String> {
    let cap = duration(text)?;
    if cap.is_zero() { Err("a hold of zero length could never be used".to_owned()) } else { Ok(cap) }
}

pub(crate) fn grace(text: &str) -> Result<Duration, String> {
    duration(text)
}

pub(crate) fn exit_code(text: &str) -> Result<u8, String> {
    text.parse().map_err(|_| "an exit code is a number from 0 to 255".to_owned())
}

pub(crate) fn owner(text: &str) -> Result<String, String> {
    if (1..=OWNER_BYTES_MAX).contains(&text.len()) {
        Ok(text.to_owned())
    } else {
        Err(format!("a label has 1 to {OWNER_BYTES_MAX} bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_flocks() {
        assert_eq!(seconds("2.5"), Ok(Duration::from_millis(2500)));
        assert_eq!(seconds("0"), Ok(Duration::ZERO));
        assert_eq!(seconds("1e300"), Ok(LONGEST));
        for bad in ["-1", "10s", "inf", "nan", ""] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn permits_must_be_possible() {
        assert_eq!("2/4".parse(), Ok(Permits { count: 2, limit: 4 }));
        for bad in ["0/4", "5/4", "2", "a/b", "1/", "/1", "-1/2", "1/99999999999"] {
            assert!(bad.parse::<Permits>().is_err(), "{bad}");
        }
    }

    #[test]
    fn leases_have_limits() {
        assert_eq!(lease("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(lease("24h"), Ok(Duration::from_secs(86_400)));
        for bad in ["99ms", "24h 1ms", "10", "0s", "never", ""] {
            assert!(lease(bad).is_err(), "{bad}");
        }
    }

    /// Every text of three such pieces: numbers at their ends, signs, units, letters that are more than a byte.
    #[test]
    fn broken_words_are_refused_or_within_limits() {
        let pieces = [
            "",
            " ",
            "0",
            "1",
            "00",
            "+1",
            "-1",
            "2.5",
            "1e9",
            "1e300",
            "255",
            "256",
            "4294967296",
            "18446744073709551615",
            "18446744073709551616",
            "ns",
            "us",
            "ms",
            "s",
            "m",
            "h",
            "days",
            "years",
            "/",
            "%",
            "nan",
            "inf",
            "\0",
            "\n",
            "ü",
            "🔒",
            "\u{202e}",
        ];
        for (first, second) in pieces.iter().flat_map(|first| pieces.map(|second| (first, second))) {
            for third in pieces {
                let text = format!("{first}{second}{third}");
                for read in [duration, seconds, grace, max_hold] {
                    if let Ok(time) = read(&text) {
                        assert!(time <= LONGEST, "{text:?}");
                    }
                }
                if let Ok(time) = lease(&text) {
                    assert!((LEASE_SHORTEST..=LEASE_LONGEST).contains(&time), "{text:?}");
                }
                if let Ok(Permits { count, limit }) = text.parse() {
                    assert!(0 < count && count <= limit, "{text:?}");
                }
                let _ = (exit_code(&text), owner(&text));
            }
        }
    }
}
