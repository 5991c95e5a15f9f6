//! Percentiles of many short times.

use std::time::Duration;

/// Times in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<f64>);

impl Times {
    /// Adds a time that was taken over `repeated` operations.
    pub fn add(&mut self, took: Duration, repeated: u32) {
        self.0.push(took.as_nanos() as f64 / f64::from(repeated));
    }

    /// Adds all of the other's.
    pub fn extend(&mut self, other: Times) {
        self.0.extend(other.0);
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time that this share of all stays at or under; 0 if there are none.
    pub fn quantile_ns(&mut self, q: f64) -> f64 {
        if self.0.is_empty() {
            return 0.0;
        }
        self.0.sort_by(f64::total_cmp);
        let last = self.0.len() - 1;
        self.0[((last as f64 * q).round() as usize).min(last)]
    }

    /// The same in microseconds.
    pub fn quantile_us(&mut self, q: f64) -> f64 {
        self.quantile_ns(q) / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_members() {
        let mut times = Times::default();
        (1..=101).for_each(|n| times.add(Duration::from_nanos(n), 1));
        assert_eq!(times.quantile_ns(0.5), 51.0);
        assert_eq!(times.quantile_ns(0.99), 100.0);
        assert_eq!(times.quantile_ns(1.0), 101.0);
        assert_eq!(Times::default().quantile_ns(0.5), 0.0);
    }
}
