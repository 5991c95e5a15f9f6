//! The suite on quorums whose locks are stored as other clients store theirs, for what such locks can do.

use std::process::ExitCode;

use lockline_testkit::conformance::needs::Need::{Bells, Identities, Line, Modes, Tokens};
use lockline_testkit::engine::redlock_layout;
use lockline_testkit::{conformance_trials, server};

fn main() -> ExitCode {
    let plain = conformance_trials!(redlock_layout("redlock", "plain"));
    server::run("redlock", server::on("plain", &[Modes, Identities, Line, Tokens, Bells], plain))
}
