//! TLS, with certificates made for the test: what is trusted, what is shown, and what is refused.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Ensemble, included};
use crate::Locks;
use crate::error::ErrorKind;

/// Makes an authority, and a certificate of it for each of these.
fn certificates(folder: &Path, names: &[&str]) {
    let openssl = |args: &[&str]| {
        let made =
            Command::new("openssl").args(args).current_dir(folder).output().expect("openssl is installed");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    openssl(
        &[
            &["req", "-x509", "-subj", "/CN=authority", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem"],
            &key[..],
        ]
        .concat(),
    );
    std::fs::write(
        folder.join("ext"),
        "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n",
    )
    .unwrap();
    for name in names {
        let [request, secret, out] = ["csr", "key", "crt"].map(|kind| format!("{name}.{kind}"));
        let subject = format!("/CN={name}");
        openssl(&[&["req", "-subj", &subject, "-keyout", &secret, "-out", &request], &key[..]].concat());
        openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "ext",
            "-out",
            &out,
        ]);
        // The server wants its key and its certificate in one file.
        let both = [&secret, &out].map(|file| std::fs::read_to_string(folder.join(file)).unwrap()).concat();
        std::fs::write(folder.join(format!("{name}.pem")), both).unwrap();
    }
}

/// Waits until the server has shaken a hand: the first time takes a Java machine on a busy one longer than a client waits.
fn until_it_shakes_hands(port: u16, folder: &Path) {
    let start = std::time::Instant::now();
    let shake = || {
        let address = format!("127.0.0.1:{port}");
        let mut client = Command::new("openssl");
        client.args(["s_client", "-connect", &address, "-CAfile", "ca.pem", "-verify_return_error"]);
        client.args(["-cert", "client.crt", "-key", "client.key"]).current_dir(folder);
        client.stdin(std::process::Stdio::null()).output().is_ok_and(|said| said.status.success())
    };
    while !shake() {
        assert!(start.elapsed() < Duration::from_secs(60), "the server does not speak TLS");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_over_tls() {
    if !included() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path(), &["server", "client"]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let at = |file: &str| folder.path().join(file).display().to_string();
    let _ensemble = Ensemble::with(
        1,
        &format!(
            "secureClientPort={port}\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={}\nssl.trustStore.location={}\nssl.clientAuth=need\n",
            at("server.pem"),
            at("ca.pem")
        ),
    );
    until_it_shakes_hands(port, folder.path());
    let shown = format!("&cert={}&key={}", at("client.crt"), at("client.key"));
    let url = |options: &str| format!("zookeepers://127.0.0.1:{port}/locks?{options}");
    let trusted = format!("ca={}{shown}", at("ca.pem"));
    let locks = Locks::connect(&url(&trusted)).await.unwrap();
    let guard = locks.mutex("m").lock().await.unwrap();
    assert!(locks.mutex("m").try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();

    // Without a certificate of ours, with trust in somebody else, and without TLS at all.
    let elsewhere = tempfile::tempdir().unwrap();
    certificates(elsewhere.path(), &[]);
    let distrusted = format!("ca={}{shown}", elsewhere.path().join("ca.pem").display());
    let plain = format!("zookeeper://127.0.0.1:{port}/locks");
    for url in [url(&format!("ca={}", at("ca.pem"))), url(&distrusted), plain] {
        let refused = tokio::time::timeout(Duration::from_secs(30), Locks::connect(&url)).await;
        let error = refused.expect("it is refused in time").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    }
}
