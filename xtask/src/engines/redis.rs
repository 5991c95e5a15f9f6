//! Redis servers that keep nothing: one, and quorums of several.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Started, apt};

/// Somebody else may take a port between our finding it free and the server's listening on it.
const PORTS: usize = 5;

/// How long a server may take to answer; it takes a twentieth of a second.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn install() -> Result<()> {
    if apt::has("redis-server") { Ok(()) } else { apt::install(&["redis-server", "redis-tools"]) }
}

pub(super) fn start(home: &Path) -> Result<Started> {
    let (address, server) = start_one(home)?;
    // A new server guards what a former one may have forgotten; here there was none.
    Ok(Started { url: Some(format!("redis://{address}?restart_guard=off")), processes: vec![server] })
}

/// A quorum of five servers that know nothing of each other.
pub(super) fn start_five(home: &Path) -> Result<Started> {
    start_quorum(home, 5)
}

/// The same of three.
pub(super) fn start_three(home: &Path) -> Result<Started> {
    start_quorum(home, 3)
}

fn start_quorum(home: &Path, nodes: usize) -> Result<Started> {
    let (mut addresses, mut started) = (Vec::new(), Started::default());
    for node in 0..nodes {
        let folder = home.join(node.to_string());
        std::fs::create_dir(&folder)?;
        match start_one(&folder) {
            Ok((address, server)) => {
                addresses.push(address.to_string());
                started.processes.push(server);
            }
            Err(error) => {
                for server in &mut started.processes {
                    let _ = server.kill();
                    let _ = server.wait();
                }
                return Err(error);
            }
        }
    }
    started.url = Some(format!("redlock://{}?restart_guard=off", addresses.join(",")));
    Ok(started)
}

fn start_one(home: &Path) -> Result<(SocketAddr, Child)> {
    for _ in 0..PORTS {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut server = spawn(home, address)?;
        match answers(&mut server, address) {
            Ok(true) => return Ok((address, server)),
            Ok(false) => {}
            Err(error) => {
                let _ = server.kill();
                let _ = server.wait();
                return Err(error);
            }
        }
    }
    let log = std::fs::read_to_string(home.join("log")).unwrap_or_default();
    bail!("redis-server ends at once:\n{log}")
}

fn spawn(home: &Path, address: SocketAddr) -> Result<Child> {
    let log = std::fs::File::create(home.join("log"))?;
    Command::new("redis-server")
        .args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()])
        .args(["--save", "", "--appendonly", "no", "--protected-mode", "no", "--daemonize", "no"])
        .arg("--dir")
        .arg(home)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("redis-server")
}

/// Waits until it answers; `false` if it ended.
fn answers(server: &mut Child, address: SocketAddr) -> Result<bool> {
    let start = Instant::now();
    loop {
        // First of all, because another server may be the one that answers at this port.
        if server.try_wait()?.is_some() {
            return Ok(false);
        }
        if pings(address).unwrap_or(false) {
            return Ok(server.try_wait()?.is_none());
        }
        if start.elapsed() > PATIENCE {
            bail!("redis-server does not answer at {address}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn pings(address: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 7];
    stream.read_exact(&mut answer)?;
    Ok(&answer == b"+PONG\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_answers_where_it_says() {
        if !apt::has("redis-server") {
            // `cargo xtask test` installs it before it runs this. Written past the test harness.
            std::io::stderr().write_all(b"left out: there is no redis-server\n").unwrap();
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let mut started = start(home.path()).unwrap();
        let url = started.url.unwrap();
        let address = url.strip_prefix("redis://").and_then(|rest| rest.strip_suffix("?restart_guard=off"));
        assert!(pings(address.unwrap().parse().unwrap()).unwrap());
        started.processes[0].kill().unwrap();
        started.processes[0].wait().unwrap();
    }
}
