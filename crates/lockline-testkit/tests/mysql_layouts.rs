//! The suite on locks in tables that other programs share, for what such locks can do.

use std::process::ExitCode;

use lockline_testkit::conformance::needs::Need::{Bells, Identities, Line, Modes, Tokens};
use lockline_testkit::conformance::trials_with_rows;
use lockline_testkit::engine::mysql_layout;
use lockline_testkit::{conformance_trials, server};

const LACKS: &[lockline_testkit::conformance::needs::Need] = &[Modes, Identities, Line, Tokens, Bells];

fn main() -> ExitCode {
    let peer = env!("CARGO_BIN_EXE_lockline-test-peer");
    let mut trials = server::on("table", LACKS, conformance_trials!(mysql_layout("table")));
    trials.extend(server::on("table", LACKS, trials_with_rows(|| mysql_layout("table"), peer)));
    trials.extend(server::on("shedlock", LACKS, conformance_trials!(mysql_layout("shedlock"))));
    trials.extend(server::on("shedlock", LACKS, trials_with_rows(|| mysql_layout("shedlock"), peer)));
    server::run("mysql", trials)
}
