//! The judge of a server's certificate.
//!
//! rustls asks it during the handshake. Where root certificates are known the chain must lead to one of them; with
//! verify-full the name must fit, too. webpki judges the usual chain; what it refuses on principle and OpenSSL
//! takes is judged here: a self-signed certificate that is its own root, and one without extensions (version 1), or
//! marked as an authority, that a root has signed directly, as the server's own manual makes them.

use super::certificate::Parsed;
use super::trust::{Roots, Trust};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Verifier {
    trust: Arc<Trust>,
    /// The host as the conninfo calls it, where that matters.
    host: Option<String>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(super) fn new(trust: Arc<Trust>, host: Option<String>, algorithms: WebPkiSupportedAlgorithms) -> Verifier {
        Verifier { trust, host, algorithms }
    }

    fn chain_leads_to(
        &self,
        roots: &Roots,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let read = Parsed::read(end_entity);
        let at = Duration::from_secs(now.as_secs());
        if let Some(own) = &read
            && own.is_self_issued()
            && roots.certificates.iter().any(|root| root.as_ref() == end_entity.as_ref())
        {
            return if own.valid_at(at) { Ok(()) } else { Err(CertificateError::Expired.into()) };
        }
        let usual = ParsedCertificate::try_from(end_entity).and_then(|certificate| {
            let all = self.algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, &roots.store, intermediates, now, all)
        });
        let unusual = || read.as_ref().is_some_and(|own| self.is_signed_directly(own, roots, at));
        if usual.is_ok() || unusual() { Ok(()) } else { usual }
    }

    fn is_signed_directly(&self, own: &Parsed, roots: &Roots, now: Duration) -> bool {
        let of_concern = own.is_version_1() || own.authority() == Some(true);
        of_concern
            && own.valid_at(now)
            && own.may_serve()
            && roots.certificates.iter().filter_map(|root| Parsed::read(root)).any(|root| {
                root.authority() != Some(false) && root.valid_at(now) && own.is_signed_by(&root, self.algorithms.all)
            })
    }

    /// webpki reads no certificate of version 1, so its key is taken out by hand.
    fn signature_by_hand(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
        refusal: Error,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(own) = Parsed::read(certificate).filter(Parsed::is_version_1) else { return Err(refusal) };
        let ways = self.algorithms.mapping.iter().filter(|(scheme, _)| *scheme == signed.scheme);
        let proven = ways.flat_map(|(_, ways)| ways.iter()).any(|way| own.verifies(*way, message, signed.signature()));
        if proven { Ok(HandshakeSignatureValid::assertion()) } else { Err(CertificateError::BadSignature.into()) }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(roots) = &self.trust.roots {
            self.chain_leads_to(roots, end_entity, intermediates, now)?;
        }
        if let Some(host) = &self.host
            && !Parsed::read(end_entity).is_some_and(|own| own.names(host))
        {
            return Err(Error::General(format!("the server's certificate is not for \"{host}\"")));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
            .or_else(|refusal| self.signature_by_hand(message, certificate, signed, refusal))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
            .or_else(|refusal| self.signature_by_hand(message, certificate, signed, refusal))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
