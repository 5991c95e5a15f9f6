//! The connection of a layout: commands, the layout's scripts, and the channels of names that somebody here waits for.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Cmd, PushInfo, RedisError, RedisResult, Value};
use tokio::sync::Mutex;

use super::Scripts;
use crate::drivers::redis::address::Topology;
use crate::drivers::redis::config::RedisConfig;
use crate::drivers::redis::dial::{self, CONNECT_WITHIN};
use crate::drivers::redis::error::{explain, is_unknown_script};
use crate::drivers::redis::incarnation::info;
use crate::drivers::redis::link::PAUSES;
use crate::error::{Error, ErrorKind, Result};

/// One of a layout's scripts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Script {
    Acquire,
    Extend,
    Release,
    Look,
    Evict,
}

/// A way to one server.
pub(super) struct Link {
    pub(super) address: Arc<str>,
    /// Whether the server keeps what it answered over a restart.
    pub(super) keeps_its_data: bool,
    manager: ConnectionManager,
    scripts: &'static Scripts,
    shas: Vec<String>,
    /// The channels that are listened to. Whoever changes that holds this until the server knows.
    channels: Mutex<HashSet<String>>,
}

impl Link {
    /// Connects, and refuses a server that locks cannot be trusted to. `hear` takes what the server pushes.
    pub(super) async fn open(
        config: &RedisConfig,
        scripts: &'static Scripts,
        hear: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Link> {
        config.check()?;
        let address: Arc<str> = config.address().into();
        let fail = |e: &RedisError| explain("connect", &address, e, false);
        let Topology::One(server) = &config.topology else {
            // `check` has refused it.
            return Err(
                Error::new(ErrorKind::Unsupported, "connect", "layouts are for one server").at(&address)
            );
        };
        let client = dial::caller(config, server, &address)?;
        // The manager tries for ever; the first connection of all is to fail at once, and say why.
        let within = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_WITHIN))
            .set_response_timeout(Some(CONNECT_WITHIN));
        let mut first = dial::server(config, server, within, &address).await?;
        let info = info(&mut first).await.map_err(|e| fail(&e))?;
        info.check(config, false, false, &address)?;
        let mut shas = Vec::new();
        for text in scripts {
            let sha: String = redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(*text)
                .query_async(&mut first)
                .await
                .map_err(|e| fail(&e))?;
            shas.push(sha);
        }
        let settings = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT_WITHIN))
            // Deadlines come from above.
            .set_response_timeout(None)
            .set_number_of_retries(usize::MAX)
            .set_min_delay(PAUSES.0)
            .set_max_delay(PAUSES.1)
            .set_pipeline_buffer_size(1024)
            .set_push_sender(move |push| {
                hear(push);
                Ok::<(), std::convert::Infallible>(())
            })
            .set_automatic_resubscription();
        let manager = client.get_connection_manager_with_config(settings).await.map_err(|e| fail(&e))?;
        Ok(Link {
            keeps_its_data: info.keeps_its_data(),
            address,
            manager,
            scripts,
            shas,
            channels: Mutex::default(),
        })
    }

    /// Sends a command. It is sent when the future is first polled, in one order for all callers.
    pub(super) async fn send(&self, operation: &'static str, cmd: &Cmd) -> Result<Value> {
        self.raw(cmd).await.map_err(|e| explain(operation, &self.address, &e, true))
    }

    /// Runs a script.
    pub(super) async fn run(
        &self,
        operation: &'static str,
        script: Script,
        keys: &[String],
        args: &[String],
    ) -> Result<Vec<Value>> {
        let call = |how: &str, what: &str| {
            let mut cmd = redis::cmd(how);
            cmd.arg(what).arg(keys.len()).arg(keys).arg(args);
            cmd
        };
        let answer = match self.raw(&call("EVALSHA", &self.shas[script as usize])).await {
            // A restarted server has forgotten it; from now on it knows it again.
            Err(e) if is_unknown_script(&e) => self.raw(&call("EVAL", self.scripts[script as usize])).await,
            answer => answer,
        };
        match answer.map_err(|e| explain(operation, &self.address, &e, true))? {
            Value::Array(parts) => Ok(parts),
            _ => Err(crate::drivers::redis::error::nonsense(operation, &self.address)),
        }
    }

    async fn raw(&self, cmd: &Cmd) -> RedisResult<Value> {
        // An error of the server is a value like others until it is asked for.
        self.manager.clone().send_packed_command(cmd).await?.extract_error()
    }

    /// Listens to a channel. `true` if it did not before: what was said until now was not heard.
    pub(super) async fn listen(&self, channel: &str) -> Result<bool> {
        let mut channels = self.channels.lock().await;
        if channels.contains(channel) {
            return Ok(false);
        }
        self.manager
            .clone()
            .subscribe(channel)
            .await
            .map_err(|e| explain("join", &self.address, &e, true))?;
        channels.insert(channel.to_owned());
        Ok(true)
    }

    /// Stops listening to a channel, unless somebody needs it again.
    pub(super) async fn stop_listening(&self, channel: &str, needed: impl FnOnce() -> bool + Send) {
        let mut channels = self.channels.lock().await;
        // Forgotten first: if this future is dropped half-way, whoever comes next subscribes once more than necessary.
        if needed() || !channels.remove(channel) {
            return;
        }
        let mut manager = self.manager.clone();
        if !matches!(tokio::time::timeout(QUIET_WITHIN, manager.unsubscribe(channel)).await, Ok(Ok(()))) {
            tracing::debug!("could not stop listening to a channel; its messages will be ignored");
        }
    }
}

/// Nobody waits for a channel to fall silent.
const QUIET_WITHIN: Duration = Duration::from_millis(500);

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("address", &self.address).finish_non_exhaustive()
    }
}
