//! The suite on a Redis primary whose replicas must all have every grant, if this run includes it.

lockline_testkit::conformance_on_server!(
    "redis-replicas",
    lockline_testkit::engine::redis_kind("redis-replicas")
);
