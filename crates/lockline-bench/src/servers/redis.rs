//! Redis: `PING`, and `SET NX PX` with the script that deletes what is one's own.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, ProtocolVersion, Value};

use super::{Server, Soon};
use crate::engine::Site;

/// What every client library releases with.
const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// One multiplexed RESP3 connection, as the driver has it.
#[derive(Debug)]
pub(super) struct Bare {
    connection: MultiplexedConnection,
    host: String,
    port: u16,
    /// A name space of its own.
    space: String,
    release: String,
    /// What was counted of plain commands, when it was last looked at.
    plain: Mutex<Plain>,
}

#[derive(Debug, Default)]
struct Plain {
    sets_less_gets: i64,
    sent: u64,
}

impl Bare {
    pub(super) async fn connect(site: &Site) -> Result<Bare> {
        // Its options are ours, and nothing to this client.
        Bare::at(site.url.split('?').next().context("no address")?, site).await
    }

    /// On this server.
    pub(super) async fn at(server: &str, site: &Site) -> Result<Bare> {
        let client = redis::Client::open(format!("{server}?protocol=resp3"))?;
        let info = client.get_connection_info().redis_settings().protocol();
        ensure!(info == ProtocolVersion::RESP3, "the floor must speak what the driver speaks");
        let (host, port) = match client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) => (host.clone(), *port),
            other => bail!("the floor is measured over TCP, not {other}"),
        };
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let release = redis::cmd("SCRIPT").arg("LOAD").arg(RELEASE).query_async(&mut connection).await?;
        let space = site.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Bare { connection, host, port, space, release, plain: Mutex::default() })
    }

    /// The key and the value of a worker.
    fn lock_of(&self, worker: usize) -> (String, String) {
        (format!("{}:floor:{worker}", self.space), format!("{:032x}", worker as u128))
    }

    pub(super) async fn take(&self, worker: usize) -> Result<()> {
        let mut connection = self.connection.clone();
        let (key, value) = self.lock_of(worker);
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(&value).arg("NX").arg("PX").arg(10_000);
        let taken: Value = set.query_async(&mut connection).await?;
        ensure!(taken == Value::Okay, "the floor's own lock is taken: {taken:?}");
        Ok(())
    }

    pub(super) async fn give_back(&self, worker: usize) -> Result<()> {
        let mut connection = self.connection.clone();
        let (key, value) = self.lock_of(worker);
        let mut release = redis::cmd("EVALSHA");
        release.arg(&self.release).arg(1).arg(&key).arg(&value);
        let released: u32 = release.query_async(&mut connection).await?;
        ensure!(released == 1, "the floor's own lock was gone");
        Ok(())
    }

    async fn info(&self, section: &str, line: &str) -> Result<Option<String>> {
        let mut connection = self.connection.clone();
        let text: String = redis::cmd("INFO").arg(section).query_async(&mut connection).await?;
        Ok(text.lines().find_map(|found| found.strip_prefix(line)).map(str::to_owned))
    }

    /// `redis-benchmark` with a connection for each of 64 clients, which nobody would have for their locks.
    async fn redis_benchmark(&self) -> Result<Option<(&'static str, f64)>> {
        let mut tool = tokio::process::Command::new("redis-benchmark");
        tool.args(["-h", &self.host, "-p", &self.port.to_string(), "-c", "64", "-n", "100000", "--csv"]);
        tool.args(["-r", "1000000", "SET", "floor:__rand_int__", "x", "NX", "PX", "10000"]);
        let output = match tool.output().await {
            Ok(output) => String::from_utf8(output.stdout)?,
            Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // A head of column names comes first; a slow machine may add lines of progress.
        let second =
            |line: &str| line.split("\",\"").nth(1).and_then(|rate| rate.trim_matches('"').parse().ok());
        let rate = output.lines().rev().find_map(second).context("redis-benchmark told no rate")?;
        Ok(Some(("redis_benchmark_set_nx_px_per_s", rate)))
    }

    /// What the driver sends: scripts, and `SET` for lines that are lent. `INFO commandstats` counts the commands of clients and
    /// those of scripts alike; but a script that writes with `SET` has read with `GET`, which the driver does not send. Many read
    /// and do not write: so only a growth of the difference since the last look says that something was sent.
    async fn sent(&self) -> Result<u64> {
        let (scripts, sets, gets) =
            (self.calls("evalsha").await?, self.calls("set").await?, self.calls("get").await?);
        let mut plain = self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        let now = sets.cast_signed() - gets.cast_signed();
        plain.sent += u64::try_from(now - plain.sets_less_gets).unwrap_or(0);
        plain.sets_less_gets = now;
        Ok(scripts + plain.sent)
    }

    async fn calls(&self, command: &str) -> Result<u64> {
        let line = self.info("commandstats", &format!("cmdstat_{command}:calls=")).await?;
        Ok(line.as_deref().and_then(|rest| rest.split(',').next()).map_or(Ok(0), str::parse)?)
    }
}

impl Server for Bare {
    fn round_trip_is(&self) -> &'static str {
        "PING"
    }

    fn round_trip(&self) -> Soon<'_, ()> {
        Box::pin(async {
            let mut connection = self.connection.clone();
            redis::cmd("PING").query_async::<()>(&mut connection).await?;
            Ok(())
        })
    }

    fn pair_is(&self) -> &'static str {
        "SET NX PX + release script, as many workers"
    }

    fn pair(&self, worker: usize) -> Soon<'_, ()> {
        Box::pin(async move {
            self.take(worker).await?;
            self.give_back(worker).await
        })
    }

    fn commands(&self) -> Soon<'_, Option<u64>> {
        Box::pin(async { Ok(Some(self.sent().await?)) })
    }

    fn memory(&self) -> Soon<'_, Option<u64>> {
        Box::pin(async {
            let used = self.info("memory", "used_memory:").await?;
            Ok(used.map(|bytes| bytes.trim().parse()).transpose()?)
        })
    }

    fn own_tool(&self) -> Soon<'_, Option<(&'static str, f64)>> {
        Box::pin(self.redis_benchmark())
    }
}
