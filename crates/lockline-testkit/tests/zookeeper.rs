//! The suite on one ZooKeeper server, if this run includes one.

lockline_testkit::conformance_on_server!("zookeeper", lockline_testkit::engine::zookeeper("zookeeper"));
