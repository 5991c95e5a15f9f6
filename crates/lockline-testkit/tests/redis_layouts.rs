//! The suite on locks that are stored as other clients store theirs, for what such locks can do.

use std::process::ExitCode;

use lockline_testkit::conformance::needs::Need::{Amnesia, Bells, Identities, Labels, Line, Modes, Tokens};
use lockline_testkit::engine::redis_layout;
use lockline_testkit::{conformance_trials, server};

fn main() -> ExitCode {
    let plain = conformance_trials!(redis_layout("plain"));
    let fenced = conformance_trials!(redis_layout("redisson-fenced"));
    let mut trials = server::on("plain", &[Modes, Identities, Line, Tokens, Bells], plain);
    trials.extend(server::on("redisson-fenced", &[Modes, Identities, Line, Amnesia, Bells, Labels], fenced));
    server::run("redis", trials)
}
