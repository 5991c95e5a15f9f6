//! A cluster of real servers, each of which can be killed, stopped and started again.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockline::{Guard, Locks};
use lockline_testkit::setup::queue_up;
use rustix::process::{Pid, Signal, kill_process};

use super::LEASE;

/// Servers of this test's own.
pub(crate) struct Cluster {
    pub(crate) members: Vec<Member>,
    pub(crate) dir: tempfile::TempDir,
}

pub(crate) struct Member {
    pub(crate) clients: u16,
    peers: u16,
    child: Option<Child>,
}

impl Cluster {
    pub(crate) fn start(count: usize) -> Cluster {
        let listeners: Vec<_> = (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<u16> =
            listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        drop(listeners);
        let members =
            ports.chunks(2).map(|two| Member { clients: two[0], peers: two[1], child: None }).collect();
        let mut cluster = Cluster { members, dir: tempfile::tempdir().unwrap() };
        for nth in 0..count {
            cluster.up(nth);
        }
        cluster.until_led();
        cluster
    }

    /// Starts a member, with the data that it had.
    pub(crate) fn up(&mut self, nth: usize) {
        let all: Vec<_> = self
            .members
            .iter()
            .enumerate()
            .map(|(nth, member)| format!("m{nth}=http://127.0.0.1:{}", member.peers))
            .collect();
        let member = &mut self.members[nth];
        let (clients, peers) =
            (format!("http://127.0.0.1:{}", member.clients), format!("http://127.0.0.1:{}", member.peers));
        let log = std::fs::File::create(self.dir.path().join(format!("log-{nth}"))).unwrap();
        let child = Command::new("etcd")
            .args(["--name", &format!("m{nth}"), "--initial-cluster", &all.join(","), "--logger", "zap"])
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500", "--unsafe-no-fsync"])
            .arg("--data-dir")
            .arg(self.dir.path().join(format!("data-{nth}")))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd cannot be started: is it installed?");
        member.child = Some(child);
    }

    /// Kills it, as a crash does.
    pub(crate) fn kill(&mut self, nth: usize) {
        if let Some(mut child) = self.members[nth].child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub(crate) fn signal(&self, nth: usize, signal: Signal) {
        let pid = self.members[nth].child.as_ref().unwrap().id();
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<_> =
            self.members.iter().map(|member| format!("127.0.0.1:{}", member.clients)).collect();
        format!("etcd://{}", hosts.join(","))
    }

    pub(crate) async fn client(&self) -> Locks {
        self.client_with(LEASE).await
    }

    pub(crate) async fn client_with(&self, lease: Duration) -> Locks {
        Locks::builder().lease(lease).connect(&self.url()).await.unwrap()
    }

    /// Holders of their own locks, and those who wait behind them: so many that some talk to each member.
    pub(crate) async fn crowd(&self) -> Vec<(Guard, tokio::task::JoinHandle<lockline::Result<Guard>>)> {
        let mut crowd = Vec::new();
        for nth in 0..8 {
            let (holder, waiter) = (self.client().await, self.client().await);
            let held = holder.mutex(format!("crowd/{nth}")).lock().await.unwrap();
            crowd.push((held, queue_up(&waiter, &format!("crowd/{nth}"), 1).await));
        }
        crowd
    }

    pub(crate) fn until_led(&self) {
        let start = Instant::now();
        while self.leader().is_none() {
            assert!(start.elapsed() < Duration::from_secs(30), "the cluster has no leader");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        self.members.iter().position(|member| {
            let status = status(member.clients).unwrap_or_default();
            let field = |name: &str| status.get(name).and_then(|id| id.as_str()).map(str::to_owned);
            let own = status.get("header").and_then(|header| header.get("member_id"));
            field("leader").is_some() && field("leader").as_deref() == own.and_then(|id| id.as_str())
        })
    }

    pub(crate) fn ctl(&self, args: &[&str]) -> String {
        let hosts = self.url().trim_start_matches("etcd://").to_owned();
        let done = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &hosts])
            .args(args)
            .output()
            .unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for nth in 0..self.members.len() {
            self.kill(nth);
        }
    }
}

fn status(port: u16) -> Option<serde_json::Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    write!(stream, "POST /v3/maintenance/status HTTP/1.0\r\nHost: h\r\nContent-Length: 2\r\n\r\n{{}}")
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split("\r\n\r\n").nth(1)?).ok()
}
