//! On a real MariaDB server, started by each test on a port of its own.

#![cfg(feature = "mysql")]
#![allow(clippy::unwrap_used)]

mod common;
use common::Lab;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Mariadb {
    server: Child,
    port: u16,
    _home: tempfile::TempDir,
}

impl Mariadb {
    fn start(options: &[&str]) -> Mariadb {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let home = tempfile::tempdir().unwrap();
        let at = |option: &str, file: &str| format!("--{option}={}", home.path().join(file).display());
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        let user = format!("--user={}", String::from_utf8(user).unwrap().trim());
        let made = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", &user])
            .args([at("datadir", "data"), at("tmpdir", "")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(made.expect("MariaDB is installed").success());
        std::fs::write(home.path().join("init"), "CREATE DATABASE IF NOT EXISTS locks;").unwrap();
        let known = "/usr/sbin/mariadbd";
        let program = if std::path::Path::new(known).is_file() { known } else { "mariadbd" };
        let server = Command::new(program)
            .args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve", &user])
            .args([format!("--port={port}"), at("datadir", "data"), at("tmpdir", ""), at("socket", "socket")])
            .args([at("pid-file", "pid"), at("init-file", "init")])
            .args([
                "--innodb-flush-method=nosync",
                "--innodb-buffer-pool-size=16M",
                "--performance-schema=OFF",
            ])
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        common::until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Mariadb { server, port, _home: home }
    }

    fn url(&self) -> String {
        format!("mariadb://root@127.0.0.1:{}/locks", self.port)
    }
}

impl Drop for Mariadb {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// One of the server's connections: it counts from its greeting on, also of whoever does not log in. While the session of the command before
/// is still ending, the server refuses one too many.
fn taken(port: u16) -> TcpStream {
    let mut taken = None;
    common::until("there is room", || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut begin = [0; 5];
        let greeted = stream.read_exact(&mut begin).is_ok() && begin[4] == 10;
        taken = greeted.then_some(stream);
        greeted
    });
    taken.unwrap()
}

/// Those who have all connections may be waiting for the same lock: whoever may wait for that may wait for a connection.
#[test]
fn a_server_that_takes_no_more_connections_is_asked_again_while_the_lock_may_be_waited_for() {
    let lab = Lab::new();
    let mariadb = Mariadb::start(&["--max-connections=10", "--connect-timeout=60"]);
    let (on, port) = (mariadb.url(), mariadb.port);
    assert_eq!(lab.say(&["run", "--on", &on, "x", "--", "true"]).code, Some(0));
    // One more than that is for an operator.
    let full: Vec<TcpStream> = (0..11).map(|_| taken(port)).collect();
    let said = lab.say(&["run", "--on", &on, "-n", "x", "--", "echo", "no"]);
    assert_eq!((said.code, said.out.as_str()), (Some(69), ""), "{said:?}");
    assert!(said.err.contains("no more connections") && said.err.contains("hint:"), "{said:?}");
    let said = lab.say(&["run", "--on", &on, "-w", "1", "x", "--", "echo", "no"]);
    assert_eq!((said.code, said.out.as_str()), (Some(69), ""), "{said:?}");
    let (start, later) = (
        Instant::now(),
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(1500));
            drop(full);
        }),
    );
    let said = lab.say(&["run", "--on", &on, "-w", "30", "x", "--", "echo", "yes"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "yes\n"), "{said:?}");
    assert!(start.elapsed() > Duration::from_secs(1), "there was no room before");
    later.join().unwrap();
}
