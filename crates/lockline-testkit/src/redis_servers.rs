//! Redis servers of one's own: one, with TLS, with replicas, watched by Sentinels, as a cluster.
//!
//! Nothing but the standard library, because `xtask` takes this file along: the servers of `cargo xtask test` and those that
//! failover tests kill are started in the same way.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to answer, and servers to find each other; they take a second or two.
const PATIENCE: Duration = Duration::from_secs(30);
/// Somebody else may take a port between our finding it free and the server's listening on it.
const PORTS: usize = 5;
/// The name under which Sentinels watch.
pub const WATCHED: &str = "main";

/// Which program servers are, if not the `redis-server` of this machine: a Valkey's, such as `cargo xtask test` has.
/// `redis-cli` or `valkey-cli` is beside it.
pub const VARIABLE: &str = "LOCKLINE_TEST_REDIS_SERVER";

/// The programs of one release of Redis, or of Valkey.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `redis-server`, or what is like it.
    pub server: PathBuf,
    /// `redis-cli`, or what is like it.
    pub cli: PathBuf,
}

impl Programs {
    /// Those of this run.
    pub fn of_this_run() -> Programs {
        match std::env::var_os(VARIABLE) {
            None => Programs { server: "redis-server".into(), cli: "redis-cli".into() },
            Some(server) => {
                let server = PathBuf::from(server);
                let name =
                    server.file_name().unwrap_or_default().to_string_lossy().replace("-server", "-cli");
                Programs { cli: server.with_file_name(name), server }
            }
        }
    }
}

/// A server in a folder of its own. It ends with this, unless it was let go.
#[derive(Debug)]
pub struct Server {
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    programs: Programs,
    home: PathBuf,
    options: Vec<String>,
    /// How `redis-cli` reaches it, beside the port.
    cli: Vec<String>,
    child: Option<Child>,
}

impl Programs {
    /// Starts one server with these options, in a new folder under `home`.
    ///
    /// # Errors
    /// If it does not answer in time; with its log.
    pub fn start(&self, home: &Path, name: &str, options: &[&str]) -> Result<Server> {
        self.start_with(home, name, options, &[])
    }

    fn start_with(&self, home: &Path, name: &str, options: &[&str], cli: &[&str]) -> Result<Server> {
        let home = home.join(name);
        std::fs::create_dir_all(&home)?;
        let owned = |all: &[&str]| all.iter().map(|&one| one.to_owned()).collect();
        let (options, cli, programs) = (owned(options), owned(cli), self.clone());
        let mut server = Server { port: 0, programs, home, options, cli, child: None };
        for _ in 0..PORTS {
            server.port = free_port()?;
            if server.up().is_ok() {
                return Ok(server);
            }
        }
        let log = std::fs::read_to_string(server.home.join("log")).unwrap_or_default();
        Err(Error::other(format!("{} does not come up:\n{log}", self.server.display())))
    }
}

impl Server {
    /// Starts one with these options, in a new folder under `home`.
    ///
    /// # Errors
    /// If it does not answer in time; with its log.
    pub fn start(home: &Path, name: &str, options: &[&str]) -> Result<Server> {
        Programs::of_this_run().start(home, name, options)
    }

