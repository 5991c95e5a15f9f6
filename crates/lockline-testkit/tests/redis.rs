//! The suite on one Redis server, if this run includes one.

lockline_testkit::conformance_on_server!("redis", lockline_testkit::engine::redis());
