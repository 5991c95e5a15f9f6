//! The document's tables, made from what runs wrote with `--json`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::Value;

const BEGIN: &str = "<!-- torture: begin -->";
const END: &str = "<!-- torture: end -->";
/// What must be nothing.
const FINDINGS: [&str; 9] = [
    "overlaps",
    "not_linearizable",
    "fence_violations",
    "order_violations",
    "late_losses",
    "stalls",
    "lost_wakeups",
    "leaks",
    "hangs",
];

/// All runs on one engine.
#[derive(Debug, Default)]
struct Runs {
    engine: String,
    promised: String,
    seeds: Vec<String>,
    seconds: u64,
    acquisitions: u64,
    faults: BTreeMap<String, u64>,
    findings: [u64; FINDINGS.len()],
    recovery_ms: f64,
    handoff_ms: f64,
}

/// The runs, one object to a line; other lines are left out.
pub(crate) fn parse(lines: &str) -> anyhow::Result<Vec<Value>> {
    let objects = lines.lines().filter(|line| line.starts_with('{'));
    objects.map(|line| serde_json::from_str(line).context("a line is no run")).collect()
}

/// One row per engine, in the order in which they first come; and one per kind of fault.
pub(crate) fn markdown(runs: &[Value]) -> anyhow::Result<String> {
    let mut engines: Vec<Runs> = Vec::new();
    for run in runs {
        let engine = run["engine"].as_str().context("a run without an engine")?;
        let at = engines.iter().position(|runs| runs.engine == engine).unwrap_or_else(|| {
            engines.push(Runs { engine: engine.to_owned(), ..Runs::default() });
            engines.len() - 1
        });
        engines[at].add(run);
    }
    Ok(format!("{}\n{}", by_engine(&engines), by_fault(&engines)))
}

fn by_engine(engines: &[Runs]) -> String {
    let mut text = format!(
        "| engine | promised | seconds (seeds) | acquisitions | faults | {} | recovered after healing, p99 | handed over in calm, p99 |\n|{}\n",
        FINDINGS.map(|finding| finding.replace('_', " ")).join(" | "),
        "---|".repeat(7 + FINDINGS.len())
    );
    for runs in engines {
        text.push_str(&format!(
            "| {} | {} | {} ({}) | {} | {} | {} | {:.0} ms | {:.1} ms |\n",
            runs.engine,
            runs.promised,
            runs.seconds,
            runs.seeds.join(", "),
            runs.acquisitions,
            runs.faults.values().sum::<u64>(),
            runs.findings.map(|count| count.to_string()).join(" | "),
            runs.recovery_ms,
            runs.handoff_ms
        ));
    }
    let sum = |of: &dyn Fn(&Runs) -> u64| engines.iter().map(of).sum::<u64>();
    let findings: Vec<_> =
        (0..FINDINGS.len()).map(|finding| sum(&|runs| runs.findings[finding]).to_string()).collect();
    text.push_str(&format!(
        "| **all** | | {} | **{}** | **{}** | {} | | |\n",
        sum(&|runs| runs.seconds),
        sum(&|runs| runs.acquisitions),
        sum(&|runs| runs.faults.values().sum()),
        findings.join(" | ")
    ));
    text
}

fn by_fault(engines: &[Runs]) -> String {
    let mut kinds: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
    for runs in engines {
        for (kind, count) in &runs.faults {
            kinds.entry(kind).or_default().push((&runs.engine, *count));
        }
    }
    let mut text = "| fault | times | on |\n|---|---|---|\n".to_owned();
    for (kind, on) in kinds {
        let sum: u64 = on.iter().map(|(_, count)| count).sum();
        let on: Vec<_> = on.iter().map(|(engine, count)| format!("{engine} {count}")).collect();
        text.push_str(&format!("| {kind} | {sum} | {} |\n", on.join(", ")));
    }
    text
}

impl Runs {
    fn add(&mut self, run: &Value) {
        let number = |key: &str| run[key].as_u64().unwrap_or_default();
        let largest = |old: f64, key: &str| old.max(run[key].as_f64().unwrap_or_default());
        self.promised = run["promised"].as_str().unwrap_or_default().to_owned();
        self.seeds.push(number("seed").to_string());
        self.seconds += number("seconds");
        self.acquisitions += number("acquisitions");
        for (kind, count) in run["faults_by_kind"].as_object().into_iter().flatten() {
            *self.faults.entry(kind.clone()).or_default() += count.as_u64().unwrap_or_default();
        }
        for (sum, finding) in self.findings.iter_mut().zip(FINDINGS) {
            *sum += number(finding);
        }
        self.recovery_ms = largest(self.recovery_ms, "recovery_p99_ms");
        self.handoff_ms = largest(self.handoff_ms, "handoff_p99_ms");
    }
}

/// Puts the tables into a document, between its marks.
pub(crate) fn put_into(document: &Path, tables: &str) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(document).with_context(|| document.display().to_string())?;
    let (before, rest) = text.split_once(BEGIN).context("the document has no place for it")?;
    let (_, after) = rest.split_once(END).context("the place in the document has no end")?;
    ensure!(!tables.contains(BEGIN), "a run is called like the mark");
    Ok(std::fs::write(document, format!("{before}{BEGIN}\n\n{tables}\n{END}{after}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_on_one_engine_are_one_row() {
        let run = |acquisitions, recovery| {
            format!(
                r#"{{"engine":"redis","promised":"Always","seed":3,"seconds":5,"acquisitions":{acquisitions},"faults_by_kind":{{"kill":2}},"overlaps":0,"hangs":1,"recovery_p99_ms":{recovery},"handoff_p99_ms":1.5}}"#
            )
        };
        let runs = parse(&format!("{}\nnoise\n{}\n", run(10, 7.0), run(5, 3.0))).unwrap();
        let tables = markdown(&runs).unwrap();
        let row =
            "| redis | Always | 10 (3, 3) | 15 | 4 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 2 | 7 ms | 1.5 ms |\n";
        assert!(tables.contains(row), "{tables}");
        assert!(tables.contains("| **all** | | 10 | **15** | **4** | 0 |"), "{tables}");
        assert!(tables.ends_with("| kill | 4 | redis 4 |\n"), "{tables}");
    }
}
