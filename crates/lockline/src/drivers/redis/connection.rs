//! One connection for all commands and messages, and the scripts that the server at its other end knows.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::io::tcp::TcpSettings;
use redis::{
    Client, Cmd, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisError, RedisResult, Value,
};
use tokio::sync::Mutex;

use super::bell;
use super::config::{RedisConfig, Server};
use super::error::{explain, is_unknown_script};
use super::incarnation::{Guard, Incarnation, Info};
use super::scripts::{Loaded, Script, texts};
use crate::driver::Bells;
use crate::error::{Error, ErrorKind, Result};
use crate::line::ClaimId;

/// How long one attempt to connect may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Pauses between attempts to connect again: from the first to the longest, for as long as it takes.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// After how long without an acknowledgement a connection is given up.
const SILENT_FOR: Duration = Duration::from_secs(10);
/// How often a script is loaded for one call before the server is called broken.
const LOADS: usize = 3;
/// How long the first finder's decision about a restarted server is kept, for those who come later.
const MARK_MS: u64 = 86_400_000;

/// A way to one server.
#[derive(Debug)]
pub(in crate::drivers) struct Connection {
    pub(in crate::drivers) config: RedisConfig,
    pub(in crate::drivers) address: Arc<str>,
    /// What this process's channel ends with.
    pub(super) process: String,
    /// Whether the server keeps what it answered over a restart.
    pub(in crate::drivers) keeps_its_data: bool,
    manager: ConnectionManager,
    scripts: RwLock<Arc<Loaded>>,
    /// Held by whoever loads scripts: the others wait instead of doing the same.
    loading: Mutex<()>,
}

impl Connection {
    pub(in crate::drivers) async fn open(config: RedisConfig, bells: Bells) -> Result<Connection> {
        config.check()?;
        let address: Arc<str> = config.address().into();
        let fail = |e: &RedisError| explain("connect", &address, e, false);
        let client = client(&config).map_err(|e| fail(&e))?;
        // The manager tries for ever; the first connection of all is to fail at once, and say why.
        let within = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_WITHIN))
            .set_response_timeout(Some(CONNECT_WITHIN));
        let mut first =
            client.get_multiplexed_async_connection_with_config(&within).await.map_err(|e| fail(&e))?;
        let info = info(&mut first).await.map_err(|e| fail(&e))?;
        info.check(&config, &address)?;
        let incarnation = incarnation(&mut first, &config, &info, None).await.map_err(|e| fail(&e))?;
        let shas = load(&mut first, &config, &incarnation).await.map_err(|e| fail(&e))?;

        let ring = move |push: redis::PushInfo| {
            bell::hear(&push, &bells);
            Ok::<(), std::convert::Infallible>(())
        };
        let settings = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT_WITHIN))
            // Deadlines come from above.
            .set_response_timeout(None)
            .set_number_of_retries(usize::MAX)
            .set_min_delay(PAUSES.0)
            .set_max_delay(PAUSES.1)
            .set_pipeline_buffer_size(1024)
            .set_push_sender(ring)
            .set_automatic_resubscription();
        let mut manager = client.get_connection_manager_with_config(settings).await.map_err(|e| fail(&e))?;
        // Twice as many bits as needed for it never to be that of another process.
        let process = format!("{:032x}", ClaimId::random().as_u128());
        let channel = format!("{}:bell:{process}", config.space);
        tokio::time::timeout(CONNECT_WITHIN, manager.subscribe(channel))
            .await
            .map_err(|_| {
                Error::new(ErrorKind::Unavailable, "connect", "the server does not answer").at(&address)
            })?
            .map_err(|e| fail(&e))?;
        Ok(Connection {
            keeps_its_data: info.keeps_its_data(),
            scripts: RwLock::new(Arc::new(Loaded { incarnation, shas })),
            loading: Mutex::default(),
            config,
            address,
            process,
            manager,
        })
    }

    fn loaded(&self) -> Arc<Loaded> {
        self.scripts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs a script. `fill` adds the number of keys, the keys and the arguments.
    ///
    /// The command is sent when the future is first polled, in one order for all callers: a verb that is called after
    /// the future of another was dropped comes behind it, or the other was never sent.
    pub(super) async fn run(
        &self,
        operation: &'static str,
        script: Script,
        fill: impl Fn(&mut Cmd),
    ) -> Result<Value> {
        for _ in 0..LOADS {
            let loaded = self.loaded();
            let mut cmd = redis::cmd("EVALSHA");
            cmd.arg(loaded.sha(script));
            fill(&mut cmd);
            #[cfg(test)]
            if let Some(clock) = &self.config.clock {
                cmd.arg(clock.load(std::sync::atomic::Ordering::SeqCst));
            }
            match self.send(&cmd).await {
                Err(e) if is_unknown_script(&e) => self.load_again(&loaded).await?,
                answer => return answer.map_err(|e| explain(operation, &self.address, &e, true)),
            }
        }
        let message = "the server forgets scripts as fast as they are loaded";
        Err(Error::new(ErrorKind::Unavailable, operation, message).at(&self.address))
    }

    /// Sends a command that is no script.
    pub(in crate::drivers) async fn plain(&self, operation: &'static str, cmd: &Cmd) -> Result<Value> {
        self.send(cmd).await.map_err(|e| explain(operation, &self.address, &e, true))
    }

    async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        // An error of the server is a value like others until it is asked for.
        self.manager.clone().send_packed_command(cmd).await?.extract_error()
    }

    /// The server does not know our scripts: it was restarted, another took its place, or somebody told it to forget
    /// them. Which of these decides whether it may have forgotten locks.
    async fn load_again(&self, unknown: &Arc<Loaded>) -> Result<()> {
        let _loading = self.loading.lock().await;
        if !Arc::ptr_eq(&self.loaded(), unknown) {
            return Ok(());
        }
        let fail = |e: &RedisError| explain("load", &self.address, e, false);
        let mut manager = self.manager.clone();
        let info = info(&mut manager).await.map_err(|e| fail(&e))?;
        let known = &unknown.incarnation;
        let now = if info.run_id() == known.run_id {
            known.clone()
        } else {
            info.check(&self.config, &self.address)?;
            incarnation(&mut manager, &self.config, &info, Some(&known.run_id)).await.map_err(|e| fail(&e))?
        };
        let shas = load(&mut manager, &self.config, &now).await.map_err(|e| fail(&e))?;
        let loaded = Arc::new(Loaded { incarnation: now, shas });
        *self.scripts.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(())
    }
}

