//! Whom to believe, and how to show who we are, on a connection that nobody else can read.

use std::path::PathBuf;
use std::sync::Arc;

use redis::{ClientTlsConfig, TlsCertificates};

use crate::error::{Error, ErrorKind, Result};

/// TLS by rustls: whom to believe, and how to show who we are.
///
/// The server's certificate must name the host of the address; with Sentinel and Cluster, the hosts that those tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    ca: Option<PathBuf>,
    client: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// TLS that believes whomever this machine believes.
    pub fn new() -> Tls {
        Tls::default()
    }

    /// Believes only certificates that these authorities signed: a file in PEM form.
    ///
    /// Default: the machine's own list, because that is where its administrator adds to it.
    #[must_use]
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Tls {
        self.ca = Some(file.into());
        self
    }

    /// Shows this certificate, and proves it with this key: two files in PEM form.
    ///
    /// Default: none. Redis asks for one unless it is told not to (`tls-auth-clients no`).
    #[must_use]
    pub fn client(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Tls {
        self.client = Some((cert.into(), key.into()));
        self
    }

    /// Reads the files, anew for every connection: certificates are renewed while programs run.
    pub(super) fn read(&self, address: &Arc<str>) -> Result<TlsCertificates> {
        choose_cryptography();
        let read = |file: &PathBuf| {
            std::fs::read(file).map_err(|error| {
                let message = format!("cannot read {}", file.display());
                Error::new(ErrorKind::Invalid, "connect", message)
                    .hint("ca, cert and key name files in PEM form")
                    .caused_by(error)
                    .at(address)
            })
        };
        let client_tls = match &self.client {
            Some((cert, key)) => Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
            None => None,
        };
        Ok(TlsCertificates { client_tls, root_cert: self.ca.as_ref().map(read).transpose()? })
    }
}

/// rustls panics if a process has not chosen its cryptography and several are built in. A program that chose keeps its
/// choice.
fn choose_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may have chosen at this very moment: that is as good.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}
