//! The suite on PostgreSQL behind a pooler that gives every transaction another session, if this run includes it.

lockline_testkit::conformance_on_rows!(
    "postgres-pooled",
    lockline_testkit::engine::postgres("postgres-pooled")
);
