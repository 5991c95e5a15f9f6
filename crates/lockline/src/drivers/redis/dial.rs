//! How one server is called.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
    RedisResult, TlsCertificates,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::address::Address;
use super::config::{Login, RedisConfig};
use super::error::explain;
use crate::error::{Error, ErrorKind, Result};

/// How long one attempt to connect may take, with all that has to be asked before the connection is of use.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long a greeting in TLS may be unanswered before it is found out whether the server speaks plain text. Not sooner: a server
/// that hundreds of clients come back to at once is slow for a while, and is not to have twice as many connections.
const TLS_WITHIN: Duration = Duration::from_millis(1500);
/// After how long without an acknowledgement a connection is given up.
#[cfg(target_os = "linux")]
const SILENT_FOR: Duration = Duration::from_secs(10);

/// Connects to a server that keeps locks.
pub(super) async fn server(
    config: &RedisConfig,
    server: &Address,
    settings: AsyncConnectionConfig,
    shown: &Arc<str>,
) -> Result<MultiplexedConnection> {
    dial(config, server, login(&config.login, config.database), settings, shown).await
}

/// Connects to a Sentinel.
pub(super) async fn sentinel(
    config: &RedisConfig,
    sentinel: &Address,
    within: Duration,
    shown: &Arc<str>,
) -> Result<MultiplexedConnection> {
    let settings =
        AsyncConnectionConfig::new().set_connection_timeout(Some(within)).set_response_timeout(Some(within));
    dial(config, sentinel, login(&config.sentinel_login, 0), settings, shown).await
}

/// Settings for a connection whose callers have deadlines of their own.
pub(super) fn patient() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_WITHIN))
        .set_response_timeout(None)
        .set_pipeline_buffer_size(1024)
}

/// A step of connecting that a silent server must not hold up for ever.
pub(super) async fn in_time<T>(shown: &Arc<str>, step: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(CONNECT_WITHIN, step).await.unwrap_or_else(|_| {
        let (message, hint) = silent(shown);
        Err(Error::new(ErrorKind::Unavailable, "connect", message).hint(hint).at(shown))
    })
}

/// What is to be said of a server that does not answer: one that speaks plain text reads a greeting in TLS for ever.
pub(super) fn silent(shown: &str) -> (&'static str, &'static str) {
    if shown.starts_with("rediss") {
        let hint = "this port may speak plain text: name the port that speaks TLS, or write redis:// in a trusted network";
        ("the server does not answer in TLS", hint)
    } else {
        (
            "the server does not answer",
            "check that it runs, the address and the network; a port that speaks TLS is rediss://",
        )
    }
}

fn login(login: &Login, database: i64) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_db(database)
        // Redis 7.0 has no such command, and an access list that allows it is refused there.
        .set_skip_set_lib_name();
    if let Some(user) = &login.user {
        info = info.set_username(user);
    }
    if let Some(password) = &login.password {
        info = info.set_password(password);
    }
    info
}

/// What makes connections to a server that keeps locks, for who keeps them itself.
pub(super) fn caller(config: &RedisConfig, server: &Address, shown: &Arc<str>) -> Result<Client> {
    client_of(config, server, login(&config.login, config.database), shown)
}

fn client_of(
    config: &RedisConfig,
    server: &Address,
    login: RedisConnectionInfo,
    shown: &Arc<str>,
) -> Result<Client> {
    let certificates = config.tls.as_ref().map(|tls| tls.read(shown)).transpose()?;
    client(server, login, certificates).map_err(|e| explain("connect", shown, &e, false))
}

async fn dial(
    config: &RedisConfig,
    server: &Address,
    login: RedisConnectionInfo,
    settings: AsyncConnectionConfig,
    shown: &Arc<str>,
) -> Result<MultiplexedConnection> {
    let client = client_of(config, server, login, shown)?;
    let connecting = client.get_multiplexed_async_connection_with_config(&settings);
    let connected = match server {
        Address::Tcp(host, port) if config.tls.is_some() => tokio::select! {
            biased;
            connected = connecting => connected,
            () = until_plain_text(host, *port) => {
                let (kind, message, hint) = PLAIN_TEXT;
                return Err(Error::new(kind, "connect", message).hint(hint).at(shown));
            }
        },
        _ => connecting.await,
    };
    connected.map_err(|e| explain("connect", shown, &e, false))
}

/// Returns if the server turns out to speak plain text. Redis takes a greeting in TLS for the beginning of a command and
/// waits for the end of its line; a command of its own, which says nothing about us, it answers at once.
async fn until_plain_text(host: &str, port: u16) {
    tokio::time::sleep(TLS_WITHIN).await;
    let answers = async {
        let mut stream = TcpStream::connect((host, port)).await?;
        stream.write_all(b"PING\r\n").await?;
        stream.read_u8().await
    };
    // A server that speaks TLS sends an alert, or ends the connection.
    if !matches!(answers.await, Ok(b'+' | b'-')) {
        std::future::pending::<()>().await;
    }
}

/// What is said of a server that has shown that it speaks plain text.
pub(super) const PLAIN_TEXT: (ErrorKind, &str, &str) = (
    ErrorKind::Unsupported,
    "the server answers in plain text, and the address demands TLS",
    "name the port that speaks TLS, or write redis:// in a trusted network",
);

fn client(
    server: &Address,
    login: RedisConnectionInfo,
    certificates: Option<TlsCertificates>,
) -> RedisResult<Client> {
    let address = match server {
        Address::Tcp(host, port) if certificates.is_some() => {
            ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
        }
        Address::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
        Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
    };
    let tcp = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(SILENT_FOR);
    let info = address.into_connection_info()?.set_redis_settings(login).set_tcp_settings(tcp);
    match certificates {
        Some(certificates) => Client::build_with_tls(info, certificates),
        None => Client::open(info),
    }
}
