//! A server of a test's own: to be killed, copied and promoted.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::drivers::postgres::PostgresConfig;

/// A PostgreSQL server in a folder of its own, on a free port, which ends with this.
pub(crate) struct Server {
    pub(crate) port: u16,
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl Server {
    pub(crate) fn start(settings: &str) -> Server {
        let server = Server::empty();
        run(program("initdb")
            .arg("-D")
            .arg(server.data())
            .args(["-U", "postgres", "-A", "trust", "-N", "-E", "UTF8"]));
        let more = format!(
            "\nfsync=off\nfull_page_writes=off\nshared_buffers=16MB\njit=off\nlisten_addresses='127.0.0.1'\n\
             unix_socket_directories='{}'\nwal_retrieve_retry_interval=100ms\n{settings}\n",
            server.data().display()
        );
        server.append("postgresql.conf", &more);
        server.up()
    }

    /// A copy of a server that follows it, under this name.
    pub(crate) fn standby_of(primary: &Server, name: &str) -> Server {
        let server = Server::empty();
        let from = format!("host=127.0.0.1 port={} user=postgres application_name={name}", primary.port);
        run(program("pg_basebackup")
            .args(["-c", "fast", "-X", "stream", "-R", "-N", "-C", "-S", name, "-d", &from, "-D"])
            .arg(server.data()));
        server
            .append("postgresql.conf", &format!("\nunix_socket_directories='{}'\n", server.data().display()));
        server.up()
    }

    fn empty() -> Server {
        // Free a moment ago; if somebody was faster, the server does not come up and the test says so.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = tempfile::Builder::new().prefix("lockline-postgres-").tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let server = Server { port, dir, child: None };
        std::fs::create_dir(server.data()).unwrap();
        std::fs::set_permissions(server.data(), Permissions::from_mode(0o700)).unwrap();
        if rustix::process::geteuid().is_root() {
            run(Command::new("chown").arg("-R").arg("postgres").arg(server.dir.path()));
        }
        server
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn append(&self, file: &str, text: &str) {
        let path = self.data().join(file);
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        std::fs::write(path, before + text).unwrap();
    }

    /// Starts it, in the same folder and on the same port as before.
    pub(crate) fn up(mut self) -> Server {
        self.start_again();
        self
    }

    pub(crate) fn start_again(&mut self) {
        let log = File::create(self.dir.path().join("log")).unwrap();
        let _ = std::fs::remove_file(self.data().join("postmaster.pid"));
        let mut server = program("postgres");
        server.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        let server = server.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(server.spawn().expect("postgres cannot be started: is it installed?"));
        let start = Instant::now();
        while self.ask("SELECT 1").is_none() {
            let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(start.elapsed() < Duration::from_secs(30), "postgres does not come up: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What psql prints; `None` if it failed.
    pub(crate) fn ask(&self, statement: &str) -> Option<String> {
        let port = self.port.to_string();
        let mut psql = Command::new(folder().join("psql"));
        psql.args(["-X", "-A", "-t", "-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-c", statement]);
        let out = psql.arg("postgres").stdin(Stdio::null()).output().unwrap();
        out.status.success().then(|| String::from_utf8(out.stdout).unwrap().trim().to_owned())
    }

    /// Waits until a question has this answer.
    pub(crate) fn until(&self, statement: &str, answer: &str) {
        let start = Instant::now();
        while self.ask(statement).as_deref() != Some(answer) {
            assert!(start.elapsed() < Duration::from_secs(30), "never {answer}: {statement}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills it and everything it started, as a crash does.
    pub(crate) fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let parent = child.id().to_string();
        let children = Command::new("pgrep").args(["-P", &parent]).output().unwrap();
        child.kill().unwrap();
        for pid in String::from_utf8(children.stdout).unwrap().lines() {
            // It may have ended by itself, which is what killing its parent makes it do.
            let _ = Command::new("kill").args(["-9", pid]).stderr(Stdio::null()).status();
        }
        child.wait().unwrap();
        // Its children notice within a moment; a server that is started sooner finds their memory in use.
        std::thread::sleep(Duration::from_millis(300));
    }

    pub(crate) fn config(&self) -> PostgresConfig {
        PostgresConfig::new("127.0.0.1", self.port, "postgres")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn folder() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is not installed");
    let mut found: Vec<PathBuf> = versions.map(|version| version.unwrap().path().join("bin")).collect();
    found.sort();
    found.pop().expect("PostgreSQL is not installed")
}

/// A program of PostgreSQL, not as root, which it refuses. `setpriv` becomes the program it runs.
fn program(name: &str) -> Command {
    let path = folder().join(name);
    if !rustix::process::geteuid().is_root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=postgres", "--regid=postgres", "--clear-groups"])
        .arg(path)
        .current_dir(Path::new("/"));
    command
}

fn run(command: &mut Command) {
    let out = command.stdin(Stdio::null()).output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}
