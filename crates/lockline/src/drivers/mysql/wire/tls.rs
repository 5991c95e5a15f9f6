//! TLS: a stream that nobody else can read.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::channel::Stream;
use super::{Failure, Result};
use crate::drivers::mysql::config::Tls;
use crate::drivers::relational::{Trust, authorities_of, client_config, system_authorities};

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
    client_config(match tls {
        Tls::Off | Tls::On => Trust::Authorities(system_authorities("ssl-ca")?),
        Tls::Authority(file) => Trust::Authorities(authorities_of(file, "ssl-ca")?),
        Tls::Chain(file) => Trust::AnyName(authorities_of(file, "ssl-ca")?),
    })
}
