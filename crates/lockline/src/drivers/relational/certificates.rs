//! Certificates for servers of tests.

use std::path::PathBuf;
use std::process::Command;

/// The authorities `ca.pem` and `other.pem`, and what `ca` signed for `localhost`: `server.pem` with `server.key`. All in a folder
/// that goes with this.
pub(in crate::drivers) struct Certificates(tempfile::TempDir);

impl Certificates {
    pub(in crate::drivers) fn make() -> Certificates {
        let made = Certificates(tempfile::tempdir().unwrap());
        let path = |file: &str| made.file(file).display().to_string();
        let new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        for authority in ["ca", "other"] {
            let (key, cert) = (path(&format!("{authority}.key")), path(&format!("{authority}.pem")));
            let what = ["-x509", "-days", "2", "-subj", "/CN=lockline test", "-keyout", &key, "-out", &cert];
            openssl("req", &[&new_key[..], &what].concat());
        }
        let (key, request) = (path("server.key"), path("server.csr"));
        let what = ["-subj", "/CN=server", "-keyout", &key, "-out", &request];
        openssl("req", &[&new_key[..], &what].concat());
        let extensions = "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n";
        std::fs::write(made.file("extensions"), extensions).unwrap();
        let (ca, ca_key, cert, extensions) =
            (path("ca.pem"), path("ca.key"), path("server.pem"), path("extensions"));
        let by = ["-req", "-in", &request, "-CA", &ca, "-CAkey", &ca_key, "-CAcreateserial", "-days", "2"];
        openssl("x509", &[&by[..], &["-extfile", &extensions, "-out", &cert]].concat());
        made
    }

    pub(in crate::drivers) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn openssl(command: &str, args: &[&str]) {
    let out = Command::new("openssl").arg(command).args(args).output();
    let out = out.expect("openssl cannot be started: is it installed?");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
