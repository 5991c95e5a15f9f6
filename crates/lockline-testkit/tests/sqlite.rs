//! The suite on the embedded engine, with processes that share its file.
#![cfg(feature = "sqlite")]

lockline_testkit::conformance!(lockline_testkit::engine::sqlite());
lockline_testkit::conformance_across_processes!(lockline_testkit::engine::sqlite());
