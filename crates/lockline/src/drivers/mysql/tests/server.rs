//! A server of a test's own: to be killed, and to be made read-only.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::operate;
use crate::drivers::mysql::MysqlConfig;

/// A MariaDB server in a folder of its own, on a free port, which ends with this. It writes what it answered before it answers, and
/// waits for no disk: that is what survives a kill.
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
        let made = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
            .args([user(), format!("--datadir={}", dir.path().join("data").display())])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(made.expect("is MariaDB installed?").success());
        let mut server = Server {
            config: MysqlConfig::new("127.0.0.1", port, "mysql"),
            options: options.iter().map(|&option| option.to_owned()).collect(),
            dir,
            child: None,
        };
        server.start_again().await;
        server.run("CREATE DATABASE locks").await;
        server.config.login.database = "locks".to_owned();
        server
    }

    /// Starts it, in the same folder and on the same port as before.
    pub(super) async fn start_again(&mut self) {
        let at = |option: &str, file: &str| format!("--{option}={}", self.dir.path().join(file).display());
        let log = File::create(self.dir.path().join("log")).unwrap();
        let mut server = Command::new(program());
        server
            .args([
                "--no-defaults",
                "--bind-address=127.0.0.1",
                "--skip-name-resolve",
                "--performance-schema=OFF",
            ])
            .args(["--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=2"])
            .args(["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M"])
            .args([user(), format!("--port={}", self.config.port)])
            .args([at("datadir", "data"), at("tmpdir", ""), at("socket", "socket"), at("pid-file", "pid")])
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.child = Some(server.spawn().expect("mariadbd cannot be started: is it installed?"));
        let start = Instant::now();
        while !self.answers().await {
            let log = || std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(start.elapsed() < Duration::from_secs(30), "mariadbd does not come up: {}", log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn answers(&self) -> bool {
        use sqlx::ConnectOptions;
        let options = sqlx::mysql::MySqlConnectOptions::new().host("127.0.0.1").port(self.config.port);
        options.username("root").connect().await.is_ok()
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
fn program() -> PathBuf {
    let known = PathBuf::from("/usr/sbin/mariadbd");
    if known.is_file() { known } else { PathBuf::from("mariadbd") }
}

/// Whoever runs this owns the data.
fn user() -> String {
    let out = Command::new("id").arg("-un").output().unwrap();
    format!("--user={}", String::from_utf8(out.stdout).unwrap().trim())
}
