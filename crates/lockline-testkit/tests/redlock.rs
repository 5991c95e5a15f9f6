//! The suite on a quorum of five Redis servers, if this run includes one.

lockline_testkit::conformance_on_server!("redlock", lockline_testkit::engine::redlock("redlock"));
