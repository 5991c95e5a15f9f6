//! TLS: what a server's certificate is checked against.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::{Error, ErrorKind, Result};

/// Whose certificates are believed.
pub(in crate::drivers) enum Trust {
    /// Those that one of these has signed, for the host that was asked for.
    Authorities(RootCertStore),
    /// Those that one of these has signed, whomever they name. They must be the operator's own, and no others: with the authorities of
    /// the web everybody could have such a certificate. This is how the certificates that MySQL makes for itself can be checked.
    #[cfg(feature = "mysql")]
    AnyName(RootCertStore),
    /// Whoever answers is the server.
    #[cfg(feature = "postgres")]
    Anybody,
}

/// What a connection is made safe with.
pub(in crate::drivers) fn client_config(trust: Trust) -> Result<ClientConfig> {
    // Named, because a library must not rely on one that the program has, or has not, installed.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| bad("TLS cannot be set up").caused_by(e))?;
    let chain = match trust {
        Trust::Authorities(roots) => return Ok(builder.with_root_certificates(roots).with_no_client_auth()),
        #[cfg(feature = "mysql")]
        Trust::AnyName(roots) => {
            let chain =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
            Some(chain.map_err(|e| bad("TLS cannot be set up").caused_by(e))?)
        }
        #[cfg(feature = "postgres")]
        Trust::Anybody => None,
    };
    let verifier = Arc::new(NoName { provider, chain });
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// Looks at no name, and without a chain at no authority either.
#[derive(Debug)]
struct NoName {
    provider: Arc<CryptoProvider>,
    chain: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for NoName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
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
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The system's trust store. `option` is what names another one in an address.
pub(in crate::drivers) fn system_authorities(option: &str) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(
            bad("this system has no certificate authorities").hint(format!("name a file with {option}="))
        );
    }
    Ok(roots)
}

/// Those in a file, and no others.
pub(in crate::drivers) fn authorities_of(file: &Path, option: &str) -> Result<RootCertStore> {
    let unusable = |why: String| {
        bad("the file of certificate authorities cannot be used")
            .hint(format!("{option}= names a file in PEM format that this process may read"))
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
