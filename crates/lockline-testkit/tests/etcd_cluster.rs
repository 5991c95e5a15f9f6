//! The suite on three etcd servers, if this run includes them.

lockline_testkit::conformance_on_server!("etcd-cluster", lockline_testkit::engine::etcd("etcd-cluster"));