fn client(config: &RedisConfig) -> RedisResult<Client> {
    let address = match &config.server {
        Server::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
        Server::Unix(path) => ConnectionAddr::Unix(path.clone()),
    };
    let mut login = redis::RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_db(config.database)
        // Redis 7.0 has no such command, and an access list that allows it is refused there.
        .set_skip_set_lib_name();
    if let Some(user) = &config.user {
        login = login.set_username(user);
    }
    if let Some(password) = &config.password {
        login = login.set_password(password);
    }
    let tcp = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(SILENT_FOR);
    Client::open(address.into_connection_info()?.set_redis_settings(login).set_tcp_settings(tcp))
}

async fn info(connection: &mut impl ConnectionLike) -> RedisResult<Info> {
    let text: String = redis::cmd("INFO").query_async(connection).await?;
    Ok(Info::parse(&text))
}

/// Decides whether nobody may get in yet. The first who finds a restarted server decides for all.
async fn incarnation(
    connection: &mut impl ConnectionLike,
    config: &RedisConfig,
    info: &Info,
    before: Option<&str>,
) -> RedisResult<Incarnation> {
    let run_id = info.run_id().to_owned();
    #[cfg(test)]
    if let Some((ends_us, length_us)) = config.guard {
        return Ok(Incarnation { run_id, guard: Some(Guard { ends_us, length_us }) });
    }
    let (seconds, rest): (u64, u64) = redis::cmd("TIME").query_async(connection).await?;
    let now_us = seconds * 1_000_000 + rest;
    let Some((guard, why)) = info.guard(config, now_us, before) else {
        return Ok(Incarnation { run_id, guard: None });
    };
    let mark = format!("{}:guard:{run_id}", config.space);
    let set = redis::cmd("SET").arg(&mark).arg(guard.ends_us).arg("NX").arg("PX").arg(MARK_MS).to_owned();
    set.exec_async(connection).await?;
    let ends_us: u64 = redis::cmd("GET").arg(&mark).query_async(connection).await?;
    if ends_us <= now_us {
        return Ok(Incarnation { run_id, guard: None });
    }
    let rest = Duration::from_millis((ends_us - now_us) / 1000);
    tracing::warn!(
        rest = %humantime::format_duration(rest),
        "restart guard: {why}; nobody gets a lock until every lease from before has ended"
    );
    Ok(Incarnation { run_id, guard: Some(Guard { ends_us, ..guard }) })
}

async fn load(
    connection: &mut impl ConnectionLike,
    config: &RedisConfig,
    incarnation: &Incarnation,
) -> RedisResult<Vec<String>> {
    #[cfg(test)]
    let test_clock = config.clock.is_some();
    #[cfg(not(test))]
    let test_clock = false;
    let mut shas = Vec::new();
    for text in texts(incarnation, config, test_clock) {
        shas.push(redis::cmd("SCRIPT").arg("LOAD").arg(text).query_async(connection).await?);
    }
    Ok(shas)
}
