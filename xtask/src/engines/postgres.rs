//! PostgreSQL servers whose data is their own and needs no disk to be waited for: one, one behind a pooler, and one with a
//! synchronous standby.

use std::fs::{File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::launch::Launch;
use super::toolchain::{Toolchain, version_in};
use super::{Started, apt};

/// How long a server may take to answer; it takes a second.
const PATIENCE: Duration = Duration::from_secs(60);

const DATABASE: &str = "postgres";

/// What no test depends on is left out, so that a server starts and stops fast. Commits are not left out: a killed server
/// must have what it answered.
const SETTINGS: &str = "\
fsync=off
full_page_writes=off
synchronous_commit=on
shared_buffers=32MB
max_connections=1200
shared_preload_libraries='pg_stat_statements'
jit=off
listen_addresses='127.0.0.1'
wal_retrieve_retry_interval=100ms
";

pub(super) fn install() -> Result<()> {
    if Toolchain::system().postgres().is_some() {
        return Ok(());
    }
    // Without this the package makes a server of its own.
    let folder = Path::new("/etc/postgresql-common");
    std::fs::create_dir_all(folder)?;
    let settings = folder.join("createcluster.conf");
    if !settings.exists() {
        std::fs::write(&settings, "create_main_cluster = false\n")?;
    }
    apt::install(&["postgresql-15", "postgresql-client-15"])
}

pub(super) fn start(tools: &Toolchain, home: &Path) -> Result<Started> {
    let server = Server::start(tools, home)?;
    let version = server.version()?;
    Ok(started(server.url(), [server], version))
}

fn started(url: String, servers: impl IntoIterator<Item = Server>, version: String) -> Started {
    let (processes, launches) = servers.into_iter().map(|server| (server.process, server.launch)).unzip();
    Started { url: Some(url), processes, launches, version }
}

pub(super) fn install_pooled() -> Result<()> {
    install()?;
    if Toolchain::system().find("pgbouncer").is_some() { Ok(()) } else { apt::install(&["pgbouncer"]) }
}

/// A server behind a pooler that gives every transaction another session.
pub(super) fn start_pooled(tools: &Toolchain, home: &Path) -> Result<Started> {
    let server = Server::start(tools, home)?;
    let port = free_port()?;
    let settings = home.join("pgbouncer.ini");
    let text = format!(
        "[databases]\n{DATABASE} = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
         listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\nmax_client_conn = 2000\n\
         default_pool_size = 40\n",
        server.port
    );
    std::fs::write(&settings, text)?;
    let log_path = home.join("pgbouncer.log");
    let log = File::create(&log_path)?;
    let mut command = as_postgres(tools.program("pgbouncer")?);
    command.arg(&settings).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let launch = Launch::of("pgbouncer", port, &command, home, &log_path);
    let process = command.spawn().context("pgbouncer")?;
    let pooler = Server { port, process, launch, psql: server.psql.clone() };
    until(|| pooler.ask("SELECT 1").is_ok()).with_context(|| {
        let log = std::fs::read_to_string(home.join("pgbouncer.log")).unwrap_or_default();
        format!("pgbouncer does not answer:\n{log}")
    })?;
    // Ended first, as it was started last.
    let url = format!("{}?pooler=transaction", pooler.url());
    let own = tools.version_of("pgbouncer").context("pgbouncer tells no version")?;
    let version = format!("{own}, PostgreSQL {}", server.version()?);
    Ok(started(url, [pooler, server], version))
}

/// A server and a standby that has every commit before it is answered.
pub(super) fn start_with_standby(tools: &Toolchain, home: &Path) -> Result<Started> {
    let primary = Server::start(tools, home)?;
    let data = home.join("standby");
    std::fs::create_dir(&data)?;
    std::fs::set_permissions(&data, Permissions::from_mode(0o700))?;
    give_to_postgres(&data)?;
    let from = format!("host=127.0.0.1 port={} user=postgres application_name=standby", primary.port);
    let mut copy = as_postgres(programs(tools)?.join("pg_basebackup"));
    copy.args(["-c", "fast", "-X", "stream", "-R", "-N", "-C", "-S", "standby", "-d", &from, "-D"])
        .arg(&data);
    ensure!(copy.status()?.success(), "pg_basebackup failed");
    // Its sockets must not be where the primary's are.
    let settings = data.join("postgresql.conf");
    let text = std::fs::read_to_string(&settings)?;
    std::fs::write(&settings, format!("{text}\nunix_socket_directories='{}'\n", data.display()))?;
    let standby = Server::run(tools, home, &data)?;
    primary.ask("ALTER SYSTEM SET synchronous_standby_names = 'standby'")?;
    primary.ask("SELECT pg_reload_conf()")?;
    let in_step = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    until(|| primary.ask(in_step).is_ok_and(|count| count.trim() == "1"))
        .context("the standby does not follow")?;
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/{DATABASE}?failover=sync",
        primary.port, standby.port
    );
    // The primary first: it gives its last commits to the standby, and without one it would wait.
    let version = primary.version()?;
    Ok(started(url, [primary, standby], version))
}

