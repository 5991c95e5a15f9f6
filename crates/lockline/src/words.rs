//! How things are told to people.

use std::time::Duration;

/// A duration as people say it: `350ms`, `1.7s`, `1m 30s`, `24h`. Nobody wants to read microseconds.
pub(crate) fn told(duration: Duration) -> String {
    let tenths = (duration.as_millis() + 50) / 100;
    if duration < Duration::from_secs(1) {
        return format!("{}ms", duration.as_millis());
    }
    if tenths < 600 && !tenths.is_multiple_of(10) {
        return format!("{}.{}s", tenths / 10, tenths % 10);
    }
    humantime::format_duration(Duration::from_secs(u64::try_from(tenths / 10).unwrap_or(u64::MAX)))
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        let told = |micros| told(Duration::from_micros(micros));
        assert_eq!(told(350_900), "350ms");
        assert_eq!(told(1_666_666), "1.7s");
        assert_eq!(told(1_999_999), "2s");
        assert_eq!(told(10_000_000), "10s");
        assert_eq!(told(59_990_000), "1m");
        assert_eq!(told(90_400_000), "1m 30s");
        assert_eq!(told(86_400_000_000), "1day");
    }
}
