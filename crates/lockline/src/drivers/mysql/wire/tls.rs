//! TLS: what a server's certificate is checked against.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;

use super::channel::Stream;
use super::{Failure, Result};
use crate::drivers::mysql::config::Tls;
use crate::drivers::relational::{authorities_of, system_authorities};

/// The same stream, which nobody else can read from now on.
pub(super) async fn protect(stream: Box<dyn Stream>, tls: &Tls, host: &str) -> Result<Box<dyn Stream>> {
    let config = config(tls).map_err(|error| Failure::Tls(error.to_string()))?;
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| Failure::Tls("a certificate cannot name this host".to_owned()))?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let protected = connected.map_err(|error| Failure::Tls(error.to_string()))?;
    Ok(Box::new(protected))
}

fn config(tls: &Tls) -> crate::Result<ClientConfig> {
    let roots = match tls {
        Tls::Off | Tls::On => system_authorities("ssl-ca")?,
        Tls::Authority(file) | Tls::Chain(file) => authorities_of(file, "ssl-ca")?,
    };
    // Named, because a library must not rely on one that the program has, or has not, installed.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let bad = |error: String| {
        crate::Error::new(crate::ErrorKind::Invalid, "connect", "TLS cannot be set up").caused_by(error)
    };
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| bad(e.to_string()))?;
    Ok(match tls {
        Tls::Chain(_) => {
            let verifier =
                WebPkiServerVerifier::builder_with_provider(Arc::<RootCertStore>::new(roots), provider)
                    .build()
                    .map_err(|e| bad(e.to_string()))?;
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyName(verifier)))
                .with_no_client_auth()
        }
        _ => builder.with_root_certificates(roots).with_no_client_auth(),
    })
}

/// Believes whatever one of these authorities has signed, whomever it names. They are the operator's own, and no others: with the
/// authorities of the web everybody could have such a certificate.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last, when all else was right.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
