//! Users who may not, servers that must not be written to, and the grants of the guide.

use std::sync::Arc;
use std::time::Duration;

use super::{Server, claim, included, is_in, open, place};
use crate::driver::{Driver, Query};
use crate::drivers::postgres::{Pooler, Postgres, PostgresConfig};
use crate::drivers::testing::Heard;
use crate::error::{Error, ErrorKind};
use crate::line::{Mode, News};

const CANARY: &str = "c4nary";
const LEASE: Duration = Duration::from_secs(10);

async fn refused(config: PostgresConfig) -> Error {
    let error = Postgres::connect(config, Arc::new(Heard::default())).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains(CANARY), "{error:?}");
    error
}

/// The grants of the guide, as they are printed there.
fn grants() -> String {
    let guide = include_str!("../GUIDE.md");
    guide.split("```sql\n").nth(1).expect("the guide has the grants").split("```").next().unwrap().to_owned()
}

#[tokio::test]
async fn logins_and_the_grants_of_the_guide() {
    if included().is_none() {
        return;
    }
    let server = Server::start("");
    server.ask("CREATE ROLE locks LOGIN PASSWORD 'secret'").unwrap();
    let hba = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(server.data().join("pg_hba.conf"), hba).unwrap();
    server.ask("SELECT pg_reload_conf()").unwrap();
    let config = server.config().login("locks", "secret");
    assert_eq!(refused(server.config().login("locks", CANARY)).await.kind(), ErrorKind::Denied);
    assert_eq!(refused(server.config().login("nobody", CANARY)).await.kind(), ErrorKind::Denied);

    let error = refused(config.clone()).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.hint_text().unwrap().contains("lockline schema postgres"), "{error:?}");

    // The operator makes the schema; the application gets its rights.
    server.ask(&crate::drivers::postgres::schema_sql("lockline")).unwrap();
    for grant in grants().lines().filter(|line| line.starts_with("GRANT")) {
        server.ask(grant).unwrap();
    }
    let (postgres, heard) = open(config).await;
    let (first, second) = (claim("a", Mode::Exclusive, LEASE), claim("a", Mode::Exclusive, LEASE));
    let ticket = postgres.join(&first, true).await.unwrap().ticket();
    assert!(!is_in(&postgres.join(&second, true).await.unwrap()));
    postgres.renew(&[place(&first, ticket)]).await.unwrap();
    assert_eq!(postgres.view(&Query::Prefix(String::new())).await.unwrap().len(), 1);
    assert!(postgres.evict(&first.name, ticket.unwrap(), true).await.unwrap());
    assert_eq!(heard.next().await.1.news, News::In);
    postgres.leave(&place(&second, None)).await.unwrap();

    let held = claim("a", Mode::Exclusive, LEASE);
    postgres.join(&held, true).await.unwrap();
    server.ask("REVOKE UPDATE ON ALL TABLES IN SCHEMA lockline FROM locks").unwrap();
    let error = postgres.leave(&place(&held, None)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
}

#[tokio::test]
async fn what_a_lock_cannot_be_trusted_to() {
    if included().is_none() {
        return;
    }
    let server = Server::start("");
    drop(open(server.config()).await);
    // Behind a pooler the session's settings are not ours.
    server.ask("ALTER DATABASE postgres SET default_transaction_isolation = 'repeatable read'").unwrap();
    let (pooled, _) = open(server.config().pooler(Pooler::Transaction)).await;
    let error = pooled.join(&claim("a", Mode::Exclusive, LEASE), true).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsafe, "{error:?}");
    let (direct, _) = open(server.config()).await;
    assert!(is_in(&direct.join(&claim("a", Mode::Exclusive, LEASE), true).await.unwrap()));

    server.ask("UPDATE lockline.meta SET version = 99").unwrap();
    assert_eq!(refused(server.config()).await.kind(), ErrorKind::Unsupported);
    let mut elsewhere = server.config();
    elsewhere.login.database = "nothing".to_owned();
    assert_eq!(refused(elsewhere).await.kind(), ErrorKind::Unsupported);
    let port = server.port;
    drop(server);
    let gone = PostgresConfig::new("127.0.0.1", port, "postgres");
    assert_eq!(refused(gone).await.kind(), ErrorKind::Unavailable);
}
