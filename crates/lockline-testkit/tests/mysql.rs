//! The suite on one MariaDB server, if this run includes one.

lockline_testkit::conformance_on_rows!("mysql", lockline_testkit::engine::mysql());
