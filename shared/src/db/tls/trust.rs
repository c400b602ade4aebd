//! The files of TLS: whom we believe, and who we say we are.
//!
//! Read by `prepare`, kept until one of the files changes: a worker is forked from a scheduler that has read them
//! already. libpq's rules: a root file that is not there matters only to the modes that insist on it, a client
//! certificate that is not there is not shown, a key that others may read is refused.

use super::TlsError;
use crate::conninfo::{Root, Tls, TlsMode};
use crate::limits::{CERTIFICATES_BYTES_MAX, TLS_SETTINGS_MAX};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

#[derive(Debug)]
pub(super) struct Trust {
    pub roots: Option<Roots>,
    pub identity: Option<Identity>,
}

#[derive(Debug)]
pub(super) struct Roots {
    pub store: RootCertStore,
    pub certificates: Vec<CertificateDer<'static>>,
}

pub(super) struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Identity({} certificates)", self.chain.len())
    }
}

/// When each file was last changed, and its length.
type Stamp = Vec<Option<(SystemTime, u64, u32)>>;
type Kept = (Tls, Stamp, Arc<Trust>);

static KNOWN: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

pub(super) fn read(tls: &Tls) -> Result<Arc<Trust>, TlsError> {
    let stamp = stamp(tls);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, _, trust)) = known.iter().find(|(of, at, _)| of == tls && *at == stamp) {
        return Ok(trust.clone());
    }
    let trust = Arc::new(Trust { roots: roots(tls)?, identity: identity(tls)? });
    known.retain(|(of, _, _)| of != tls);
    if known.len() >= TLS_SETTINGS_MAX {
        known.remove(0);
    }
    known.push((tls.clone(), stamp, trust.clone()));
    Ok(trust)
}

fn stamp(tls: &Tls) -> Stamp {
    let root = match &tls.root {
        Root::File(path) => Some(path),
        Root::System | Root::Nobody => None,
    };
    [root, tls.certificate.as_ref(), tls.key.as_ref(), tls.revoked.as_ref()]
        .into_iter()
        .map(|path| {
            let metadata = fs::metadata(path?).ok()?;
            Some((metadata.modified().ok()?, metadata.len(), metadata.mode()))
        })
        .collect()
}

fn roots(tls: &Tls) -> Result<Option<Roots>, TlsError> {
    let certificates = match &tls.root {
        Root::System => {
            let found = rustls_native_certs::load_native_certs();
            if found.certs.is_empty() {
                return Err(TlsError::File("sslrootcert=system, but the system has no certificates".to_owned()));
            }
            found.certs
        }
        Root::File(path) if path.exists() => {
            if let Some(revoked) = tls.revoked.as_ref().filter(|path| path.exists()) {
                return Err(TlsError::File(format!(
                    "{} exists, but certificate revocation lists are not supported; move it away",
                    revoked.display()
                )));
            }
            certificates(path, "root certificate file")?
        }
        Root::File(_) | Root::Nobody if matches!(tls.mode, TlsMode::VerifyCa | TlsMode::VerifyFull) => {
            let file = match &tls.root {
                Root::File(path) => format!("root certificate file {}", path.display()),
                Root::System | Root::Nobody => "a root certificate file".to_owned(),
            };
            return Err(TlsError::File(format!(
                "{file} does not exist; set sslrootcert, or another sslmode than verify-ca and verify-full"
            )));
        }
        Root::File(_) | Root::Nobody => return Ok(None),
    };
    let mut store = RootCertStore::empty();
    // What cannot be an anchor is still compared as a whole, see `verifier`.
    let _ = store.add_parsable_certificates(certificates.iter().cloned());
    Ok(Some(Roots { store, certificates }))
}

fn identity(tls: &Tls) -> Result<Option<Identity>, TlsError> {
    let Some(file) = tls.certificate.as_ref().filter(|path| path.exists()) else { return Ok(None) };
    let chain = certificates(file, "client certificate file")?;
    let Some(path) = tls.key.as_ref().filter(|path| path.exists()) else {
        return Err(TlsError::File(format!(
            "client certificate {} exists, but its private key{} does not",
            file.display(),
            tls.key.as_ref().map(|key| format!(" {}", key.display())).unwrap_or_default()
        )));
    };
    let wrong = |why: String| TlsError::File(format!("private key file {}: {why}", path.display()));
    let metadata = fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    if !metadata.is_file() {
        return Err(wrong("it is not a regular file".to_owned()));
    }
    // Root may let a group read it, everybody else is alone with his key.
    let too_open = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.mode() & too_open != 0 {
        return Err(wrong("other users may read it; chmod 600 it (640 if root owns it)".to_owned()));
    }
    let text = read_file(path).map_err(|error| wrong(error.to_string()))?;
    if text.windows(9).any(|part| part == b"ENCRYPTED") {
        return Err(wrong(
            "it is encrypted, which is not supported; set sslkey to a key without a password".to_owned(),
        ));
    }
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| wrong(error.to_string()))?;
    Ok(Some(Identity { chain, key }))
}

fn certificates(path: &Path, what: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |why: String| TlsError::File(format!("could not read {what} {}: {why}", path.display()));
    let text = read_file(path).map_err(|error| wrong(error.to_string()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() {
        return Err(wrong("it contains no certificate".to_owned()));
    }
    Ok(found)
}

fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(CERTIFICATES_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}
