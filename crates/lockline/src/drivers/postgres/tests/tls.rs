//! TLS: the certificate is checked, and nothing falls back in silence.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::{Server, claim, included, is_in, open};
use crate::driver::Driver;
use crate::drivers::postgres::{Postgres, Tls};
use crate::drivers::relational::certificates::Certificates;
use crate::drivers::testing::Heard;
use crate::line::Mode;

#[tokio::test]
async fn certificates_are_checked() {
    if included().is_none() {
        return;
    }
    let certificates = Certificates::make();
    let mut server = Server::start("");
    server.append("server.crt", &std::fs::read_to_string(certificates.file("server.pem")).unwrap());
    server.append("server.key", &std::fs::read_to_string(certificates.file("server.key")).unwrap());
    let of_postgres = format!(
        "chown postgres {0}/server.key {0}/server.crt 2>/dev/null; chmod 600 {0}/server.key",
        server.data().display()
    );
    Command::new("sh").args(["-c", &of_postgres]).status().unwrap();

    let mut config = server.config();
    config.hosts[0].0 = "localhost".to_owned();
    let authority = |name: &str| Tls::Authority(certificates.file(name));
    let fails = async |config| Postgres::connect(config, Arc::new(Heard::default())).await.unwrap_err();
    // The server speaks no TLS yet: that is no reason to go without.
    fails(config.clone().tls(authority("ca.pem"))).await;
    server.append("postgresql.conf", "\nssl=on\n");
    server.kill();
    server.start_again();
    let (postgres, _) = open(config.clone().tls(authority("ca.pem"))).await;
    let held = claim("a", Mode::Exclusive, Duration::from_secs(10));
    assert!(is_in(&postgres.join(&held, true).await.unwrap()));
    assert_eq!(server.ask("SELECT bool_or(ssl) FROM pg_stat_ssl").as_deref(), Some("t"));
    fails(config.clone().tls(authority("other.pem"))).await;
    fails(config.clone().tls(authority("missing.pem"))).await;
    // Right authority, wrong name.
    config.hosts[0].0 = "127.0.0.1".to_owned();
    fails(config.tls(authority("ca.pem"))).await;
}
