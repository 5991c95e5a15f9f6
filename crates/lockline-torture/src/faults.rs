//! What can be done to a server of each kind, within what its engine's row of docs/guarantees.md covers.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::probes::{self, mariadb, psql, run};
use crate::redis_servers::ask;
use crate::servers::{Role, Server};

/// Something that is done to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It answers nobody, and does not know it.
    Stop,
    /// Killed, and started again with everything that it had answered.
    KillAndKeep,
    /// Killed, and started again with nothing.
    KillAndLose,
    /// Its scripts are forgotten.
    FlushScripts,
    /// It ends all its sessions.
    KillSessions,
    /// Its wall clock is set, by so many milliseconds.
    StepClock(i64),
    /// Killed, and its standby takes over.
    Promote,
    /// It has no memory for anything new.
    RunOutOfMemory,
    /// Its disk has room for so many bytes and no more.
    FillDisk(u64),
}

/// One that fits the engine.
pub(crate) fn choose(
    engine: &str,
    server: &Server,
    leads: Option<bool>,
    chance: &mut fastrand::Rng,
) -> Fault {
    let mut possible = vec![Fault::Stop, Fault::Stop];
    match server.role {
        // These come back in a moment.
        Role::Redis | Role::Sentinel | Role::Etcd | Role::Pgbouncer => {
            possible.extend([kill(engine, server, chance); 3]);
        }
        Role::Zookeeper | Role::Postgres | Role::Mysql => possible.push(Fault::KillAndKeep),
    }
    match server.role {
        Role::Redis => possible.extend([Fault::FlushScripts, Fault::KillSessions, Fault::KillSessions]),
        Role::Postgres | Role::Mysql => possible.extend([Fault::KillSessions; 3]),
        _ => {}
    }
    if engine == "postgres-standby" {
        possible.push(Fault::Promote);
    }
    // Who only copies what another one has takes it whatever memory it needs.
    if server.role == Role::Redis && leads != Some(false) {
        possible.extend([Fault::RunOutOfMemory; 2]);
    }
    if server.needs_disk() {
        possible.extend([Fault::FillDisk(spare(chance)); 3]);
    }
    if server.has_clock() {
        possible.extend([step(server, chance); 2]);
    }
    possible[chance.usize(..possible.len())]
}

/// Redis may forget: the restart guard is there for that. Its row promises the same with an append-only file. What
/// copies to others, or is part of a cluster, is started empty: it gets back what the others have.
fn kill(engine: &str, server: &Server, chance: &mut fastrand::Rng) -> Fault {
    let one_server = engine == "redis" || engine.starts_with("redlock");
    match server.role {
        Role::Redis if !one_server || (server.forgetful && chance.bool()) => Fault::KillAndLose,
        _ => Fault::KillAndKeep,
    }
}

/// The clocks of sessions in ZooKeeper have nothing to do with the wall clock, which may show anything. Elsewhere leases
/// end by it: it may be set back as far as one likes, and forward by less than the margin (22 ms of 2 s). MySQL's is set back
/// by less than a lease: it commits nothing, for anybody, for about as long as its clock was set back (9.7.4, by plain updates: 5 s
/// for 5 s, 66 s for 60 s), and a run would see nothing else.
fn step(server: &Server, chance: &mut fastrand::Rng) -> Fault {
    let far = 10_i64.pow(chance.u32(1..7));
    let back = -chance.i64(1..=far);
    Fault::StepClock(match server.role {
        Role::Zookeeper if chance.bool() => -back,
        Role::Zookeeper => back,
        _ if chance.u8(..4) == 0 => chance.i64(1..=8),
        _ if server.is_mysql() => -chance.i64(1..=500),
        _ if server.forgetful => -chance.i64(1..=8),
        _ => back,
    })
}

/// What is left on a full disk: mostly nothing, and sometimes as much as lets it end in the middle of something.
pub(crate) fn spare(chance: &mut fastrand::Rng) -> u64 {
    if chance.bool() { 0 } else { chance.u64(..256 << 10) }
}

/// Takes a Redis server's memory away, or gives it back.
pub(crate) fn limit_memory(server: &Server, limited: bool) -> anyhow::Result<()> {
    let says = ask(server.port(), &["CONFIG", "SET", "maxmemory", if limited { "1" } else { "0" }])?;
    ensure!(says == "OK", "{}: {says}", server.address);
    Ok(())
}

/// How it is counted.
pub(crate) fn name(fault: Fault, leads: Option<bool>) -> &'static str {
    match (fault, leads) {
        (Fault::Stop, None) => "server stopped",
        (Fault::Stop, Some(true)) => "leader stopped",
        (Fault::Stop, Some(false)) => "follower stopped",
        (Fault::KillAndKeep, None) => "server killed, data kept",
        (Fault::KillAndLose, None) => "server killed, data lost",
        (Fault::KillAndKeep | Fault::KillAndLose, Some(true)) => "leader killed",
        (Fault::KillAndKeep | Fault::KillAndLose, Some(false)) => "follower killed",
        (Fault::FlushScripts, _) => "scripts flushed",
        (Fault::KillSessions, _) => "sessions killed",
        (Fault::StepClock(by), _) if by < 0 => "clock set back",
        (Fault::StepClock(_), _) => "clock set forward",
        (Fault::Promote, _) => "standby promoted",
        (Fault::RunOutOfMemory, _) => "server out of memory",
        (Fault::FillDisk(_), _) => "disk full",
    }
}

