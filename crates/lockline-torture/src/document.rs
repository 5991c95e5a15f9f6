//! The document's table, made from what runs wrote with `--json`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::Value;

const BEGIN: &str = "<!-- torture: begin -->";
const END: &str = "<!-- torture: end -->";
/// What must be nothing.
const FINDINGS: [&str; 6] =
    ["overlaps", "fence_violations", "order_violations", "late_losses", "leaks", "hangs"];

/// All runs on one engine.
#[derive(Debug, Default)]
struct Runs {
    count: u64,
    seconds: u64,
    acquisitions: u64,
    faults: BTreeMap<String, u64>,
    findings: [u64; FINDINGS.len()],
    recovery_ms: f64,
}

/// One row per engine, in the order in which they first come.
pub(crate) fn markdown(lines: &str) -> anyhow::Result<String> {
    let mut engines: Vec<(String, Runs)> = Vec::new();
    for line in lines.lines().filter(|line| line.starts_with('{')) {
        let run: Value = serde_json::from_str(line).context("a line is no run")?;
        let engine = run["engine"].as_str().context("a run without an engine")?;
        let at = engines.iter().position(|(name, _)| name == engine).unwrap_or_else(|| {
            engines.push((engine.to_owned(), Runs::default()));
            engines.len() - 1
        });
        engines[at].1.add(&run);
    }
    let mut text = format!(
        "| engine | runs | seconds | acquisitions | faults | {} | next grant after a kill, p99 of the worst run |\n|{}\n",
        FINDINGS.map(|finding| finding.replace('_', " ")).join(" | "),
        "---|".repeat(6 + FINDINGS.len())
    );
    for (engine, runs) in &engines {
        let kinds: Vec<_> = runs.faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        text.push_str(&format!(
            "| {engine} | {} | {} | {} | {}: {} | {} | {:.0} ms |\n",
            runs.count,
            runs.seconds,
            runs.acquisitions,
            runs.faults.values().sum::<u64>(),
            kinds.join(", "),
            runs.findings.map(|count| count.to_string()).join(" | "),
            runs.recovery_ms
        ));
    }
    Ok(text)
}

impl Runs {
    fn add(&mut self, run: &Value) {
        let number = |key: &str| run[key].as_u64().unwrap_or_default();
        self.count += 1;
        self.seconds += number("seconds");
        self.acquisitions += number("acquisitions");
        for (kind, count) in run["faults_by_kind"].as_object().into_iter().flatten() {
            *self.faults.entry(kind.clone()).or_default() += count.as_u64().unwrap_or_default();
        }
        for (sum, finding) in self.findings.iter_mut().zip(FINDINGS) {
            *sum += number(finding);
        }
        self.recovery_ms = self.recovery_ms.max(run["recovery_p99_ms"].as_f64().unwrap_or_default());
    }
}

/// Puts the table into a document, between its marks.
pub(crate) fn put_into(document: &Path, table: &str) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(document).with_context(|| document.display().to_string())?;
    let (before, rest) = text.split_once(BEGIN).context("the document has no place for it")?;
    let (_, after) = rest.split_once(END).context("the place in the document has no end")?;
    ensure!(!table.contains(BEGIN), "a run is called like the mark");
    Ok(std::fs::write(document, format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_on_one_engine_are_one_row() {
        let run = |acquisitions, recovery| {
            format!(
                r#"{{"engine":"redis","seconds":5,"acquisitions":{acquisitions},"faults_by_kind":{{"kill":2}},"overlaps":0,"hangs":1,"recovery_p99_ms":{recovery}}}"#
            )
        };
        let table = markdown(&format!("{}\nnoise\n{}\n", run(10, 7.0), run(5, 3.0))).unwrap();
        assert!(
            table.ends_with("| redis | 2 | 10 | 15 | 4: kill 4 | 0 | 0 | 0 | 0 | 0 | 2 | 7 ms |\n"),
            "{table}"
        );
    }
}
