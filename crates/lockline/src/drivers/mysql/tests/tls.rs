//! TLS: the certificate is checked, and nothing falls back in silence.

use std::sync::Arc;
use std::time::Duration;

use super::server::Server;
use super::{claim, included, is_in, open};
use crate::driver::Driver;
use crate::drivers::mysql::{Mysql, MysqlConfig, Tls};
use crate::drivers::relational::certificates::Certificates;
use crate::drivers::testing::Heard;
use crate::error::{Error, ErrorKind};
use crate::line::Mode;

async fn refused(config: MysqlConfig) -> Error {
    Mysql::connect(config, Arc::new(Heard::default())).await.unwrap_err()
}

#[tokio::test]
async fn certificates_are_checked() {
    let Some(database) = included().await else { return };
    database.done().await;
    let certificates = Certificates::make();
    let mut server = Server::start().await;
    let authority = |name: &str| Tls::Authority(certificates.file(name));
    let mut config = server.config.clone();
    config.host = "localhost".to_owned();
    // The server speaks no TLS yet: that is no reason to go without.
    refused(config.clone().tls(authority("ca.pem"))).await;

    server.kill();
    for (option, file) in [("ssl-cert", "server.pem"), ("ssl-key", "server.key"), ("ssl-ca", "ca.pem")] {
        server.options.push(format!("--{option}={}", certificates.file(file).display()));
    }
    server.start_again().await;
    server.run("CREATE USER 'careful'@'%' IDENTIFIED BY 'secret' REQUIRE SSL").await;
    server.run("GRANT ALL ON locks.* TO 'careful'@'%'").await;
    let config = config.login("careful", "secret");
    // The server lets this user in with TLS alone, so what it answers came that way.
    assert_eq!(refused(config.clone()).await.kind(), ErrorKind::Denied);
    let (mysql, _) = open(config.clone().tls(authority("ca.pem"))).await;
    let held = claim("a", Mode::Exclusive, Duration::from_secs(10));
    assert!(is_in(&mysql.join(&held, true).await.unwrap()));

    refused(config.clone().tls(authority("other.pem"))).await;
    refused(config.clone().tls(authority("missing.pem"))).await;
    // Signed by nobody whom browsers trust.
    refused(config.clone().tls(Tls::On)).await;
    // Right authority, wrong name.
    let mut elsewhere = config.tls(authority("ca.pem"));
    elsewhere.host = "127.0.0.1".to_owned();
    refused(elsewhere).await;
}
