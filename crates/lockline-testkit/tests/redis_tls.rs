//! The suite on one Redis server that speaks TLS, to a user with few rights, if this run includes it.

lockline_testkit::conformance_on_server!("redis-tls", lockline_testkit::engine::redis_kind("redis-tls"));
