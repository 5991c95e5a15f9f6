//! Users with a password, by every way that a server is reached.

use std::sync::Arc;
use std::time::Duration;

use super::server::{Kind, Server};
use super::{claim, included, is_in, open};
use crate::driver::Driver;
use crate::drivers::mysql::{Mysql, MysqlConfig, Tls};
use crate::drivers::testing::Heard;
use crate::error::ErrorKind;
use crate::line::Mode;

const LEASE: Duration = Duration::from_secs(10);

async fn locks_on(config: MysqlConfig) {
    let (mysql, _) = open(config).await;
    let held = claim("a", Mode::Exclusive, LEASE);
    let standing = mysql.join(&held, true).await.unwrap();
    assert!(is_in(&standing), "{standing:?}");
    mysql.leave(&super::place(&held, standing.ticket())).await.unwrap();
}

/// A server that was restarted has forgotten every password, and asks for it itself once: over plain TCP so that only it can read it.
#[tokio::test]
async fn a_password_is_taken_by_a_server_that_has_just_been_started() {
    let Some(database) = included().await else { return };
    database.done().await;
    let mut server = Server::start().await;
    server
        .run("CREATE USER 'careful'@'%' IDENTIFIED BY 's\u{e9}cret'; GRANT ALL ON locks.* TO 'careful'@'%'")
        .await;
    let config = server.config.clone().login("careful", "s\u{e9}cret");
    for _ in 0..2 {
        server.kill();
        server.start_again().await;
        // The first with a cold cache, the second with a warm one.
        locks_on(config.clone()).await;
        locks_on(config.clone()).await;
    }
    server.kill();
    server.start_again().await;
    // Without TCP, and again cold.
    locks_on(config.clone().socket(server.file("socket"))).await;
    let wrong =
        Mysql::connect(config.login("careful", "c4nary"), Arc::new(Heard::default())).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Denied, "{wrong:?}");
    assert!(!format!("{wrong:?}").contains("c4nary"));
}

/// The certificates that MySQL makes for itself name no host. MariaDB (before 11.4) makes none.
#[tokio::test]
async fn certificates_that_mysql_made_for_itself_do_with_their_authority() {
    let Some(database) = included().await else { return };
    database.done().await;
    if Kind::of_this_run() == Kind::Mariadb {
        // It makes no certificates for itself.
        crate::drivers::testing::left_out("mysql-9");
        return;
    }
    let mut server = Server::start().await;
    server.run("CREATE USER 'careful'@'%' IDENTIFIED BY 'secret' REQUIRE SSL; GRANT ALL ON locks.* TO 'careful'@'%'").await;
    let authority = server.file("data/ca.pem");
    let config = server.config.clone().login("careful", "secret");
    server.kill();
    server.start_again().await;
    locks_on(config.clone().tls(Tls::Chain(authority.clone()))).await;
    let named =
        Mysql::connect(config.clone().tls(Tls::Authority(authority)), Arc::new(Heard::default())).await;
    let error = named.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.hint_text().unwrap().contains("verify_ca"), "{error:?}");
    // An authority of somebody else's server has signed nothing here.
    let other = Server::start().await;
    let wrong = Tls::Chain(other.file("data/ca.pem"));
    let error = Mysql::connect(config.tls(wrong), Arc::new(Heard::default())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
}

#[tokio::test]
async fn a_server_that_is_full_says_so_and_lets_a_lane_in_later() {
    let Some(database) = included().await else { return };
    database.done().await;
    let server = Server::start_with(&["--max-connections=10"]).await;
    let user = "CREATE USER 'few'@'%' IDENTIFIED BY '' WITH MAX_USER_CONNECTIONS 2; GRANT ALL ON locks.* TO 'few'@'%'";
    server.run(user).await;
    // The operator makes the tables.
    locks_on(server.config.clone()).await;
    let config = server.config.clone().login("few", "");
    let (first, _) = open(config.clone()).await;
    let second = open(config.clone()).await;
    let error = Mysql::connect(config.clone(), Arc::new(Heard::default())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error:?}");
    assert!(error.kind().is_transient());
    // Whoever has a session goes on.
    let held = claim("a", Mode::Exclusive, LEASE);
    assert!(is_in(&first.join(&held, true).await.unwrap()));
    drop(second);
    let begun = std::time::Instant::now();
    while Mysql::connect(config.clone(), Arc::new(Heard::default())).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "nobody is let in");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
