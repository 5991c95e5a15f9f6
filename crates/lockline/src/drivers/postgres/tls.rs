//! TLS: what makes a connection safe.

use tokio_postgres_rustls::MakeRustlsConnect;

use super::config::Tls;
use crate::drivers::relational::{Trust, authorities_of, client_config, system_authorities};
use crate::error::Result;

/// What makes a connection safe; `None` if it is to be left as it is.
pub(super) fn connector(tls: &Tls) -> Result<Option<MakeRustlsConnect>> {
    let trust = match tls {
        Tls::Off => return Ok(None),
        Tls::System => Trust::Authorities(system_authorities("sslrootcert")?),
        Tls::Authority(file) => Trust::Authorities(authorities_of(file, "sslrootcert")?),
        Tls::Prefer => Trust::Anybody,
    };
    Ok(Some(MakeRustlsConnect::new(client_config(trust)?)))
}
