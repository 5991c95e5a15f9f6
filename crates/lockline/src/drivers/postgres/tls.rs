//! Certificates: what a server's is checked against.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::config::Tls;
use crate::drivers::relational::{authorities_of, system_authorities};
use crate::error::{Error, ErrorKind, Result};

/// What makes a connection safe; `None` if it is to be left as it is.
pub(super) fn connector(tls: &Tls) -> Result<Option<MakeRustlsConnect>> {
    let roots = match tls {
        Tls::Off => return Ok(None),
        Tls::System => Some(system_authorities("sslrootcert")?),
        Tls::Authority(file) => Some(authorities_of(file, "sslrootcert")?),
        Tls::Prefer => None,
    };
    // Named, because a library must not rely on one that the program has, or has not, installed.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| bad("TLS cannot be set up").caused_by(e))?;
    let config = match roots {
        Some(roots) => builder.with_root_certificates(roots).with_no_client_auth(),
        None => {
            let unchecked = Arc::new(Unchecked(provider));
            builder.dangerous().with_custom_certificate_verifier(unchecked).with_no_client_auth()
        }
    };
    Ok(Some(MakeRustlsConnect::new(config)))
}

/// Whoever answers is the server: what `sslmode=prefer` asks for.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn bad(message: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "connect", message)
}
