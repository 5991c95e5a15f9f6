//! The scripts, as text: what is the same for all of them, then the verb.

use super::address::Topology;
use super::config::RedisConfig;
use super::incarnation::Incarnation;
use super::lent::{IDLE_MS, TICKETS};

/// A script's place in [`TEXTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    Join,
    Renew,
    Leave,
    View,
    Evict,
    /// A leave that takes a join along.
    Pass,
}

/// What every verb shares: how a line is stored, and its rules.
const LINE: &str = include_str!("lua/line.lua");
const RULES: &str = include_str!("lua/rules.lua");

/// What each verb is made of. What all of them share is defined anew with each call, so the common cases come before it.
const TEXTS: [&[&str]; 6] = [
    &[include_str!("lua/join_fast.lua"), LINE, RULES, include_str!("lua/join.lua")],
    &[include_str!("lua/renew_fast.lua"), LINE, RULES, include_str!("lua/renew.lua")],
    &[include_str!("lua/leave_fast.lua"), LINE, RULES, include_str!("lua/leave.lua")],
    &[LINE, RULES, include_str!("lua/view.lua")],
    &[LINE, RULES, include_str!("lua/evict.lua")],
    &[include_str!("lua/pass.lua")],
];

/// How a claim joins a node of a quorum. All else is the same there.
const PROPOSE: &[&str] =
    &[include_str!("../redlock/lua/join_fast.lua"), LINE, RULES, include_str!("../redlock/lua/join.lua")];

/// What the scripts of one incarnation of a server are called there.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) incarnation: Incarnation,
    pub(super) shas: Vec<String>,
}

impl Loaded {
    pub(super) fn sha(&self, script: Script) -> &str {
        &self.shas[script as usize]
    }
}

/// How long what outlives a line lives: a day, after every hour in which somebody joined; so for longer than any lease.
const ROOT_MS: u64 = 25 * 60 * 60 * 1000;

/// How far ahead of its tickets the root of a busy line is: it is told of them once a second.
const AHEAD_US: u64 = 1_000_000;

/// Where scripts read the time.
const SERVER_CLOCK: &str = "\
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
";

/// A test tells the time itself, as the last argument; keys must then outlive the test. A hundred years: its clock begins in 1970.
#[cfg(test)]
pub(super) const TEST_SPARE_MS: u64 = 100 * 366 * 24 * 3600 * 1000;
#[cfg(test)]
const TEST_CLOCK: &str = "local function clock() return tonumber(ARGV[#ARGV]) end\n";

/// The text of every script for this incarnation. The server's id in it makes a restarted server answer that it does
/// not know the script, at no cost per call.
pub(super) fn texts(incarnation: &Incarnation, config: &RedisConfig, test_clock: bool) -> Vec<String> {
    #[cfg(test)]
    let (clock, spare_ms) = if test_clock { (TEST_CLOCK, TEST_SPARE_MS) } else { (SERVER_CLOCK, 0) };
    #[cfg(not(test))]
    let (clock, spare_ms) = (SERVER_CLOCK, 0);
    let _ = test_clock;
    let (ends, length) = incarnation.guard.map_or((0, 0), |guard| (guard.ends_us, guard.length_us));
    let (life, space, lent_ms) = (&incarnation.life, &config.space, IDLE_MS + spare_ms);
    let not_lines = usize::from(matches!(config.topology, Topology::Cluster(_)));
    let mut all = TEXTS;
    if config.of_a_quorum {
        all[Script::Join as usize] = PROPOSE;
    }
    all.iter()
        .map(|parts| {
            let verb = parts.concat();
            format!(
                "-- Lockline on {life}\n\
                 local GUARD, GUARD_LENGTH, SPARE_MS = {ends}, {length}, {spare_ms}\n\
                 local BELL, ROOT_MS = '{space}:bell:', '{ROOT_MS}'\n\
                 local LENT_TICKETS, LENT_MS, AHEAD = {TICKETS}, {lent_ms}, {AHEAD_US}\n\
                 local LINES = #KEYS - {not_lines}\n\
                 {clock}{verb}"
            )
        })
        .collect()
}
