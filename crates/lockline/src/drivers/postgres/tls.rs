//! Certificates: what a server's is checked against.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::config::Tls;
use crate::error::{Error, ErrorKind, Result};

/// What makes a connection safe; `None` if it is to be left as it is.
pub(super) fn connector(tls: &Tls) -> Result<Option<MakeRustlsConnect>> {
    let roots = match tls {
        Tls::Off => return Ok(None),
        Tls::System => system()?,
        Tls::Authority(file) => from_file(file)?,
    };
    // Named, because a library must not rely on one that the program has, or has not, installed.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| bad("TLS cannot be set up").caused_by(e))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Some(MakeRustlsConnect::new(config)))
}

fn system() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(bad("this system has no certificate authorities").hint("name a file with sslrootcert="));
    }
    Ok(roots)
}

fn from_file(file: &Path) -> Result<RootCertStore> {
    let unusable = |why: String| {
        bad("the file of certificate authorities cannot be used")
            .hint("sslrootcert= names a file in PEM format that this process may read")
            .caused_by(why)
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|e| unusable(e.to_string()))? {
        let certificate = certificate.map_err(|e| unusable(e.to_string()))?;
        roots.add(certificate).map_err(|e| unusable(e.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unusable("it contains no certificate".to_owned()));
    }
    Ok(roots)
}

fn bad(message: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "connect", message)
}
