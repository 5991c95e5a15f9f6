//! One conformance suite for every driver, and the faults to test it with.
//!
//! A driver's test file says how to make a fresh [`Engine`](engine::Engine) and runs the suite:
//!
//! ```text
//! lockline_testkit::conformance!(lockline_testkit::engine::sqlite());
//! lockline_testkit::conformance_across_processes!(lockline_testkit::engine::sqlite());
//! ```
//!
//! One whose engine is a server, which a run may leave out, has no test harness of its own (`harness = false`):
//!
//! ```text
//! lockline_testkit::conformance_on_server!("redis", lockline_testkit::engine::redis());
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | [`engine`] | what a driver's test file provides |
//! | [`mod@conformance`] | the behaviours, and the table: design line → test |
//! | [`setup`] | clients, faulty clients and child processes on one engine; waiting for something to become so |
//! | [`faults`] | a driver that counts, loses, delays, repeats and hangs |
//! | [`peer`] | real child processes, driven over stdin and stdout |
//! | [`engines`] | which engines a run includes, and which it leaves out |
//! | [`redis_servers`] | Redis servers of a test's own, to be killed and stopped |
//! | [`server`] | the suite as a program: tests on a server that is left out count as ignored |
//! | [`stepped_clock`] | a server whose wall clock a test steps |

pub mod conformance;
pub mod engine;
pub mod engines;
pub mod faults;
pub mod peer;
pub mod redis_servers;
pub mod server;
pub mod setup;
pub mod stepped_clock;
