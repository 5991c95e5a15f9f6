//! One MariaDB server, whose data is its own and needs no disk to be waited for.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::launch::Launch;
use super::toolchain::Toolchain;
use super::{Started, apt, mysql};

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
    let system = Toolchain::system();
    let is_missing = |(program, _): &&(&str, &str)| system.find(program).is_none();
    let missing: Vec<_> = missing.iter().filter(is_missing).map(|(_, package)| *package).collect();
    if missing.is_empty() { Ok(()) } else { apt::install(&missing) }
}

pub(super) fn start(tools: &Toolchain, home: &Path) -> Result<Started> {
    let data = home.join("data");
    // Whoever runs this owns the data: the server gives up no rights that it would need for it.
    let user = mysql::user()?;
    let mut make = Command::new(tools.program("mariadb-install-db")?);
    make.args(["--no-defaults", &user, "--auth-root-authentication-method=normal", "--skip-test-db"]);
    make.arg(format!("--datadir={}", data.display()));
    if !tools.is_system() {
        make.arg(format!("--basedir={}", tools.root().join("usr").display()));
    }
    let made = make
        .stdout(File::create(home.join("install.log"))?)
        .stderr(Stdio::null())
        .status()
        .context("mariadb-install-db")?;
    ensure!(made.success(), "mariadb-install-db failed: {}", mysql::read(&home.join("install.log")));
    mysql::on_a_free_port(home, |port| spawn(tools, home, &user, port))
}

fn spawn(tools: &Toolchain, home: &Path, user: &str, port: u16) -> Result<(Child, Launch)> {
    let log_path = home.join("log");
    let log = File::create(&log_path)?;
    let at = |option: &str, file: &str| format!("--{option}={}", home.join(file).display());
    let mut command = Command::new(tools.program("mariadbd")?);
    command
        // First, or the machine's own settings leak in.
        .args(["--no-defaults", user, &format!("--port={port}")])
        .args([at("datadir", "data"), at("tmpdir", ""), at("socket", "socket"), at("pid-file", "pid")])
        .args(SETTINGS);
    if !tools.is_system() {
        // Where its messages and character sets are.
        command.arg(format!("--basedir={}", tools.root().join("usr").display()));
    }
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let launch = Launch::of("mysql", port, &command, &home.join("data"), &log_path);
    Ok((command.spawn().context("mariadbd")?, launch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_server_starts_and_answers() {
        let tools = Toolchain::system();
        if tools.find("mariadbd").is_none() {
            // `cargo xtask test` installs it before it runs this. Written past the test harness.
            std::io::stderr().write_all(b"left out: there is no mariadbd\n").unwrap();
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let mut started = start(&tools, home.path()).unwrap();
        assert!(started.url.unwrap().starts_with("mysql://root@127.0.0.1:"));
        for process in &mut started.processes {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}
