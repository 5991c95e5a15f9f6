//! The suite on one etcd server, if this run includes one.

lockline_testkit::conformance_on_server!("etcd", lockline_testkit::engine::etcd("etcd"));
