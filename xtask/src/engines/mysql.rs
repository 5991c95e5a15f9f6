//! One MariaDB server, whose data is its own and needs no disk to be waited for.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::launch::Launch;
use super::{Started, apt};

/// How long a server may take to answer; it takes a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// Somebody else may take a port between our finding it free and the server's listening on it.
const PORTS: usize = 5;

/// What no test depends on is left out, so that a server starts and stops fast. Commits are not left out: they are written
/// before they are answered, so that a killed server has what it answered.
const SETTINGS: &[&str] = &[
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--max-connections=2000",
    "--innodb-buffer-pool-size=64M",
    "--innodb-log-file-size=64M",
    "--innodb-flush-method=nosync",
    "--innodb-flush-log-at-trx-commit=2",
    "--key-buffer-size=1M",
    "--aria-pagecache-buffer-size=1M",
    "--performance-schema=OFF",
];

pub(super) fn install() -> Result<()> {
    let missing = [("mariadbd", "mariadb-server"), ("mariadb", "mariadb-client")];
    let missing: Vec<_> =
        missing.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() { Ok(()) } else { apt::install(&missing) }
}

/// Servers are not on everybody's path.
fn is_there(program: &str) -> bool {
    apt::has(program) || Path::new("/usr/sbin").join(program).is_file()
}

pub(super) fn start(home: &Path) -> Result<Started> {
    let data = home.join("data");
    // Whoever runs this owns the data: the server gives up no rights that it would need for it.
    let user = format!("--user={}", whoami()?);
    let made = Command::new("mariadb-install-db")
        .args(["--no-defaults", &user, "--auth-root-authentication-method=normal", "--skip-test-db"])
        .arg(format!("--datadir={}", data.display()))
        .stdout(File::create(home.join("install.log"))?)
        .stderr(Stdio::null())
        .status()
        .context("mariadb-install-db")?;
    ensure!(made.success(), "mariadb-install-db failed: {}", read(&home.join("install.log")));
    for _ in 0..PORTS {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let (mut process, launch) = spawn(home, &user, port)?;
        if answers(&mut process, port)? {
            return Ok(Started {
                url: Some(format!("mysql://root@127.0.0.1:{port}/mysql")),
                processes: vec![process],
                launches: vec![launch],
            });
        }
    }
    bail!("mariadbd does not come up:\n{}", read(&home.join("log")))
}

fn spawn(home: &Path, user: &str, port: u16) -> Result<(Child, Launch)> {
    let log_path = home.join("log");
    let log = File::create(&log_path)?;
    let program = if apt::has("mariadbd") { "mariadbd" } else { "/usr/sbin/mariadbd" };
    let at = |option: &str, file: &str| format!("--{option}={}", home.join(file).display());
    let mut command = Command::new(program);
    command
        // First, or the machine's own settings leak in.
        .args(["--no-defaults", user, &format!("--port={port}")])
        .args([at("datadir", "data"), at("tmpdir", ""), at("socket", "socket"), at("pid-file", "pid")])
        .args(SETTINGS)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let launch = Launch::of("mysql", port, &command, &home.join("data"), &log_path);
    Ok((command.spawn().context("mariadbd")?, launch))
}

/// Waits until it answers; `false` if it ended.
fn answers(process: &mut Child, port: u16) -> Result<bool> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if process.try_wait()?.is_some() {
            return Ok(false);
        }
        let asked = Command::new("mariadb")
            .args(["--no-defaults", "--host=127.0.0.1", &format!("--port={port}"), "--user=root"])
            .args(["--execute", "SELECT 1"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if asked.success() {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = process.kill();
    let _ = process.wait();
    Ok(false)
}

fn whoami() -> Result<String> {
    let out = Command::new("id").arg("-un").output().context("id")?;
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_server_starts_and_answers() {
        if !is_there("mariadbd") {
            // `cargo xtask test` installs it before it runs this. Written past the test harness.
            std::io::stderr().write_all(b"left out: there is no mariadbd\n").unwrap();
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let mut started = start(home.path()).unwrap();
        assert!(started.url.unwrap().starts_with("mysql://root@127.0.0.1:"));
        for process in &mut started.processes {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}
