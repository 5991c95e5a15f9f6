//! TLS: the certificate is checked, and nothing falls back in silence.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::{Server, claim, included, is_in, open};
use crate::driver::Driver;
use crate::drivers::postgres::{Postgres, Tls};
use crate::drivers::testing::Heard;
use crate::line::Mode;

fn openssl(args: &[&str]) {
    let out =
        Command::new("openssl").args(args).output().expect("openssl cannot be started: is it installed?");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[tokio::test]
async fn certificates_are_checked() {
    if included().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    for authority in ["ca", "other"] {
        let (key, cert) = (path(&format!("{authority}.key")), path(&format!("{authority}.pem")));
        openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=lockline test",
            "-keyout",
            &key,
            "-out",
            &cert,
        ]);
    }
    let (key, request, cert) = (path("server.key"), path("server.csr"), path("server.pem"));
    openssl(&[
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=server",
        "-keyout",
        &key,
        "-out",
        &request,
    ]);
    std::fs::write(dir.path().join("ext"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
        .unwrap();
    openssl(&[
        "x509",
        "-req",
        "-in",
        &request,
        "-CA",
        &path("ca.pem"),
        "-CAkey",
        &path("ca.key"),
        "-CAcreateserial",
        "-days",
        "2",
        "-extfile",
        &path("ext"),
        "-out",
        &cert,
    ]);
    let mut server = Server::start("");
    server.append("server.crt", &std::fs::read_to_string(cert).unwrap());
    server.append("server.key", &std::fs::read_to_string(key).unwrap());
    let of_postgres = format!(
        "chown postgres {0}/server.key {0}/server.crt 2>/dev/null; chmod 600 {0}/server.key",
        server.data().display()
    );
    Command::new("sh").args(["-c", &of_postgres]).status().unwrap();

    let mut config = server.config();
    config.hosts[0].0 = "localhost".to_owned();
    let authority = |name: &str| Tls::Authority(dir.path().join(name));
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
