//! One measured row.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

const SERVER: &str = "server";

/// What was measured. The fields up to `violations` are the contract of `--json`, in this order; others follow.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// The engine's name.
    pub engine: String,
    /// Which row.
    pub row: String,
    /// How many workers took turns.
    pub workers: usize,
    /// How long each held the lock.
    pub hold_ms: u64,
    /// What the floor is.
    pub floor: String,
    /// The floor, in the unit of the value.
    pub floor_value: f64,
    /// What Lockline did.
    pub value: f64,
    /// `value / floor_value`: small is good for a time, large for a rate.
    pub ratio: f64,
    /// Acquisitions by another worker than the one before.
    pub owner_changes_per_s: Option<f64>,
    /// Verbs sent to the engine for one acquisition and its release.
    pub commands_per_acquisition: Option<f64>,
    /// Turns of the least served worker.
    pub turns_min: u64,
    /// Turns of the most served worker.
    pub turns_max: u64,
    /// How often a worker was inside while another was.
    pub violations: u64,
    /// The unit of both values: `us`, `ns` or `1/s`.
    pub unit: String,
    /// What only this row has.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Row {
    /// The value, its floor, and their ratio.
    #[must_use]
    pub fn against(mut self, unit: &str, value: f64, floor: &str, floor_value: f64) -> Row {
        self.unit = unit.to_owned();
        self.value = rounded(value);
        self.floor = floor.to_owned();
        self.floor_value = rounded(floor_value);
        self.ratio = rounded(value / floor_value);
        self
    }

    /// What the server says of itself: its version, and whether a commit waits for the disk.
    #[must_use]
    pub fn on(mut self, server: &str) -> Row {
        self.extra.insert(SERVER.to_owned(), server.into());
        self
    }

    /// What the server said of itself, if it did.
    pub fn server(&self) -> Option<&str> {
        self.extra.get(SERVER)?.as_str()
    }

    /// One more figure, after the ones that every row has.
    #[must_use]
    pub fn with(mut self, key: &str, value: f64) -> Row {
        self.extra.insert(key.to_owned(), rounded(value).into());
        self
    }
}

/// Four significant digits: the rest is noise, and hides that it is.
pub fn rounded(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let scale = 10f64.powi(3 - x.abs().log10().floor() as i32);
    (x * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_the_contract_come_first_and_in_order() {
        let row = Row::default().against("us", 2.0, "nothing", 1.0).with("p99_us", 3.0);
        let json = serde_json::to_string(&row).unwrap();
        let fields = [
            "engine",
            "row",
            "workers",
            "hold_ms",
            "floor",
            "floor_value",
            "value",
            "ratio",
            "owner_changes_per_s",
            "commands_per_acquisition",
            "turns_min",
            "turns_max",
            "violations",
            "unit",
            "p99_us",
        ];
        let at: Vec<usize> = fields.iter().map(|f| json.find(&format!("\"{f}\":")).expect(f)).collect();
        assert!(at.is_sorted(), "{json}");
        assert_eq!(serde_json::from_str::<Row>(&json).unwrap().ratio, 2.0);
    }

    #[test]
    fn four_digits_are_kept() {
        assert_eq!(rounded(123_456.0), 123_500.0);
        assert_eq!(rounded(0.012_345_6), 0.012_35);
        assert_eq!(rounded(0.0), 0.0);
    }
}
