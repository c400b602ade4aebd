//! PURE. What libpq looks at in a certificate: names, validity, who signed it and how.

use rustls::pki_types::SignatureVerificationAlgorithm;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use std::net::IpAddr;
use std::time::Duration;
use x509_cert::Certificate;
use x509_cert::Version;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::{Decode, Encode, Tagged};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, SubjectAltName};

const COMMON_NAME: &str = "2.5.4.3";
const SERVER_AUTH: &str = "1.3.6.1.5.5.7.3.1";
const ANY_USAGE: &str = "2.5.29.37.0";

/// A certificate that could be read.
pub(super) struct Parsed(Certificate);

impl Parsed {
    pub(super) fn read(der: &[u8]) -> Option<Parsed> {
        Certificate::from_der(der).ok().map(Parsed)
    }

    pub(super) fn valid_at(&self, now: Duration) -> bool {
        let validity = &self.0.tbs_certificate.validity;
        (validity.not_before.to_unix_duration()..=validity.not_after.to_unix_duration()).contains(&now)
    }

    pub(super) fn is_self_issued(&self) -> bool {
        self.0.tbs_certificate.issuer == self.0.tbs_certificate.subject
    }

    pub(super) fn is_version_1(&self) -> bool {
        self.0.tbs_certificate.version == Version::V1
    }

    /// What it says about being an authority; None if it does not say.
    pub(super) fn authority(&self) -> Option<bool> {
        self.0.tbs_certificate.get::<BasicConstraints>().ok().flatten().map(|(_, constraints)| constraints.ca)
    }

    pub(super) fn may_serve(&self) -> bool {
        match self.0.tbs_certificate.get::<ExtendedKeyUsage>() {
            Ok(Some((_, usages))) => {
                usages.0.iter().any(|usage| [SERVER_AUTH, ANY_USAGE].contains(&usage.to_string().as_str()))
            }
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Whether `issuer` has signed this one.
    pub(super) fn is_signed_by(&self, issuer: &Parsed, all: &[&dyn SignatureVerificationAlgorithm]) -> bool {
        let (signed, by) = (&self.0, &issuer.0.tbs_certificate);
        let how = signed.signature_algorithm.to_der().ok();
        let (Ok(message), Some(signature)) = (signed.tbs_certificate.to_der(), signed.signature.as_bytes()) else {
            return false;
        };
        signed.tbs_certificate.issuer == by.subject
            && all
                .iter()
                .filter(|one| how.as_deref().and_then(inside) == Some(one.signature_alg_id().as_ref()))
                .any(|one| issuer.verifies(*one, &message, signature))
    }

    /// Whether the holder of this certificate's key made the signature.
    pub(super) fn verifies(&self, how: &dyn SignatureVerificationAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        let key = &self.0.tbs_certificate.subject_public_key_info;
        let kind = key.algorithm.to_der().ok();
        let (Some(kind), Some(bits)) = (kind.as_deref().and_then(inside), key.subject_public_key.as_bytes()) else {
            return false;
        };
        kind == how.public_key_alg_id().as_ref() && how.verify_signature(bits, message, signature).is_ok()
    }

    /// libpq's rule: alternative names first; the common name only if none of them is of the host's kind.
    pub(super) fn names(&self, host: &str) -> bool {
        let address = host.parse::<IpAddr>().ok();
        let names = self.0.tbs_certificate.get::<SubjectAltName>().ok().flatten().map(|(_, names)| names.0);
        let mut ask_common_name = true;
        for name in names.unwrap_or_default() {
            let (of_its_kind, same) = match &name {
                GeneralName::DnsName(pattern) => (address.is_none(), matches(pattern.as_str(), host)),
                GeneralName::IpAddress(bytes) => {
                    let octets = match address {
                        Some(IpAddr::V4(address)) => address.octets().to_vec(),
                        Some(IpAddr::V6(address)) => address.octets().to_vec(),
                        None => Vec::new(),
                    };
                    (address.is_some(), !octets.is_empty() && bytes.as_bytes() == octets)
                }
                _ => continue,
            };
            if same {
                return true;
            }
            ask_common_name &= !of_its_kind;
        }
        ask_common_name && self.common_name().is_some_and(|name| matches(&name, host))
    }

    fn common_name(&self) -> Option<String> {
        let parts = self.0.tbs_certificate.subject.0.iter().flat_map(|part| part.0.iter());
        let value = &parts.into_iter().find(|part| part.oid.to_string() == COMMON_NAME)?.value;
        // Whichever kind of text it is, a NUL in it would be an attempt to deceive.
        let text = match value.tag() {
            x509_cert::der::Tag::PrintableString => PrintableStringRef::try_from(value).ok()?.as_str().to_owned(),
            x509_cert::der::Tag::Utf8String => Utf8StringRef::try_from(value).ok()?.as_str().to_owned(),
            x509_cert::der::Tag::Ia5String => Ia5StringRef::try_from(value).ok()?.as_str().to_owned(),
            x509_cert::der::Tag::TeletexString => TeletexStringRef::try_from(value).ok()?.as_str().to_owned(),
            _ => return None,
        };
        (!text.contains('\0')).then_some(text)
    }
}

/// One star, for the whole first label, and nothing more.
fn matches(pattern: &str, host: &str) -> bool {
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    match (pattern.strip_prefix('*'), host.find('.')) {
        (Some(rest), Some(dot)) if rest.starts_with('.') && rest.len() > 1 && dot > 0 => {
            host.get(dot..).is_some_and(|tail| tail.eq_ignore_ascii_case(rest))
        }
        _ => false,
    }
}

/// What a short DER sequence holds: algorithms are compared that way.
fn inside(sequence: &[u8]) -> Option<&[u8]> {
    match sequence {
        [0x30, length, rest @ ..] if *length < 0x80 && rest.len() == usize::from(*length) => Some(rest),
        _ => None,
    }
}

/// The hash of a server's certificate that SCRAM binds to (tls-server-end-point), by the hash of its signature;
/// None if that has none of its own.
pub fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let parsed = Certificate::from_der(certificate).ok()?;
    match parsed.signature_algorithm.oid.to_string().as_str() {
        // md5, sha1 and sha256, with RSA and ECDSA: the first two are replaced by the third
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.10045.4.1"
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.3.2" => Some(Sha256::digest(certificate).to_vec()),
        "1.2.840.113549.1.1.14" | "1.2.840.10045.4.3.1" => Some(Sha224::digest(certificate).to_vec()),
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => Some(Sha384::digest(certificate).to_vec()),
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => Some(Sha512::digest(certificate).to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_one_first_label() {
        for (pattern, host, same) in [
            ("db.example", "db.example", true),
            ("DB.example", "db.EXAMPLE", true),
            ("*.example", "db.example", true),
            ("*.example", "a.b.example", false),
            ("*.example", "example", false),
            ("*.example", ".example", false),
            ("*", "db", false),
            ("*.", "db.", false),
            ("d*.example", "db.example", false),
            ("127.0.0.1", "127.0.0.1", true),
        ] {
            assert_eq!(matches(pattern, host), same, "{pattern} {host}");
        }
    }
}
