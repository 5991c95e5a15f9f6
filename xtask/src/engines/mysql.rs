//! One MySQL server, whose data is its own and needs no disk to be waited for; and what it shares with MariaDB.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Started;
use super::launch::Launch;
use super::toolchain::{Toolchain, version_in};

/// How long a server may take to answer; it takes a second or two.
const PATIENCE: Duration = Duration::from_secs(60);

/// Somebody else may take a port between our finding it free and the server's listening on it.
const PORTS: usize = 5;

/// What no test depends on is left out, so that a server starts and stops fast. What an operator would leave alone is as it
/// comes: the SQL mode, the isolation level, the binary log, how passwords are checked. Commits are not left out: they are
/// written before they are answered, so that a killed server has what it answered.
const SETTINGS: &[&str] = &[
    // Names are resolved: without that the root of a new server, who is at "localhost", cannot come from 127.0.0.1.
    "--bind-address=127.0.0.1",
    "--mysqlx=OFF",
    "--secure-file-priv=NULL",
    "--max-connections=2000",
    "--innodb-buffer-pool-size=64M",
    "--innodb-redo-log-capacity=64M",
    "--innodb-flush-method=nosync",
    "--innodb-flush-log-at-trx-commit=2",
    "--sync-binlog=0",
    "--performance-schema=OFF",
];

pub(super) fn start(tools: &Toolchain, home: &Path) -> Result<Started> {
    let log = home.join("install.log");
    let file = File::create(&log)?;
    let mut make = server(tools, home)?;
    make.args(["--initialize-insecure", "--innodb-flush-method=nosync"]).arg(at(home, "datadir", "data"));
    let made = make.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).status().context("mysqld")?;
    ensure!(made.success(), "mysqld --initialize-insecure failed: {}", read(&log));
    on_a_free_port(home, |port| spawn(tools, home, port))
}

fn at(home: &Path, option: &str, file: &str) -> String {
    format!("--{option}={}", home.join(file).display())
}

/// The server with what it needs to find its own files, wherever it was unpacked.
fn server(tools: &Toolchain, home: &Path) -> Result<Command> {
    let mut command = Command::new(tools.program("mysqld")?);
    // First, or the machine's own settings leak in.
    command.args(["--no-defaults", &user()?]).arg(at(home, "tmpdir", ""));
    if !tools.is_system() {
        let shared = tools.root().join("usr/share/mysql");
        command.arg(format!("--lc-messages-dir={}", shared.display()));
        command.arg(format!("--character-sets-dir={}", shared.join("charsets").display()));
        command.arg(format!("--plugin-dir={}", tools.root().join("usr/lib/mysql/plugin").display()));
    }
    Ok(command)
}

fn spawn(tools: &Toolchain, home: &Path, port: u16) -> Result<(Child, Launch)> {
    let log_path = home.join("log");
    let log = File::create(&log_path)?;
    let mut command = server(tools, home)?;
    command
        .arg(format!("--port={port}"))
        .args([at(home, "datadir", "data"), at(home, "socket", "socket"), at(home, "pid-file", "pid")])
        .args(SETTINGS)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let launch = Launch::of("mysql", port, &command, &home.join("data"), &log_path);
    Ok((command.spawn().context("mysqld")?, launch))
}

/// Starts a server of either kind, on another port if somebody else took the first.
pub(super) fn on_a_free_port(home: &Path, spawn: impl Fn(u16) -> Result<(Child, Launch)>) -> Result<Started> {
    for _ in 0..PORTS {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let (mut process, launch) = spawn(port)?;
        if let Some(version) = answers(&mut process, port)? {
            return Ok(Started {
                url: Some(format!("mysql://root@127.0.0.1:{port}/mysql")),
                processes: vec![process],
                launches: vec![launch],
                version,
            });
        }
    }
    bail!("the server does not come up:\n{}", read(&home.join("log")))
}

/// Waits until it answers, and tells its version; `None` if it ended.
fn answers(process: &mut Child, port: u16) -> Result<Option<String>> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if process.try_wait()?.is_some() {
            return Ok(None);
        }
        if let Ok(version) = greeting(port) {
            return Ok(Some(version));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = process.kill();
    let _ = process.wait();
    Ok(None)
}

/// What a server says first: four bytes of a header, the protocol's version 10, and its own version up to a zero.
fn greeting(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    ensure!(head[4] == 10, "the server speaks another protocol, or refuses us");
    let mut text = Vec::new();
    BufReader::new(stream).take(200).read_until(0, &mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    // Older MariaDB pretends to be an old MySQL first.
    version_in(text.strip_prefix("5.5.5-").unwrap_or(&text)).context("the server tells no version")
}

/// Whoever runs this.
pub(super) fn user() -> Result<String> {
    let out = Command::new("id").arg("-un").output().context("id")?;
    Ok(format!("--user={}", String::from_utf8_lossy(&out.stdout).trim()))
}

pub(super) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
