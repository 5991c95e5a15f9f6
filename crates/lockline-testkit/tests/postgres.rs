//! The suite on one PostgreSQL server, if this run includes it.

lockline_testkit::conformance_on_rows!("postgres", lockline_testkit::engine::postgres("postgres"));
