//! Addresses as people have them: a Unix socket with peer authentication, libpq's options; and a server that is full of sessions.

use std::sync::Arc;
use std::time::Duration;

use super::{Server, claim, included, is_in, open};
use crate::Locks;
use crate::driver::Driver;
use crate::drivers::postgres::{Postgres, PostgresConfig, Tls};
use crate::drivers::testing::Heard;
use crate::error::ErrorKind;
use crate::line::Mode;
use crate::url::EngineUrl;

const LEASE: Duration = Duration::from_secs(10);

/// As a stock Debian has it: who comes by the socket is who the operating system says.
#[tokio::test]
async fn a_unix_socket_with_peer_authentication() {
    if included().is_none() {
        return;
    }
    let server = Server::start("");
    let me = String::from_utf8(std::process::Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let me = me.trim();
    if me != "postgres" {
        server.ask(&format!("CREATE ROLE \"{me}\" LOGIN SUPERUSER")).unwrap();
    }
    let hba = "local all all peer\nhost all all 127.0.0.1/32 trust\n";
    std::fs::write(server.data().join("pg_hba.conf"), hba).unwrap();
    server.ask("SELECT pg_reload_conf()").unwrap();
    let folder = server.data().display().to_string();
    let (query, encoded) = (format!("host={folder}&port={}", server.port), folder.replace('/', "%2F"));
    for (address, name) in [
        (format!("postgres:///postgres?{query}"), "lockline"),
        (
            format!("postgresql://{encoded}/postgres?port={}&application_name=nightly%20job", server.port),
            "nightly job",
        ),
        (format!("postgres:///postgres?{query}&sslmode=prefer&user={me}"), "lockline"),
    ] {
        let config = PostgresConfig::from_url(EngineUrl::parse(&address).unwrap()).unwrap();
        let (postgres, _) = open(config).await;
        let held = claim(&address, Mode::Exclusive, LEASE);
        assert!(is_in(&postgres.join(&held, true).await.unwrap()), "{address}");
        assert_eq!(postgres.info().address.as_ref(), format!("postgres:///postgres?{query}"));
        let sessions = format!(
            "SELECT usename, client_addr IS NULL FROM pg_stat_activity WHERE application_name = '{name}'"
        );
        assert_eq!(
            server.ask(&sessions).as_deref(),
            Some(format!("{me}|t").as_str()),
            "{address}: one session"
        );
    }
    // The operating system says that we are somebody else.
    let other = format!("postgres:///postgres?{query}&user=nobody");
    let config = PostgresConfig::from_url(EngineUrl::parse(&other).unwrap()).unwrap();
    let error = Postgres::connect(config, Arc::new(Heard::default())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
}

#[tokio::test]
async fn tls_that_is_preferred_and_tls_that_is_demanded() {
    let Some(config) = included() else { return };
    // The server of the tests has none.
    let error =
        Postgres::connect(config.clone().tls(Tls::System), Arc::new(Heard::default())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
    assert!(error.to_string().contains("does not speak TLS"), "{error}");
    open(config.clone().tls(Tls::Prefer)).await;
    super::drop_schema(&config).await;
}

/// Whoever waits costs the server one session; and whoever finds no room is told when to come again.
#[tokio::test]
async fn a_waiting_client_has_one_session_and_a_full_server_says_when_to_come_again() {
    let Some(config) = included() else { return };
    let operator = super::operator(&config).await;
    let role = super::fresh("role");
    let make = format!("CREATE ROLE {role} LOGIN SUPERUSER CONNECTION LIMIT 2");
    operator.batch_execute(&make).await.unwrap();
    // A superuser has no limit: only what it made first needs that right.
    let connect = async |name: &str| {
        let config = config.clone().login(&role, "").application_name(name);
        Locks::builder().lease(LEASE).postgres(config).await
    };
    let first = connect("first").await.unwrap();
    operator.batch_execute(&format!("ALTER ROLE {role} NOSUPERUSER")).await.unwrap();
    let held = first.mutex("m").lock().await.unwrap();
    let second = connect("second").await.unwrap();
    let mutex = second.mutex("m");
    let waits = tokio::spawn(async move { mutex.lock().await });
    while first.show("m").await.unwrap().waiters.is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let count = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1";
    let sessions: i64 = operator.query_one(count, &[&role]).await.unwrap().get(0);
    assert_eq!(sessions, 2, "one each");
    let full = connect("third").await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Limit, "{full:?}");
    assert!(
        full.retry_after().is_some() && full.hint_text().unwrap().contains("max_connections"),
        "{full:?}"
    );
    held.release().await.unwrap();
    let got = waits.await.unwrap().unwrap();
    got.release().await.unwrap();
    drop((first, second));
    let gone = async || operator.query_one(count, &[&role]).await.unwrap().get::<_, i64>(0) == 0;
    while !gone().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    super::drop_schema(&config).await;
    operator
        .batch_execute(&format!(
            "REASSIGN OWNED BY {role} TO postgres; DROP OWNED BY {role}; DROP ROLE {role}"
        ))
        .await
        .unwrap();
}
