//! The suite on a PostgreSQL primary whose commits are answered when its synchronous standby has them, if this run includes it.
//! What a promotion does is tested by the driver's own tests.

lockline_testkit::conformance_on_rows!(
    "postgres-standby",
    lockline_testkit::engine::postgres("postgres-standby")
);
