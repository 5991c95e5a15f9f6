//! The tables of `docs/reliability.md` that are made from what the harnesses wrote.
//!
//! ```sh
//! export LOCKLINE_RESULTS=/tmp/results.jsonl
//! LOCKLINE_SEEDS=0..36000 cargo test --release -p lockline --lib simulation::many_worlds
//! cargo test -p lockline --all-features --lib mutant
//! cargo test -p lockline --all-features --lib document -- --ignored
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::Value;

use crate::mutant::ALL;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reliability.md");

/// Prints a result, and keeps it in the file that `LOCKLINE_RESULTS` names.
pub(crate) fn result(line: &str) {
    println!("{line}");
    if let Some(file) = std::env::var_os("LOCKLINE_RESULTS") {
        let mut file =
            std::fs::OpenOptions::new().append(true).create(true).open(file).expect("LOCKLINE_RESULTS");
        // One write, because several tests may do it at a time.
        file.write_all(format!("{line}\n").as_bytes()).expect("LOCKLINE_RESULTS");
    }
}

fn results() -> Vec<Value> {
    let file = std::env::var_os("LOCKLINE_RESULTS").expect("LOCKLINE_RESULTS names what the harnesses wrote");
    let text = std::fs::read_to_string(file).expect("LOCKLINE_RESULTS");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// What stands between the markers, and where.
fn part<'a>(document: &'a str, name: &str) -> (std::ops::Range<usize>, &'a str) {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let from = document.find(&begin).expect("a marker") + begin.len();
    let to = from + document[from..].find(&end).expect("a marker");
    (from..to, &document[from..to])
}

fn put(name: &str, table: &str) {
    let mut document = std::fs::read_to_string(DOCUMENT).expect(DOCUMENT);
    let (range, _) = part(&document, name);
    document.replace_range(range, &format!("\n{table}\n"));
    std::fs::write(DOCUMENT, document).expect(DOCUMENT);
}

fn simulation(results: &[Value]) -> Option<String> {
    let chunks: Vec<&Value> = results.iter().filter(|result| result["harness"] == "simulation").collect();
    let sum = |key: &str| chunks.iter().filter_map(|chunk| chunk[key].as_f64()).sum::<f64>();
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for (kind, count) in chunks.iter().filter_map(|chunk| chunk["faults_by_kind"].as_object()).flatten() {
        *kinds.entry(kind).or_default() += count.as_u64().unwrap_or_default();
    }
    let first = chunks.first()?["seeds"].as_str()?.split("..").next()?;
    let last = chunks.last()?["seeds"].as_str()?.split("..").nth(1)?;
    let mut table = String::from(
        "| seeds | worlds | acquisitions | faults | simulated hours | seconds | violations |\n|---|---|---|---|---|---|---|\n",
    );
    let _ = writeln!(
        table,
        "| {first}..{last} | {} | {} | {} | {:.0} | {:.0} | {} |\n\n| fault | times |\n|---|---|",
        sum("worlds"),
        sum("acquisitions"),
        sum("faults"),
        sum("simulated_hours"),
        sum("seconds"),
        sum("violations"),
    );
    for (kind, count) in kinds {
        let _ = writeln!(table, "| {kind} | {count} |");
    }
    Some(table)
}

fn mutants(results: &[Value]) -> Option<String> {
    let harnesses = ["model", "simulation", "redlock"];
    let mut table = String::from(
        "| mutant | what it does | the model | the simulation | Redlock's | seen as |\n|---|---|---|---|---|---|\n",
    );
    for (mutant, does) in ALL {
        let name = format!("{mutant:?}");
        let found = |by: &str| results.iter().find(|result| result["mutant"] == *name && result["by"] == by);
        let after = harnesses.map(|by| found(by).and_then(|one| one["after"].as_str()).unwrap_or(""));
        let breaks = harnesses.iter().find_map(|by| found(by)?["breaks"].as_str())?;
        let _ = writeln!(table, "| {name} | {does} | {} | {breaks} |", after.join(" | "));
    }
    Some(table)
}

#[test]
#[ignore = "writes docs/reliability.md"]
fn tables() {
    let results = results();
    if let Some(table) = simulation(&results) {
        put("simulation", &table);
    }
    if results.iter().any(|result| result["mutant"].is_string()) {
        put("mutants", &mutants(&results).expect("somebody found each of them"));
    }
}

#[test]
fn every_bug_is_in_the_table() {
    let document = std::fs::read_to_string(DOCUMENT).expect(DOCUMENT);
    let (_, table) = part(&document, "mutants");
    for (mutant, _) in ALL {
        assert!(
            table.contains(&format!("| {mutant:?} |")),
            "{mutant:?}: see crates/lockline/src/document.rs"
        );
    }
}