    /// Starts it again, in the same folder and on the same port as before.
    ///
    /// # Errors
    /// If it does not answer in time.
    pub fn up(&mut self) -> Result<()> {
        let log = std::fs::File::create(self.log())?;
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn()?);
        let start = Instant::now();
        loop {
            // First of all, because another server may be the one that answers at this port.
            if let Some(child) = &mut self.child
                && let Some(status) = child.try_wait()?
            {
                self.child = None;
                return Err(Error::other(format!("redis-server ended: {status}")));
            }
            if self.cli(&["PING"]).is_ok_and(|answer| answer == "PONG" || answer.contains("NOAUTH")) {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                self.kill();
                return Err(Error::new(ErrorKind::TimedOut, "redis-server does not answer"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its folder.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Where it writes what it says.
    pub fn log(&self) -> PathBuf {
        self.home.join("log")
    }

    /// What starts it.
    pub fn command(&self) -> Command {
        let port = self.port.to_string();
        let encrypted = self.options.iter().any(|option| option == "--tls-cert-file");
        let (plain_port, tls_port) = if encrypted { ("0", port.as_str()) } else { (port.as_str(), "0") };
        let mut command = Command::new(&self.programs.server);
        if self.home.join("sentinel.conf").exists() {
            command.arg(self.home.join("sentinel.conf")).arg("--sentinel");
        } else {
            command.args(["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]);
        }
        command.args(["--bind", "127.0.0.1", "--port", plain_port, "--protected-mode", "no"]);
        if encrypted {
            command.args(["--tls-port", tls_port]);
        }
        command.args(["--daemonize", "no"]).arg("--dir").arg(&self.home).args(&self.options);
        command
    }

    /// What the server answers to a command, as `redis-cli` prints it.
    ///
    /// # Errors
    /// If there is no answer within a few seconds.
    pub fn cli(&self, command: &[&str]) -> Result<String> {
        if self.cli.is_empty() {
            return ask(self.port, command);
        }
        let port = self.port.to_string();
        let output =
            Command::new(&self.programs.cli).args(["-p", &port]).args(&self.cli).args(command).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Kills it, as a crash does.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // A stopped process is killed as well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops it in its tracks: it answers nobody, and does not know it.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn pause(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// Lets it go on after a pause.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn go_on(&self) -> Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let Some(child) = &self.child else { return Err(Error::other("it does not run")) };
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status()?;
        if sent.success() { Ok(()) } else { Err(Error::other("the signal was not sent")) }
    }

    /// Whoever takes the process has to end it.
    pub fn let_go(mut self) -> Option<Child> {
        self.child.take()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> Result<u16> {
    // A cluster's nodes talk to each other ten thousand ports higher.
    loop {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        if port < 55_000 && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok() {
            return Ok(port);
        }
    }
}

/// One command on a connection of its own; the answer as text, what is nested in it in lines.
///
/// # Errors
/// If there is no answer within a few seconds.
pub fn ask(port: u16, command: &[&str]) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    let mut text = format!("*{}\r\n", command.len());
    for word in command {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(text.as_bytes())?;
    let mut lines = Vec::new();
    read_answer(&mut stream, &mut lines)?;
    Ok(lines.join("\n"))
}

fn read_answer(stream: &mut TcpStream, lines: &mut Vec<String>) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).trim_end().to_owned();
    let (kind, rest) = head.split_at(1);
    let count = rest.parse::<i64>().ok().and_then(|count| usize::try_from(count).ok());
    match (kind, count) {
        ("*", Some(count)) => (0..count).try_for_each(|_| read_answer(stream, lines))?,
        ("$", Some(length)) => {
            let mut bytes = vec![0; length + 2];
            stream.read_exact(&mut bytes)?;
            lines.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
        }
        ("$" | "*", None) => lines.push(String::new()),
        _ => lines.push(rest.to_owned()),
    }
    Ok(())
}

fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_so().unwrap_or(false) {
        if start.elapsed() > PATIENCE {
            return Err(Error::new(ErrorKind::TimedOut, format!("not in time: {what}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

impl Programs {
    /// A server that speaks TLS only, asks for a certificate, and knows only a user with the rights of `access_list` (the words
    /// after `ACL SETUSER`).
    ///
    /// # Errors
    /// If it cannot be started, or there is no `openssl`.
    pub fn encrypted(&self, home: &Path, access_list: &[String]) -> Result<(Server, String)> {
        let certificates = home.join("certificates");
        make_certificates(&certificates)?;
        let file = |name: &str| certificates.join(name).display().to_string();
        let (ca, cert, key) = (file("ca.pem"), file("cert.pem"), file("key.pem"));
        let options = ["--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
        let cli = ["--tls", "--cacert", &ca, "--cert", &cert, "--key", &key];
        let server = self.start_with(home, "server", &options, &cli)?;
        let words: Vec<&str> =
            ["ACL", "SETUSER"].into_iter().chain(access_list.iter().map(String::as_str)).collect();
        for command in [words.as_slice(), &["ACL", "SETUSER", "default", "off"]] {
            let answer = server.cli(command)?;
            if answer != "OK" {
                return Err(Error::other(format!("{command:?}: {answer}")));
            }
        }
        let options = format!("?ca={ca}&cert={cert}&key={key}");
        Ok((server, options))
    }
}

/// A server that speaks TLS only, asks for a certificate, and knows only a user with the rights of `access_list` (the words
/// after `ACL SETUSER`).
///
/// # Errors
/// If it cannot be started, or there is no `openssl`.
pub fn encrypted(home: &Path, access_list: &[String]) -> Result<(Server, String)> {
    Programs::of_this_run().encrypted(home, access_list)
}

/// An authority, and one certificate by it for this machine, which servers and clients show alike.
fn make_certificates(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let openssl = |args: &str| {
        let output = Command::new("openssl").args(args.split_whitespace()).current_dir(folder).output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::other(format!("openssl {args}: {}", String::from_utf8_lossy(&output.stderr))))
    };
    std::fs::write(
        folder.join("leaf.conf"),
        "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n",
    )?;
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!(
        "req -x509 {new_key} -keyout ca-key.pem -out ca.pem -days 30 -subj /CN=lockline-test-ca"
    ))?;
    openssl(&format!("req {new_key} -keyout key.pem -out request.pem -subj /CN=lockline-test"))?;
    openssl(
        "x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -out cert.pem -days 30 -extfile leaf.conf",
    )
}

impl Programs {
    /// A primary with so many replicas, which have its data.
    ///
    /// # Errors
    /// If they do not come together in time.
    pub fn replicated(&self, home: &Path, replicas: usize) -> Result<Vec<Server>> {
        let mut servers = vec![self.start(home, "server-0", &[])?];
        for number in 1..=replicas {
            let replica = self.start(home, &format!("server-{number}"), &[])?;
            replica.cli(&["REPLICAOF", "127.0.0.1", &servers[0].port.to_string()])?;
            servers.push(replica);
        }
        until("replicas follow", || {
            let followed = servers[0].cli(&["INFO", "replication"])?.matches("state=online").count();
            let mut follow = servers[1..].iter().map(|replica| replica.cli(&["INFO", "replication"]));
            Ok(followed == replicas
                && follow.all(|says| says.is_ok_and(|says| says.contains("link_status:up"))))
        })?;
        Ok(servers)
    }
}

/// A primary with so many replicas, which have its data.
///
/// # Errors
/// If they do not come together in time.
pub fn replicated(home: &Path, replicas: usize) -> Result<Vec<Server>> {
    Programs::of_this_run().replicated(home, replicas)
}

/// How long servers may be silent before another takes their place: for tests that kill them, and for those that do not
/// and run on machines that are busy with other things.
pub const QUICK: Duration = Duration::from_millis(500);
/// See [`QUICK`].
pub const PATIENT: Duration = Duration::from_secs(20);

impl Programs {
    /// A primary with two replicas, and three Sentinels that watch it as [`WATCHED`].
    ///
    /// # Errors
    /// If they do not come together in time.
    pub fn watched(&self, home: &Path, silent_for: Duration) -> Result<(Vec<Server>, Vec<Server>)> {
        let servers = self.replicated(home, 2)?;
        let silent_ms = silent_for.as_millis();
        let mut sentinels = Vec::new();
        for number in 0..3 {
            let name = format!("sentinel-{number}");
            let folder = home.join(&name);
            std::fs::create_dir_all(&folder)?;
            let port = servers[0].port;
            std::fs::write(
                folder.join("sentinel.conf"),
                format!(
                    "sentinel monitor {WATCHED} 127.0.0.1 {port} 2\n\
                     sentinel down-after-milliseconds {WATCHED} {silent_ms}\n\
                     sentinel failover-timeout {WATCHED} 3000\n\
                     sentinel parallel-syncs {WATCHED} 2\n"
                ),
            )?;
            let sentinel = self.start(home, &name, &[])?;
            // Not there in every version; without it a failover only takes longer.
            let quick =
                ["info-period", "200", "publish-period", "200", "ask-period", "100", "ping-period", "100"];
            let debug =
                ["SENTINEL", "DEBUG"].iter().chain(&quick).chain(&["election-timeout", "1000"]).copied();
            sentinel.cli(&debug.collect::<Vec<_>>())?;
            sentinels.push(sentinel);
        }
        until("Sentinels know everybody", || {
            let knows_all = |sentinel: &Server| -> Result<bool> {
                let says = sentinel.cli(&["SENTINEL", "MASTER", WATCHED])?;
                Ok(["num-slaves\n2\n", "num-other-sentinels\n2\n", "flags\nmaster\n"]
                    .iter()
                    .all(|part| says.contains(part)))
            };
            Ok(sentinels.iter().all(|sentinel| knows_all(sentinel).unwrap_or(false)))
        })?;
        Ok((servers, sentinels))
    }
}

/// A primary with two replicas, and three Sentinels that watch it as [`WATCHED`].
///
/// # Errors
/// If they do not come together in time.
pub fn watched(home: &Path, silent_for: Duration) -> Result<(Vec<Server>, Vec<Server>)> {
    Programs::of_this_run().watched(home, silent_for)
}

impl Programs {
    /// A cluster of three primaries, each with one replica.
    ///
    /// # Errors
    /// If they do not come together in time.
    pub fn cluster(&self, home: &Path, silent_for: Duration) -> Result<Vec<Server>> {
        let silent_ms = (silent_for * 2).as_millis().to_string();
        let mut nodes = Vec::new();
        for number in 0..6 {
            let options = [
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                &silent_ms,
                "--cluster-replica-validity-factor",
                "0",
            ];
            nodes.push(self.start(home, &format!("node-{number}"), &options)?);
        }
        let ranges = [("0", "5461"), ("5462", "10922"), ("10923", "16383")];
        for (number, node) in nodes.iter().enumerate() {
            // Epochs that differ from the start need no time to be sorted out.
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()])?;
            if let Some((first, last)) = ranges.get(number) {
                let slots: Vec<String> = (first.parse::<u16>().unwrap_or(0)..=last.parse().unwrap_or(0))
                    .map(|slot| slot.to_string())
                    .collect();
                let command: Vec<&str> =
                    ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
                node.cli(&command)?;
            }
            node.cli(&["CLUSTER", "MEET", "127.0.0.1", &nodes[0].port.to_string()])?;
        }
        until("nodes know each other", || {
            let knows =
                |node: &Server| node.cli(&["CLUSTER", "NODES"]).is_ok_and(|says| says.lines().count() == 6);
            Ok(nodes.iter().all(knows))
        })?;
        for number in 3..6 {
            let primary = nodes[number - 3].cli(&["CLUSTER", "MYID"])?;
            until("a replica follows", || {
                Ok(nodes[number].cli(&["CLUSTER", "REPLICATE", &primary])? == "OK")
            })?;
        }
        until("the cluster is well", || {
            let is_well = |node: &Server| -> Result<bool> {
                let slots = node.cli(&["CLUSTER", "NODES"])?;
                let follow = node.cli(&["INFO", "replication"])?;
                Ok(node.cli(&["CLUSTER", "INFO"])?.contains("cluster_state:ok")
                    && slots.matches("slave").count() == 3
                    && (follow.contains("link_status:up") || follow.contains("state=online")))
            };
            Ok(nodes.iter().all(|node| is_well(node).unwrap_or(false)))
        })?;
        Ok(nodes)
    }
}

/// A cluster of three primaries, each with one replica.
///
/// # Errors
/// If they do not come together in time.
pub fn cluster(home: &Path, silent_for: Duration) -> Result<Vec<Server>> {
    Programs::of_this_run().cluster(home, silent_for)
}
