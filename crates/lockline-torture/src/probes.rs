//! Asking servers how they are, past all proxies and without the library under test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::redis_servers::{WATCHED, ask};
use crate::servers::{Role, Server};

/// Whether it answers.
pub(crate) fn answers(server: &Server, all: &[Server]) -> bool {
    match server.role {
        // What it could not write to a full disk it writes when it tries again: only then it has everything that it answered.
        Role::Redis => ask(server.port(), &["INFO", "persistence"])
            .is_ok_and(|says| says.contains("\nloading:0") && says.contains("aof_last_write_status:ok")),
        Role::Sentinel => ask(server.port(), &["PING"]).is_ok_and(|answer| answer == "PONG"),
        Role::Zookeeper => talk(&server.address, "srvr").is_ok_and(|answer| answer.contains("Mode:")),
        Role::Etcd => talk(&server.address, "GET /health HTTP/1.0\r\n\r\n")
            .is_ok_and(|answer| answer.contains("\"health\":\"true\"")),
        Role::Postgres | Role::Pgbouncer => psql(server, all, "SELECT 1").is_ok(),
        Role::Mysql => mariadb(server, "SELECT 1").is_ok(),
    }
}

/// Whether all of them together are as they were at the start: everybody follows whom it should.
pub(crate) fn is_well(engine: &str, all: &[Server]) -> bool {
    let redis = || all.iter().filter(|server| server.role == Role::Redis);
    let says = |server: &Server, command: &[&str]| ask(server.port(), command).unwrap_or_default();
    let replication = |server: &Server| says(server, &["INFO", "replication"]);
    let follow = |count: usize| {
        let primaries = redis().filter(|server| replication(server).matches("state=online").count() == count);
        let followers = redis().filter(|server| replication(server).contains("master_link_status:up"));
        (primaries.count(), followers.count())
    };
    all.iter().all(|server| answers(server, all))
        && match engine {
            "redis-replicas" => follow(2) == (1, 2),
            "redis-sentinel" => {
                let master = |server: &Server| says(server, &["SENTINEL", "MASTER", WATCHED]);
                let knows =
                    |says: &String| says.contains("num-slaves\n2\n") && says.contains("flags\nmaster\n");
                follow(2) == (1, 2)
                    && all
                        .iter()
                        .filter(|server| server.role == Role::Sentinel)
                        .all(|one| knows(&master(one)))
            }
            "redis-cluster" => {
                let ok = |server| says(server, &["CLUSTER", "INFO"]).contains("cluster_state:ok");
                follow(1) == (3, 3) && redis().all(ok)
            }
            "postgres-standby" => primary(all).is_some_and(|server| is_in_step(server, all)),
            _ => true,
        }
}

/// Whether its standby has everything that it has.
pub(crate) fn is_in_step(primary: &Server, all: &[Server]) -> bool {
    let in_step = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    psql(primary, all, in_step).is_ok_and(|count| count.trim() == "1")
}

/// Of two PostgreSQL servers the one that takes writes.
pub(crate) fn primary(all: &[Server]) -> Option<&Server> {
    let takes_writes = |server: &&Server| {
        psql(server, all, "SELECT pg_is_in_recovery()").is_ok_and(|says| says.trim() == "f")
    };
    all.iter().filter(|server| server.role == Role::Postgres).find(takes_writes)
}

/// Whether it is the one that the others follow; `None` if nobody follows anybody.
pub(crate) fn leads(engine: &str, server: &Server, all: &[Server]) -> Option<bool> {
    match (engine, server.role) {
        ("redis-replicas" | "redis-sentinel" | "redis-cluster", Role::Redis) => {
            Some(ask(server.port(), &["ROLE"]).unwrap_or_default().starts_with("master"))
        }
        ("zookeeper-ensemble", _) => {
            Some(talk(&server.address, "srvr").is_ok_and(|answer| answer.contains("Mode: leader")))
        }
        ("etcd-cluster", _) => {
            let metrics = talk(&server.address, "GET /metrics HTTP/1.0\r\n\r\n").unwrap_or_default();
            Some(metrics.contains("\netcd_server_is_leader 1"))
        }
        ("postgres-standby", _) => {
            Some(psql(server, all, "SELECT pg_is_in_recovery()").is_ok_and(|says| says.trim() == "f"))
        }
        _ => None,
    }
}

/// The port of the primary that the first Sentinel who answers names.
pub(crate) fn watched_primary(all: &[Server]) -> Option<u16> {
    let sentinels = all.iter().filter(|server| server.role == Role::Sentinel);
    let mut named = sentinels
        .filter_map(|one| ask(one.port(), &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", WATCHED]).ok())
        .filter_map(|says| says.lines().nth(1)?.parse().ok());
    named.next()
}

/// What it is doing, as it says itself, and the end of its log: for whoever has to find out why nobody gets a lock.
pub(crate) fn doings(server: &Server, all: &[Server]) -> String {
    let says = match server.role {
        Role::Postgres => psql(
            server,
            all,
            "SELECT pid, state, wait_event_type, wait_event, now() - state_change, left(query, 80) \
             FROM pg_stat_activity WHERE backend_type = 'client backend'",
        ),
        Role::Mysql => mariadb(server, "SHOW FULL PROCESSLIST; SHOW ENGINE INNODB STATUS\\G"),
        Role::Redis | Role::Sentinel => ask(server.port(), &["INFO"]).map_err(Into::into),
        Role::Zookeeper => talk(&server.address, "srvr"),
        Role::Etcd => talk(&server.address, "GET /health HTTP/1.0\r\n\r\n"),
        Role::Pgbouncer => Ok(String::new()),
    };
    let says = says.unwrap_or_else(|error| format!("it does not answer: {error:#}"));
    format!("-- {}\n{says}\n-- its log ends with\n{}", server.address, server.last_words())
}

/// Sends a text and reads what comes until the other side ends it.
fn talk(address: &str, text: &str) -> anyhow::Result<String> {
    let address: SocketAddr = address.parse()?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(text.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// One statement on a PostgreSQL server, or on one behind a pooler.
pub(crate) fn psql(server: &Server, all: &[Server], statement: &str) -> anyhow::Result<String> {
    let program = all.iter().find_map(|server| server.beside("psql")).context("there is no psql")?;
    let port = server.port().to_string();
    run(Command::new(program)
        .env("PGCONNECT_TIMEOUT", "3")
        .args(["-X", "-A", "-t", "-h", "127.0.0.1", "-p", &port, "-U", "postgres"])
        .args(["-c", statement, "postgres"]))
}

/// One statement on a MariaDB server.
pub(crate) fn mariadb(server: &Server, statement: &str) -> anyhow::Result<String> {
    let port = format!("--port={}", server.port());
    run(Command::new("mariadb")
        .args(["--no-defaults", "--host=127.0.0.1", &port, "--user=root", "--skip-column-names", "--force"])
        .args(["--connect-timeout=3", "--execute", statement]))
}

pub(crate) fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