pub(crate) fn kill_sessions(server: &Server, all: &[Server]) -> anyhow::Result<()> {
    match server.role {
        Role::Redis => {
            for kind in ["normal", "pubsub"] {
                ask(server.port(), &["CLIENT", "KILL", "TYPE", kind])?;
            }
        }
        Role::Postgres => drop(psql(
            server,
            all,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        )?),
        Role::Mysql => {
            // Not the table of the same name: MySQL cannot show it while a statement with binary parameters runs (3854).
            let list = mariadb(server, "SHOW PROCESSLIST")?;
            let others = list
                .lines()
                .filter(|line| !line.contains("SHOW PROCESSLIST") && !line.contains("\tDaemon\t"));
            let ids = others.filter_map(|line| line.split('\t').next()?.parse::<u64>().ok());
            // Some may have ended by themselves.
            let _ = mariadb(server, &ids.map(|id| format!("KILL {id};")).collect::<String>());
        }
        _ => {}
    }
    Ok(())
}

/// Has a Redis server write an append-only file from now on, also when it is started again.
///
/// Before each answer: with anything else its row promises that nobody gets in for a while after a restart, which is what a server
/// that forgets is for.
pub(crate) fn keep_data(server: &mut Server) -> anyhow::Result<()> {
    let port = server.port();
    ask(port, &["CONFIG", "SET", "appendfsync", "always"])?;
    ask(port, &["CONFIG", "SET", "appendonly", "yes"])?;
    let start = Instant::now();
    loop {
        let says = ask(port, &["INFO", "persistence"])?;
        let done = [
            "aof_enabled:1",
            "aof_rewrite_in_progress:0",
            "aof_rewrite_scheduled:0",
            "aof_last_bgrewrite_status:ok",
        ];
        if done.iter().all(|part| says.contains(part)) {
            break;
        }
        ensure!(start.elapsed() < Duration::from_secs(20), "the append-only file is not written");
        std::thread::sleep(Duration::from_millis(5));
    }
    server.set_option("--appendonly", &["yes"]);
    server.set_option("--appendfsync", &["always"]);
    server.durable = true;
    Ok(())
}

/// Takes the data of a killed Redis server away. It says that it keeps none when it is started again.
pub(crate) fn lose_data(server: &mut Server) {
    let _ = std::fs::remove_dir_all(server.folder.join("appendonlydir"));
    let _ = std::fs::remove_file(server.folder.join("dump.rdb"));
    server.set_option("--appendonly", &["no"]);
    server.durable = false;
}

/// The standby of two PostgreSQL servers takes over, and the old primary, which was killed, becomes its standby.
pub(crate) fn promote(all: &mut [Server], old: usize) -> anyhow::Result<()> {
    let new = 1 - old;
    all[old].kill()?;
    psql(&all[new], all, "SELECT pg_promote()")?;
    // Alone, or it would wait for a standby that is not there.
    psql(&all[new], all, "ALTER SYSTEM RESET synchronous_standby_names")?;
    psql(&all[new], all, "SELECT pg_reload_conf()")?;
    let data = all[old].folder.clone();
    all[old].empty()?;
    let program = all[new].beside("pg_basebackup").context("there is no pg_basebackup")?;
    let from = format!("host=127.0.0.1 port={} user=postgres application_name=standby", all[new].port());
    run(all[new]
        .as_its_user(&program)
        .current_dir("/")
        .args(["-c", "fast", "-X", "stream", "-R", "-N", "-C", "-S", "standby", "-d", &from, "-D"])
        .arg(&data))?;
    std::fs::set_permissions(&data, Permissions::from_mode(0o700))?;
    // What marks the other's sockets as taken was copied along.
    for file in std::fs::read_dir(&data)?.flatten() {
        if file.file_name().to_string_lossy().starts_with(".s.PGSQL.") {
            std::fs::remove_file(file.path())?;
        }
    }
    // Its sockets must not be where the other's are.
    let settings = data.join("postgresql.conf");
    let text = std::fs::read_to_string(&settings)?;
    std::fs::write(&settings, format!("{text}\nunix_socket_directories='{}'\n", data.display()))?;
    all[old].start()?;
    psql(&all[new], all, "ALTER SYSTEM SET synchronous_standby_names = 'standby'")?;
    psql(&all[new], all, "SELECT pg_reload_conf()")?;
    let start = Instant::now();
    while !probes::is_in_step(&all[new], all) {
        ensure!(start.elapsed() < Duration::from_secs(60), "the new standby does not follow");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