struct Server {
    port: u16,
    process: Child,
    launch: Launch,
    /// The client of the same release.
    psql: PathBuf,
}

impl Server {
    fn start(tools: &Toolchain, home: &Path) -> Result<Server> {
        // The server does not run as root, and everything it needs must be reachable for it.
        for folder in home.ancestors().take(2) {
            std::fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        }
        let data = home.join("data");
        std::fs::create_dir(&data)?;
        give_to_postgres(&data)?;
        let mut init = as_postgres(programs(tools)?.join("initdb"));
        init.arg("-D").arg(&data).args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "-N",
        ]);
        ensure!(init.stdout(Stdio::null()).status()?.success(), "initdb failed");
        let settings = data.join("postgresql.conf");
        let text = std::fs::read_to_string(&settings)?;
        std::fs::write(
            &settings,
            format!("{text}\n{SETTINGS}unix_socket_directories='{}'\n", data.display()),
        )?;
        give_to_postgres(home)?;
        Server::run(tools, home, &data)
    }

    fn run(tools: &Toolchain, home: &Path, data: &Path) -> Result<Server> {
        let port = free_port()?;
        let name = data.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log_path = home.join(format!("{name}.log"));
        let log = File::create(&log_path)?;
        let mut server = as_postgres(programs(tools)?.join("postgres"));
        server.arg("-D").arg(data).args(["-p", &port.to_string()]);
        let launch = Launch::of("postgres", port, &server, data, &log_path);
        let process = server.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let server = Server { port, process, launch, psql: programs(tools)?.join("psql") };
        until(|| server.ask("SELECT 1").is_ok()).with_context(|| {
            let log = std::fs::read_to_string(home.join(format!("{name}.log"))).unwrap_or_default();
            format!("postgres does not answer:\n{log}")
        })?;
        Ok(server)
    }

    fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{DATABASE}", self.port)
    }

    fn version(&self) -> Result<String> {
        version_in(&self.ask("SHOW server_version")?).context("the server tells no version")
    }

    fn ask(&self, statement: &str) -> Result<String> {
        let port = self.port.to_string();
        let out = Command::new(&self.psql)
            .args([
                "-X",
                "-A",
                "-t",
                "-h",
                "127.0.0.1",
                "-p",
                &port,
                "-U",
                "postgres",
                "-c",
                statement,
                DATABASE,
            ])
            .stdin(Stdio::null())
            .output()?;
        ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

/// Not by their names alone: the distribution has wrappers of the same names for some of them.
fn programs(tools: &Toolchain) -> Result<PathBuf> {
    tools.postgres().context("PostgreSQL is not there")
}

/// The server refuses to run as root. `setpriv` becomes the program it runs, so that the process is ours to end.
fn as_postgres(program: impl AsRef<std::ffi::OsStr>) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    // It may not be able to read the folder that this runs in.
    command.current_dir("/");
    command
}

fn give_to_postgres(path: &Path) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        let status = Command::new("chown").arg("-R").arg("postgres").arg(path).status()?;
        ensure!(status.success(), "chown failed");
    }
    Ok(())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn until(is_so: impl Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > PATIENCE {
            bail!("not within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_pooler_and_a_standby_start_and_answer() {
        let tools = Toolchain::system();
        if tools.postgres().is_none() || tools.find("pgbouncer").is_none() {
            // `cargo xtask test` installs them before it runs this. Written past the test harness.
            std::io::stderr().write_all(b"left out: there is no postgres, or no pgbouncer\n").unwrap();
            return;
        }
        for (start, hosts) in
            [(start_pooled as fn(&Toolchain, &Path) -> Result<Started>, 1), (start_with_standby, 2)]
        {
            let parent = tempfile::tempdir().unwrap();
            let home = parent.path().join("home");
            std::fs::create_dir(&home).unwrap();
            let mut started = start(&tools, &home).unwrap();
            assert_eq!(started.url.unwrap().split("127.0.0.1:").count() - 1, hosts);
            for process in &mut started.processes {
                let pid = rustix::process::Pid::from_child(process);
                rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
                process.wait().unwrap();
            }
        }
    }
}
