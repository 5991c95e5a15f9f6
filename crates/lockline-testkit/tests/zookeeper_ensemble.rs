//! The suite on an ensemble of three ZooKeeper servers, if this run includes one.

lockline_testkit::conformance_on_server!(
    "zookeeper-ensemble",
    lockline_testkit::engine::zookeeper("zookeeper-ensemble")
);
