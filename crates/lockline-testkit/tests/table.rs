//! The suite's list, its functions and its table of the design say the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/conformance");

fn listed() -> BTreeSet<String> {
    lockline_testkit::conformance::names().into_iter().map(str::to_owned).collect()
}

#[test]
fn every_behaviour_is_run() {
    let mut written = BTreeSet::new();
    for file in fs::read_dir(FOLDER).unwrap() {
        let path = file.unwrap().path();
        let group = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let names = text.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split_once('('));
        written.extend(names.map(|(name, _)| format!("{group}::{name}")));
    }
    assert_eq!(written, listed(), "a behaviour that is not in the list is never run");
}

#[test]
fn every_behaviour_is_in_the_table() {
    let text = fs::read_to_string(Path::new(FOLDER).join("mod.rs")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("//! |"));
    let named: BTreeSet<String> = rows
        .flat_map(|row| row.split('`'))
        .filter(|word| word.contains("::") && !word.contains(' ') && !word.starts_with("lockline"))
        .map(str::to_owned)
        .collect();
    assert_eq!(named, listed());
}

#[test]
fn what_behaviours_need_is_said_of_those_that_exist() {
    let needy: BTreeSet<String> = lockline_testkit::conformance::needs::needy().map(str::to_owned).collect();
    assert!(needy.is_subset(&listed()), "{:?}", needy.difference(&listed()).collect::<Vec<_>>());
}
