//! The suite on a Redis cluster, if this run includes it.

lockline_testkit::conformance_on_server!(
    "redis-cluster",
    lockline_testkit::engine::redis_kind("redis-cluster")
);
