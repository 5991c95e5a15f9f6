//! A server of a test's own: to be killed, to be made read-only, and to be set up in ways that others are not.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::operate;
use crate::drivers::mysql::MysqlConfig;
use crate::drivers::mysql::wire::Connection;

/// Which server tests start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The one that this machine has installed.
    Mariadb,
    /// The program that `LOCKLINE_TEST_MYSQLD` names, with the files below `LOCKLINE_TEST_MYSQL_ROOT`.
    Mysql,
}

impl Kind {
    pub(super) fn of_this_run() -> Kind {
        if std::env::var_os("LOCKLINE_TEST_MYSQLD").is_some() { Kind::Mysql } else { Kind::Mariadb }
    }
}

/// A server in a folder of its own, on a free port, which ends with this. It writes what it answered before it answers, and waits for no
/// disk: that is what survives a kill.
pub(super) struct Server {
    pub(super) config: MysqlConfig,
    /// What it is started with beside its usual settings.
    pub(super) options: Vec<String>,
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl Server {
    pub(super) async fn start() -> Server {
        Server::start_with(&[]).await
    }

    /// With these options beside its usual ones.
    pub(super) async fn start_with(options: &[&str]) -> Server {
        // Free a moment ago; if somebody was faster, the server does not come up and the test says so.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = tempfile::Builder::new().prefix("lockline-mysql-").tempdir().unwrap();
        let mut server = Server {
            config: MysqlConfig::new("127.0.0.1", port, "mysql"),
            options: options.iter().map(|&option| option.to_owned()).collect(),
            dir,
            child: None,
        };
        let log = File::create(server.file("log")).unwrap();
        let mut make = server.maker();
        let made = make.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).status();
        assert!(made.expect("is the server installed?").success(), "{}", server.log());
        server.start_again().await;
        server.run("CREATE DATABASE locks").await;
        server.config.login.database = "locks".to_owned();
        server
    }

    /// A file of its folder; `data` has what it keeps.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn at(&self, option: &str, file: &str) -> String {
        format!("--{option}={}", self.file(file).display())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    /// What makes its data.
    fn maker(&self) -> Command {
        let mut make = match Kind::of_this_run() {
            Kind::Mariadb => {
                let mut make = Command::new("mariadb-install-db");
                make.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
                make
            }
            Kind::Mysql => {
                let mut make = mysqld();
                make.args(["--innodb-redo-log-capacity=8M", "--initialize-insecure"]);
                make
            }
        };
        // Not the one that others use at the same time: the names of temporary tables are made of process ids.
        make.args([user(), self.at("datadir", "data"), self.at("tmpdir", "")]);
        make
    }

    /// Starts it, in the same folder and on the same port as before.
    pub(super) async fn start_again(&mut self) {
        let log = File::create(self.file("log")).unwrap();
        let mut server = match Kind::of_this_run() {
            Kind::Mariadb => {
                let mut server = Command::new(mariadbd());
                server.args(["--no-defaults", "--skip-name-resolve", "--innodb-log-file-size=8M"]);
                server
            }
            Kind::Mysql => {
                let mut server = mysqld();
                server.args(["--innodb-redo-log-capacity=8M"]);
                server
            }
        };
        server
            .args(["--bind-address=127.0.0.1", "--performance-schema=OFF", "--innodb-buffer-pool-size=16M"])
            .args(["--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=2"])
            .args([user(), format!("--port={}", self.config.port), self.at("datadir", "data")])
            .args([self.at("tmpdir", ""), self.at("socket", "socket"), self.at("pid-file", "pid")])
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.child = Some(server.spawn().expect("the server cannot be started: is it installed?"));
        let (start, home) = (Instant::now(), MysqlConfig::new("127.0.0.1", self.config.port, "mysql"));
        loop {
            let failure = match Connection::open(&home).await {
                Ok(_) => return,
                Err(failure) => failure,
            };
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "it does not come up: {failure} {}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Does what an operator does.
    pub(super) async fn run(&self, statement: &str) {
        operate(&self.config, statement).await;
    }

    /// Kills it, as a crash does.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Servers are not on everybody's path.
fn mariadbd() -> PathBuf {
    let known = PathBuf::from("/usr/sbin/mariadbd");
    if known.is_file() { known } else { PathBuf::from("mariadbd") }
}

/// MySQL, which was not built for the folder that it is in.
fn mysqld() -> Command {
    let program = std::env::var_os("LOCKLINE_TEST_MYSQLD").expect("LOCKLINE_TEST_MYSQLD names a program");
    let root = std::env::var_os("LOCKLINE_TEST_MYSQL_ROOT").unwrap_or_else(|| "/".into());
    let below =
        |option: &str, path: &str| format!("--{option}={}", PathBuf::from(&root).join(path).display());
    let mut server = Command::new(program);
    server
        .args(["--no-defaults".to_owned(), below("lc-messages-dir", "usr/share/mysql")])
        .args([
            below("character-sets-dir", "usr/share/mysql/charsets"),
            below("plugin-dir", "usr/lib/mysql/plugin"),
        ])
        .args(["--secure-file-priv=NULL", "--mysqlx=OFF"]);
    server
}

/// Whoever runs this owns the data.
fn user() -> String {
    let out = Command::new("id").arg("-un").output().unwrap();
    format!("--user={}", String::from_utf8(out.stdout).unwrap().trim())
}
