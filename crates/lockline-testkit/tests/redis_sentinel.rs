//! The suite on a Redis primary that Sentinels watch, if this run includes it.

lockline_testkit::conformance_on_server!(
    "redis-sentinel",
    lockline_testkit::engine::redis_kind("redis-sentinel")
);
