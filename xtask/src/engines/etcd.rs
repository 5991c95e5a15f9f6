//! One etcd server, or three that are a cluster.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::launch::Launch;
use super::toolchain::{Toolchain, version_in};
use super::{Started, apt};

/// Somebody else may take a port between our finding it free and the server's listening on it.
const PORTS: usize = 5;

/// How long they may take to have a leader; it takes half a second.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn install() -> Result<()> {
    let missing = [("etcd", "etcd-server"), ("etcdctl", "etcd-client")];
    let missing: Vec<_> =
        missing.iter().filter(|(program, _)| !apt::has(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() { Ok(()) } else { apt::install(&missing) }
}

pub(super) fn start(tools: &Toolchain, home: &Path) -> Result<Started> {
    start_members(tools, home, 1)
}

pub(super) fn start_cluster(tools: &Toolchain, home: &Path) -> Result<Started> {
    start_members(tools, home, 3)
}

/// Where a member listens, for clients and for the others.
#[derive(Debug)]
struct Member {
    clients: SocketAddr,
    peers: SocketAddr,
}

fn start_members(tools: &Toolchain, home: &Path, count: usize) -> Result<Started> {
    for attempt in 0..PORTS {
        let home = home.join(format!("attempt-{attempt}"));
        std::fs::create_dir(&home)?;
        let members = free_ports(count)?;
        let (mut processes, launches) = spawn_all(tools, &home, &members)?;
        if answer(&mut processes, &members) {
            let hosts: Vec<_> = members.iter().map(|member| member.clients.to_string()).collect();
            let url = Some(format!("etcd://{}", hosts.join(",")));
            let version = version_in(&get(members[0].clients, "/version")?).unwrap_or_default();
            return Ok(Started { url, processes, launches, version });
        }
        for process in &mut processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
    let log = home.join(format!("attempt-{}", PORTS - 1)).join("log-0");
    bail!("etcd does not come up:\n{}", std::fs::read_to_string(log).unwrap_or_default())
}

fn free_ports(count: usize) -> Result<Vec<Member>> {
    // All at once, so that they differ.
    let listeners =
        (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<Vec<_>>>()?;
    let ports = listeners.iter().map(TcpListener::local_addr).collect::<std::io::Result<Vec<_>>>()?;
    Ok(ports.chunks(2).map(|two| Member { clients: two[0], peers: two[1] }).collect())
}

fn spawn_all(tools: &Toolchain, home: &Path, members: &[Member]) -> Result<(Vec<Child>, Vec<Launch>)> {
    let program = tools.program("etcd")?;
    let cluster: Vec<_> =
        members.iter().enumerate().map(|(nth, member)| format!("m{nth}=http://{}", member.peers)).collect();
    let one = |(nth, member): (usize, &Member)| -> Result<(Child, Launch)> {
        let log_path = home.join(format!("log-{nth}"));
        let log = std::fs::File::create(&log_path)?;
        let data = home.join(format!("data-{nth}"));
        let (clients, peers) = (format!("http://{}", member.clients), format!("http://{}", member.peers));
        let mut command = Command::new(&program);
        command
            .args(["--name", &format!("m{nth}"), "--initial-cluster", &cluster.join(",")])
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster-state", "new", "--logger", "zap"])
            // Short enough that a lease of a second is one, and that a new leader is there soon.
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            // A killed server keeps what it has written; only a power loss tells the difference.
            .arg("--unsafe-no-fsync")
            .arg("--data-dir")
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let launch = Launch::of("etcd", member.clients.port(), &command, &data, &log_path);
        Ok((command.spawn().context("etcd")?, launch))
    };
    members.iter().enumerate().map(one).collect()
}

/// Waits until all have a leader; `false` if one ended.
fn answer(processes: &mut [Child], members: &[Member]) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if processes.iter_mut().any(|process| !matches!(process.try_wait(), Ok(None))) {
            return false;
        }
        if members.iter().all(|member| is_healthy(member.clients).unwrap_or(false)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// It says so only with a leader.
fn is_healthy(address: SocketAddr) -> std::io::Result<bool> {
    Ok(get(address, "/health")?.contains("\"health\":\"true\""))
}

/// What it answers, without its head.
fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_servers_are_a_cluster() {
        if !apt::has("etcd") {
            // `cargo xtask test` installs it before it runs this. Written past the test harness.
            std::io::stderr().write_all(b"left out: there is no etcd\n").unwrap();
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let mut started = start_cluster(&Toolchain::system(), home.path()).unwrap();
        let hosts = started.url.as_deref().and_then(|url| url.strip_prefix("etcd://")).unwrap();
        assert_eq!(hosts.split(',').count(), 3);
        for process in &mut started.processes {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}
