//! Whose certificates are believed.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::error::{Error, ErrorKind, Result};

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
