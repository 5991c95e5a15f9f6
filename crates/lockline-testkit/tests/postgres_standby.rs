//! The suite on PostgreSQL with a synchronous standby, if this run includes it.

lockline_testkit::conformance_on_server!(
    "postgres-standby",
    lockline_testkit::engine::postgres("postgres-standby")
);
