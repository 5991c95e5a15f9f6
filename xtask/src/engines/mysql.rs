//! One MariaDB server, whose data is its own and needs no disk to be waited for.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{Started, apt};

/// How long a server may take to answer; it takes a second.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn install() -> Result<()> {
    if apt::has("mariadbd") { Ok(()) } else { apt::install(&["mariadb-server", "mariadb-client"]) }
}

pub(super) fn start(home: &Path) -> Result<Started> {
    let data = home.join("data");
    let me = rustix::process::geteuid().is_root().then_some("--user=root");
    let mut init = Command::new("mariadb-install-db");
    // First of all, or this machine's own settings would count.
    init.arg("--no-defaults").arg(format!("--datadir={}", data.display())).args(me);
    init.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    let out = init.stdin(Stdio::null()).output().context("mariadb-install-db")?;
    ensure!(out.status.success(), "mariadb-install-db: {}", String::from_utf8_lossy(&out.stderr));

    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let log = std::fs::File::create(home.join("log"))?;
    let mut server = Command::new("mariadbd");
    server.arg("--no-defaults").args(me).arg(format!("--datadir={}", data.display()));
    server.arg(format!("--tmpdir={}", home.display())).arg(format!("--socket={}", home.join("s").display()));
    server.arg(format!("--port={port}")).arg(format!("--pid-file={}", home.join("pid").display()));
    // A killed server must have what it answered; a machine that loses power is no part of these tests.
    server.args(["--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync"]);
    server.args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--max-connections=1000"]);
    server.args(["--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M", "--performance-schema=OFF"]);
    let mut process =
        server.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn().context("mariadbd")?;

    let begun = Instant::now();
    while !ask(port, "CREATE DATABASE IF NOT EXISTS locks") {
        if begun.elapsed() > PATIENCE || process.try_wait()?.is_some() {
            let _ = process.kill();
            let _ = process.wait();
            bail!(
                "mariadbd does not answer:\n{}",
                std::fs::read_to_string(home.join("log")).unwrap_or_default()
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(Started { url: Some(format!("mysql://root@127.0.0.1:{port}/locks")), processes: vec![process] })
}

fn ask(port: u16, statement: &str) -> bool {
    Command::new("mariadb")
        .args([
            "--no-defaults",
            "--host=127.0.0.1",
            &format!("--port={port}"),
            "--user=root",
            "-e",
            statement,
        ])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
