//! The matrix: releases that people run, each as a cell.

use anyhow::{Result, ensure};

use super::release::{
    ETCD_3_4, ETCD_3_5, MARIADB_10, MARIADB_11, PGBOUNCER_1_18, PGBOUNCER_1_26, POSTGRES_15, POSTGRES_17,
    POSTGRES_18, REDIS_7, REDIS_8, VALKEY_8, VALKEY_9, ZOOKEEPER_3_8, ZOOKEEPER_3_9,
};
use super::{
    ETCD, ETCD_CLUSTER, Engine, MARIADB, MYSQL, POSTGRES, POSTGRES_POOLED, POSTGRES_STANDBY, REDIS,
    REDIS_CLUSTER, REDIS_REPLICAS, REDIS_SENTINEL, ZOOKEEPER, ZOOKEEPER_ENSEMBLE,
};

/// All of them. Those of one release follow each other, and begin with its name.
pub(crate) const CELLS: &[Engine] = &[
    REDIS.release("redis-7.0", &REDIS_7),
    REDIS_SENTINEL.release("redis-7.0-sentinel", &REDIS_7),
    REDIS_CLUSTER.release("redis-7.0-cluster", &REDIS_7),
    REDIS_REPLICAS.release("redis-7.0-replicas", &REDIS_7),
    REDIS.release("redis-8", &REDIS_8),
    REDIS_SENTINEL.release("redis-8-sentinel", &REDIS_8),
    REDIS_CLUSTER.release("redis-8-cluster", &REDIS_8),
    REDIS_REPLICAS.release("redis-8-replicas", &REDIS_8),
    REDIS.release("valkey-8", &VALKEY_8),
    REDIS_SENTINEL.release("valkey-8-sentinel", &VALKEY_8),
    REDIS_CLUSTER.release("valkey-8-cluster", &VALKEY_8),
    REDIS_REPLICAS.release("valkey-8-replicas", &VALKEY_8),
    REDIS.release("valkey-9", &VALKEY_9),
    REDIS_SENTINEL.release("valkey-9-sentinel", &VALKEY_9),
    REDIS_CLUSTER.release("valkey-9-cluster", &VALKEY_9),
    REDIS_REPLICAS.release("valkey-9-replicas", &VALKEY_9),
    POSTGRES.release("postgres-15", &POSTGRES_15),
    POSTGRES_STANDBY.release("postgres-15-standby", &POSTGRES_15),
    POSTGRES.release("postgres-17", &POSTGRES_17),
    POSTGRES_STANDBY.release("postgres-17-standby", &POSTGRES_17),
    POSTGRES.release("postgres-18", &POSTGRES_18),
    POSTGRES_STANDBY.release("postgres-18-standby", &POSTGRES_18),
    POSTGRES_POOLED.release("pgbouncer-1.18", &PGBOUNCER_1_18),
    POSTGRES_POOLED.release("pgbouncer-1.26", &PGBOUNCER_1_26),
    MARIADB.release("mariadb-10.11", &MARIADB_10),
    MARIADB.release("mariadb-11.8", &MARIADB_11),
    MYSQL,
    ETCD.release("etcd-3.4", &ETCD_3_4),
    ETCD_CLUSTER.release("etcd-3.4-cluster", &ETCD_3_4),
    ETCD.release("etcd-3.5", &ETCD_3_5),
    ETCD_CLUSTER.release("etcd-3.5-cluster", &ETCD_3_5),
    ZOOKEEPER.release("zookeeper-3.8", &ZOOKEEPER_3_8),
    ZOOKEEPER_ENSEMBLE.release("zookeeper-3.8-ensemble", &ZOOKEEPER_3_8),
    ZOOKEEPER.release("zookeeper-3.9", &ZOOKEEPER_3_9),
    ZOOKEEPER_ENSEMBLE.release("zookeeper-3.9-ensemble", &ZOOKEEPER_3_9),
];

/// The cells of these names, in the table's order; all of them if none is named. A name that several begin with means them
/// all: `valkey-9`, or `valkey`.
///
/// # Errors
/// If a name means none: a typing error must not look like a run that passed.
pub(crate) fn cells(names: &[String]) -> Result<Vec<&'static Engine>> {
    let is_meant = |cell: &Engine, name: &str| {
        cell.name.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    for name in names {
        let known: Vec<_> = CELLS.iter().map(|cell| cell.name).collect();
        let is_known = CELLS.iter().any(|cell| is_meant(cell, name));
        ensure!(is_known, "no cell is called {name:?}; there are {}", known.join(", "));
    }
    let wanted = |cell: &&Engine| names.is_empty() || names.iter().any(|name| is_meant(cell, name));
    Ok(CELLS.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_a_cell_or_all_that_begin_with_it() {
        let names = |of: &[&str]| -> Vec<&str> {
            let of: Vec<String> = of.iter().map(|&name| name.to_owned()).collect();
            cells(&of).unwrap().iter().map(|cell| cell.name).collect()
        };
        assert_eq!(names(&[]).len(), CELLS.len());
        assert_eq!(names(&["mysql-9", "postgres-18-standby"]), ["postgres-18-standby", "mysql-9"]);
        assert_eq!(names(&["valkey-9"]).len(), 4);
        assert_eq!(names(&["valkey"]).len(), 8);
        assert!(cells(&["valkey-10".to_owned()]).unwrap_err().to_string().contains("valkey-9-cluster"));
    }
}
