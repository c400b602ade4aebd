//! TLS as libpq means it: what each sslmode believes, and what is taken from which file.
//!
//! Both clients come here for a rustls configuration: the loops' link through `stream`, the worker's pipe by itself.
//! `trust` reads the files, `certificate` looks into certificates, `verifier` judges a server's. libpq's rules, not a
//! browser's: a root file that is there is always used, the common name counts where there are no alternative
//! names, a self-signed certificate may be its own root. No thread, no lock that outlives a call; random numbers
//! come from the kernel, so a forked child may go on with what its parent has read.

mod certificate;
pub mod stream;
mod trust;
mod verifier;

use crate::conninfo::{Tls, TlsMode, TlsVersion};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

pub use certificate::end_point;

/// Why there is no encrypted connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file is missing, unreadable, or too readable.
    #[error("{0}")]
    File(String),
    /// The two sides do not agree, or the certificate does not convince.
    #[error("TLS: {0}")]
    Handshake(String),
    /// The link broke in the middle of it.
    #[error("TLS: {0}")]
    Cut(String),
    #[error("the server does not offer TLS, but sslmode requires it")]
    Declined,
}

/// What a handshake with one host needs.
#[derive(Clone, Debug)]
pub struct PreparedTls {
    pub config: Arc<ClientConfig>,
    pub name: ServerName<'static>,
}

/// Reads the files (or finds them read) and makes the configuration for a host, called as the conninfo calls it.
pub fn prepare(tls: &Tls, host: &str) -> Result<PreparedTls, TlsError> {
    let trust = trust::read(tls)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions: Vec<&'static rustls::SupportedProtocolVersion> =
        [(TlsVersion::V1_2, &rustls::version::TLS12), (TlsVersion::V1_3, &rustls::version::TLS13)]
            .into_iter()
            .filter(|(version, _)| (tls.oldest..=tls.newest).contains(version))
            .map(|(_, version)| version)
            .collect();
    let wrong = |error: rustls::Error| TlsError::Handshake(error.to_string());
    let name = (tls.mode == TlsMode::VerifyFull).then(|| host.to_owned());
    let verifier = verifier::Verifier::new(trust.clone(), name, provider.signature_verification_algorithms);
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(wrong)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &trust.identity {
        Some(identity) => builder
            .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
            .map_err(|error| TlsError::File(format!("the client certificate and its key cannot be used: {error}")))?,
        None => builder.with_no_client_auth(),
    };
    // A ticket is good for one use, and forked siblings would share theirs; servers give none anyway.
    config.resumption = Resumption::disabled();
    config.enable_sni = tls.sni;
    // A host that is no name is told to nobody. The verifier knows what we call it.
    let unnamed = || ServerName::IpAddress(IpAddr::V4(Ipv4Addr::UNSPECIFIED).into());
    let name = ServerName::try_from(host.to_owned()).unwrap_or_else(|_| unnamed());
    Ok(PreparedTls { config: Arc::new(config), name })
}

/// A handshake's error in words, with what to do where we know it.
pub fn handshake_error(error: &rustls::Error) -> TlsError {
    use rustls::{AlertDescription as A, Error};
    let advice = match error {
        Error::AlertReceived(A::CertificateRequired | A::HandshakeFailure | A::UnknownCA | A::BadCertificate) => {
            "; the server may want a client certificate that it knows (sslcert, sslkey)"
        }
        _ => "",
    };
    TlsError::Handshake(format!("{error}{advice}"))
}
