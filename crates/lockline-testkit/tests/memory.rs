//! The suite on the engine in this process. Other processes cannot reach it.

lockline_testkit::conformance!(lockline_testkit::engine::memory());
