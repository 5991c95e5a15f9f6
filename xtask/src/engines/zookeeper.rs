//! ZooKeeper: one server, or an ensemble of three. They keep their data in memory for as long as they run.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::launch::Launch;
use super::toolchain::{Toolchain, version_in};
use super::{Started, apt};

/// Debian's server without its wrapper, which would bring a whole desktop's Java along.
const PACKAGES: [&str; 4] =
    ["libzookeeper-java", "liblog4j1.2-java", "libjline2-java", "openjdk-17-jre-headless"];
const JARS: [&str; 3] =
    ["/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-log4j12.jar", "/usr/share/java/log4j-1.2.jar"];

/// How long a server may take to serve: a Java machine on a busy one takes several seconds.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn install() -> Result<()> {
    let is_there = apt::has("java") && JARS.iter().all(|jar| Path::new(jar).is_file());
    if is_there { Ok(()) } else { apt::install(&PACKAGES) }
}

/// One server.
pub(super) fn start(tools: &Toolchain, home: &Path) -> Result<Started> {
    ensemble(tools, home, 1)
}

/// Three that elect one of them.
pub(super) fn start_three(tools: &Toolchain, home: &Path) -> Result<Started> {
    ensemble(tools, home, 3)
}

/// The version that the distribution's package has, if it is installed: its file is a link to the one that is used.
pub(super) fn packaged_version() -> Option<String> {
    let files = std::fs::read_dir("/usr/share/java").ok()?.filter_map(Result::ok);
    let is_server = |name: &String| {
        name.strip_prefix("zookeeper-").is_some_and(|rest| rest.starts_with(|of: char| of.is_ascii_digit()))
    };
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    version_in(&names.into_iter().find(is_server)?)
}

/// What the server is made of.
fn class_path(tools: &Toolchain) -> String {
    if tools.is_system() { JARS.join(":") } else { format!("{}/*", tools.root().display()) }
}

fn ensemble(tools: &Toolchain, home: &Path, count: usize) -> Result<Started> {
    // Held until all are found, so that no port is found twice.
    let free: Vec<TcpListener> =
        (0..count * 3).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<_>>()?;
    let ports: Vec<u16> =
        free.iter().map(|port| Ok(port.local_addr()?.port())).collect::<std::io::Result<_>>()?;
    drop(free);
    let (clients, peers) = ports.split_at(count);
    let members: String = match count {
        1 => String::new(),
        _ => peers
            .chunks(2)
            .enumerate()
            .map(|(index, ports)| format!("server.{}=127.0.0.1:{}:{}\n", index + 1, ports[0], ports[1]))
            .collect(),
    };
    let mut started = Started::default();
    for (index, port) in clients.iter().enumerate() {
        let folder = home.join((index + 1).to_string());
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join("myid"), (index + 1).to_string())?;
        std::fs::write(folder.join("zoo.cfg"), configuration(&folder, *port, &members))?;
        std::fs::write(folder.join("log4j.properties"), LOG)?;
        let (process, launch) = spawn(tools, &folder, *port)?;
        started.processes.push(process);
        started.launches.push(launch);
    }
    let addresses: Vec<SocketAddr> =
        clients.iter().map(|port| SocketAddr::from(([127, 0, 0, 1], *port))).collect();
    if let Err(error) = all_serve(&mut started.processes, &addresses) {
        for server in &mut started.processes {
            let _ = server.kill();
            let _ = server.wait();
        }
        let log = std::fs::read_to_string(home.join("1/log")).unwrap_or_default();
        return Err(error.context(log));
    }
    let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    started.url = Some(format!("zookeeper://{}", hosts.join(",")));
    started.version = version_in(&asked(addresses[0], "srvr")?).unwrap_or_default();
    Ok(started)
}

/// A tick of 200 ms, so that short sessions end soon; sessions as long as the longest lease of a test asks for; empty locks
/// vanish after a second.
fn configuration(folder: &Path, port: u16, members: &str) -> String {
    format!(
        "tickTime=200\ninitLimit=100\nsyncLimit=50\nminSessionTimeout=400\nmaxSessionTimeout=600000\n\
         4lw.commands.whitelist=*\nadmin.enableServer=false\nmaxClientCnxns=0\nclientPortAddress=127.0.0.1\n\
         dataDir={}\nclientPort={port}\n{members}",
        folder.display()
    )
}

const LOG: &str = "log4j.rootLogger=WARN, CONSOLE\n\
    log4j.appender.CONSOLE=org.apache.log4j.ConsoleAppender\n\
    log4j.appender.CONSOLE.layout=org.apache.log4j.PatternLayout\n\
    log4j.appender.CONSOLE.layout.ConversionPattern=%d %p %c - %m%n\n";

fn spawn(tools: &Toolchain, folder: &Path, port: u16) -> Result<(Child, Launch)> {
    let log_path = folder.join("log");
    let log = std::fs::File::create(&log_path)?;
    let class_path = format!("{}:{}", folder.display(), class_path(tools));
    let mut command = Command::new("java");
    command
        .args(["-Xmx256m", "-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"])
        .args(["-Dzookeeper.forceSync=no", "-Dznode.container.checkIntervalMs=1000"])
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        .args(["-cp", &class_path, "org.apache.zookeeper.server.quorum.QuorumPeerMain"])
        .arg(folder.join("zoo.cfg"))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let launch = Launch::of("zookeeper", port, &command, folder, &log_path);
    Ok((command.spawn().context("java")?, launch))
}

fn all_serve(servers: &mut [Child], addresses: &[SocketAddr]) -> Result<()> {
    let start = Instant::now();
    while !addresses.iter().all(|address| serves(*address).unwrap_or(false)) {
        if servers.iter_mut().any(|server| !matches!(server.try_wait(), Ok(None))) {
            bail!("a ZooKeeper server ends at once");
        }
        if start.elapsed() > PATIENCE {
            bail!("ZooKeeper does not serve at {addresses:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Whether it serves: without a quorum it answers, but names no mode.
fn serves(address: SocketAddr) -> std::io::Result<bool> {
    Ok(asked(address, "srvr")?.contains("Mode:"))
}

/// What it answers to one of its four-letter words.
fn asked(address: SocketAddr, word: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_serves_where_it_says() {
        if !apt::has("java") || !Path::new(JARS[0]).is_file() {
            // `cargo xtask test` installs it before it runs this. Written past the test harness.
            std::io::stderr().write_all(b"left out: there is no ZooKeeper\n").unwrap();
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let mut started = start(&Toolchain::system(), home.path()).unwrap();
        let url = started.url.unwrap();
        let address = url.strip_prefix("zookeeper://").unwrap();
        assert!(serves(address.parse().unwrap()).unwrap());
        started.processes[0].kill().unwrap();
        started.processes[0].wait().unwrap();
    }
}
