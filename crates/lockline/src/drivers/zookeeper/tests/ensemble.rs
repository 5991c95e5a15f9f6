//! Servers of a test's own.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use zookeeper_client::{Acls, CreateMode};

use super::stepped_clock::SteppedClock;
use crate::drivers::zookeeper::ZookeeperConfig;

const JARS: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-log4j12.jar:/usr/share/java/log4j-1.2.jar:\
     /usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar:\
     /usr/share/java/netty-transport-native-unix-common.jar";

/// ZooKeeper servers in a folder of their own, on free ports, which end with this.
pub(super) struct Ensemble {
    pub(super) ports: Vec<u16>,
    dir: tempfile::TempDir,
    servers: Vec<Option<Child>>,
    /// The wall clock of them all.
    pub(super) clock: SteppedClock,
}

impl Ensemble {
    pub(super) fn start(count: usize) -> Ensemble {
        Ensemble::with(count, "")
    }

    /// With more lines of configuration.
    pub(super) fn with(count: usize, more: &str) -> Ensemble {
        // Free a moment ago; if somebody was faster, a server does not come up and the test says so.
        let free: Vec<_> = (0..count * 3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let all: Vec<u16> = free.iter().map(|port| port.local_addr().unwrap().port()).collect();
        let (ports, peers) = all.split_at(count);
        let members: String = (peers.chunks(2).enumerate())
            .map(|(nth, ports)| format!("server.{}=127.0.0.1:{}:{}\n", nth + 1, ports[0], ports[1]))
            .collect();
        let dir = tempfile::Builder::new().prefix("lockline-zookeeper-").tempdir().unwrap();
        for (nth, port) in ports.iter().enumerate() {
            let folder = dir.path().join(nth.to_string());
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("myid"), (nth + 1).to_string()).unwrap();
            let members = if count > 1 { members.as_str() } else { "" };
            let text = format!(
                "tickTime=200\ninitLimit=100\nsyncLimit=20\nminSessionTimeout=400\nmaxSessionTimeout=60000\n\
                 4lw.commands.whitelist=*\nadmin.enableServer=false\nmaxClientCnxns=0\n\
                 clientPortAddress=127.0.0.1\ndataDir={}\nclientPort={port}\n{members}{more}\n",
                folder.display()
            );
            std::fs::write(folder.join("zoo.cfg"), text).unwrap();
        }
        drop(free);
        let ports = ports.to_vec();
        let clock = SteppedClock::new(dir.path()).unwrap();
        let mut ensemble = Ensemble { ports, dir, servers: (0..count).map(|_| None).collect(), clock };
        (0..count).for_each(|nth| ensemble.up(nth));
        ensemble.until_all_serve();
        ensemble
    }

    /// Starts a server, in the same folder and on the same port as before.
    pub(super) fn up(&mut self, nth: usize) {
        let folder = self.dir.path().join(nth.to_string());
        let log = std::fs::File::options().create(true).append(true).open(folder.join("log")).unwrap();
        let mut java = Command::new("java");
        let child = self
            .clock
            .wound_up(&mut java)
            .args(["-Xmx128m", "-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"])
            .args(["-Dzookeeper.forceSync=no", "-Dznode.container.checkIntervalMs=500", "-cp", JARS])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(folder.join("zoo.cfg"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("java cannot be started: is ZooKeeper installed?");
        self.servers[nth] = Some(child);
    }

    pub(super) fn until_all_serve(&self) {
        let start = Instant::now();
        while !self.ports.iter().all(|port| ask(*port, "srvr").is_ok_and(|said| said.contains("Mode:"))) {
            assert!(start.elapsed() < Duration::from_secs(60), "ZooKeeper does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills a server, as a crash does.
    pub(super) fn kill(&mut self, nth: usize) {
        if let Some(mut server) = self.servers[nth].take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// Stops a server: its connections stay, and nothing comes from them any more.
    pub(super) fn stop(&self, nth: usize) {
        self.signal(nth, Signal::STOP);
    }

    pub(super) fn go_on(&self, nth: usize) {
        self.signal(nth, Signal::CONT);
    }

    fn signal(&self, nth: usize, signal: Signal) {
        let pid = self.servers[nth].as_ref().unwrap().id();
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
    }

    pub(super) fn leader(&self) -> usize {
        let leads = |port: &u16| ask(*port, "srvr").is_ok_and(|said| said.contains("Mode: leader"));
        self.ports.iter().position(leads).expect("somebody leads")
    }

    pub(super) fn config(&self) -> ZookeeperConfig {
        ZookeeperConfig::new(self.ports.iter().map(|port| format!("127.0.0.1:{port}")))
    }

    pub(super) fn url(&self) -> String {
        let hosts: Vec<_> = self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("zookeeper://{}", hosts.join(","))
    }

    /// How many requests and pings its one server has received.
    pub(super) fn received(&self) -> u64 {
        let said = ask(self.ports[0], "srvr").unwrap();
        let line = said.lines().find_map(|line| line.strip_prefix("Received: ")).unwrap();
        line.trim().parse().unwrap()
    }

    /// A client beside the driver's, for what others do.
    pub(super) async fn stranger(&self) -> zookeeper_client::Client {
        let hosts: Vec<_> = self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        zookeeper_client::Client::connect(&hosts.join(",")).await.unwrap()
    }

    /// What the leader's wall clock shows, in milliseconds: as it writes it beside what it makes.
    pub(super) async fn wall_clock_ms(&self) -> i64 {
        let mode = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        self.stranger().await.create("/clock", b"", &mode).await.unwrap().0.ctime
    }
}

impl Drop for Ensemble {
    fn drop(&mut self) {
        (0..self.servers.len()).for_each(|nth| self.kill(nth));
    }
}

fn ask(port: u16, word: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
