//! Says which engines this run left out: an engine that was not tested must not look as if it had been.

use std::io::Write;

#[test]
fn engines_of_this_run() {
    // Written past the test harness, which swallows what a passing test prints.
    writeln!(std::io::stderr(), "{}", lockline_testkit::engines::summary()).unwrap();
}
