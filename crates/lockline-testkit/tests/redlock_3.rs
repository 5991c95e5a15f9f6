//! The suite on a quorum of three Redis servers, if this run includes one.

lockline_testkit::conformance_on_server!("redlock-3", lockline_testkit::engine::redlock("redlock-3"));
