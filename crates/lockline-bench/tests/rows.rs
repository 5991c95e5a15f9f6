//! The bench itself: its figures are read by other programs, so their shape is a contract. Runs are too short to mean
//! anything but that nothing is violated.
#![allow(clippy::unwrap_used)] // Whatever fails here fails the test.

use std::process::Command;

use serde_json::Value;

fn bench(args: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_lockline-bench")).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn memory_rows_are_safe_and_cost_what_they_should() {
    let rows = bench(&[
        "memory",
        "--json",
        "--seconds",
        "0.1",
        "--row",
        "uncontended",
        "--row",
        "reentrant",
        "--row",
        "spread",
    ]);
    let names: Vec<&str> = rows.iter().map(|row| row["row"].as_str().unwrap()).collect();
    assert_eq!(names, ["uncontended", "reentrant", "spread", "spread", "spread"]);
    for row in &rows {
        assert_eq!(row["engine"], "memory");
        assert_eq!(row["violations"], 0);
        assert!(row["ratio"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(rows[0]["commands_per_acquisition"], 2.0);
    assert_eq!(
        rows[1]["commands_per_acquisition"], 0.0,
        "a second lock by the same owner says nothing to the engine"
    );
}

#[cfg(feature = "sqlite")]
#[test]
fn processes_on_one_file_exclude_each_other() {
    let rows = bench(&["sqlite", "--json", "--seconds", "0.3", "--row", "processes"]);
    assert_eq!(rows[0]["workers"], 8);
    assert_eq!(rows[0]["violations"], 0);
    assert_eq!(rows[0]["tokens_not_rising"], 0.0);
}

#[test]
fn a_row_that_the_engine_cannot_have_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_lockline-bench"))
        .args(["memory", "--row", "processes"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("several processes"));
}
