//! A server of a test's own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::drivers::redis::RedisConfig;

/// A `redis-server` in a folder of its own, on a free port, which ends with this.
pub(crate) struct Server {
    pub(crate) port: u16,
    dir: tempfile::TempDir,
    options: Vec<String>,
    child: Option<Child>,
}

impl Server {
    pub(crate) fn start(options: &[&str]) -> Server {
        // Free a moment ago; if somebody was faster, the server does not come up and the test says so.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let dir = tempfile::Builder::new().prefix("lockline-redis-").tempdir().unwrap();
        let mut server = Server { port, dir, options, child: None };
        server.up();
        server
    }

    /// Starts it, in the same folder and on the same port as before.
    pub(crate) fn up(&mut self) {
        let port = self.port.to_string();
        // Named by a run that has another one, such as Valkey's.
        let program = std::env::var_os("LOCKLINE_TEST_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let child = Command::new(program)
            .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"])
            .arg("--dir")
            .arg(self.dir.path())
            .args(&self.options)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server cannot be started: is it installed?");
        self.child = Some(child);
        let start = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(10), "redis-server does not come up");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The same with other options.
    pub(crate) fn up_with(&mut self, options: &[&str]) {
        self.options = options.iter().map(|&option| option.to_owned()).collect();
        self.up();
    }

    /// Kills it, as a crash does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Its process, as long as it runs.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Stops it, as a machine does that hangs; or lets it go on.
    pub(crate) fn pause(&self, pause: bool) {
        Server::signal(self.pid(), pause);
    }

    /// The same for the server of this process.
    pub(crate) fn signal(pid: u32, pause: bool) {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = if pause { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_raw(pid.cast_signed()).expect("a process"), signal).unwrap();
    }

    pub(crate) fn config(&self) -> RedisConfig {
        RedisConfig::new("127.0.0.1", self.port)
    }

    /// What it answers to one command, whatever state it is in.
    pub(crate) fn says(&self, command: &str) -> String {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    }

    /// A connection beside the driver's, for what an operator does.
    pub(crate) async fn operator(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", self.port)).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
