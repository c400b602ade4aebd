//! PURE. The conninfo of a remote task: written by whoever may insert a row, used by our host.
//!
//! So it is judged more strictly than the operator's own. It names an entry of the config's `remotes`, or it carries
//! everything itself: host, user and password. Nothing of ours is used for it: not the environment, not the password
//! file, the service file or the files of TLS, not a Unix socket. An entry is the operator's word: what stands in it
//! is taken, files and sockets too, but it also gets nothing that is not written in it. Called by the config's
//! check, by workers (to run) and by schedulers (to end what a dead worker left). What can go wrong is a
//! `RemoteError`, in words that never show a value.

use super::{Conninfo, ConninfoError, HIDDEN, Keepalive, Root, Target, TlsMode};
use crate::limits::{NAME_BYTES_MAX, REMOTE_CONNECT_MS_MAX, REMOTE_CONNECT_TIMEOUT, REMOTE_CONNINFO_BYTES_MAX};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// However patient the conninfo is: a peer that is gone without a word must be noticed.
const SLOWEST: Keepalive = Keepalive { on: true, idle_s: 60, interval_s: 15, count: 4, user_timeout_ms: 60_000 };

/// Keywords that would make our host read a file of its own.
const OUR_FILES: [&str; 5] = ["service", "servicefile", "passfile", "sslcert", "sslkey"];
const BY_ENTRY: &str = "let the operator put it into an entry of the config's remotes";

/// The entries of the config's `remotes`: names and conninfos, as they were written. They travel in cells.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Entries(Vec<(String, String)>);

impl Entries {
    pub fn add(&mut self, name: &str, conninfo: &str) {
        self.0.push((name.to_owned(), conninfo.to_owned()));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has_password(&self) -> bool {
        let secret = |text: &str| Conninfo::parse(text).is_ok_and(|conninfo| conninfo.has_password());
        self.0.iter().any(|(_, conninfo)| secret(conninfo))
    }

    fn find(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, conninfo)| conninfo.as_str())
    }
}

/// Names alone.
impl fmt::Debug for Entries {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_map().entries(self.0.iter().map(|(name, _)| (name, HIDDEN))).finish()
    }
}

/// Where a remote task runs, and whether the server must have asked for the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    pub target: Target,
    /// The login must be the password's merit: a server that trusts our host would let anybody in through us.
    pub password_must_count: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    #[error("remote is not valid: {0}")]
    Conninfo(#[from] ConninfoError),
    #[error("remote is neither a conninfo nor the name of an entry of the config's remotes")]
    Unnamed,
    #[error("remote has {0} bytes, more than {REMOTE_CONNINFO_BYTES_MAX}")]
    TooLong(usize),
    #[error("remote is not UTF-8 text")]
    NotText,
    #[error("remote has no {what}: {instead}")]
    Missing { what: &'static str, instead: &'static str },
    #[error("remote may not use {what}: {instead}")]
    Forbidden { what: String, instead: &'static str },
}

impl Remote {
    /// What the text of a row's `remote` means.
    pub fn find(text: &[u8], entries: &Entries) -> Result<Remote, RemoteError> {
        if text.len() > REMOTE_CONNINFO_BYTES_MAX {
            return Err(RemoteError::TooLong(text.len()));
        }
        let text = std::str::from_utf8(text).map_err(|_| RemoteError::NotText)?;
        match entries.find(text) {
            Some(conninfo) => Remote::of_entry(conninfo),
            None if !text.contains('=') && !text.contains("://") => Err(RemoteError::Unnamed),
            None => Remote::of_stranger(text),
        }
    }

    /// The operator's own words.
    pub fn of_entry(text: &str) -> Result<Remote, RemoteError> {
        let conninfo = Conninfo::parse(text)?;
        if conninfo.get("service").is_some_and(|name| !name.is_empty()) {
            let instead = "write the settings of the service into the entry";
            return Err(RemoteError::Forbidden { what: "service".to_owned(), instead });
        }
        named(&conninfo, "write it into the entry")?;
        let mut target = conninfo.resolve(&nothing)?;
        let written = |key: &str| conninfo.get(key).is_some_and(|value| !value.is_empty());
        if !written("passfile") {
            target.passfile = None;
        }
        if let Some(tls) = &mut target.tls {
            tls.revoked = None;
            if !written("sslrootcert") {
                tls.root = Root::Nobody;
            }
            if !written("sslcert") {
                (tls.certificate, tls.key) = (None, None);
            }
        }
        rooted(&target)?;
        Ok(Remote { target: bounded(target), password_must_count: false })
    }

    fn of_stranger(text: &str) -> Result<Remote, RemoteError> {
        let conninfo = Conninfo::parse(text)?;
        let written = |key: &str| conninfo.get(key).filter(|value| !value.is_empty());
        if let Some(what) = OUR_FILES.into_iter().find(|key| written(key).is_some()) {
            return Err(RemoteError::Forbidden { what: what.to_owned(), instead: BY_ENTRY });
        }
        if written("sslrootcert").is_some_and(|root| root != "system") {
            let what = "a file as sslrootcert".to_owned();
            return Err(RemoteError::Forbidden {
                what,
                instead: "use sslrootcert=system, or an entry of the config's remotes",
            });
        }
        named(&conninfo, "write it into the remote")?;
        for key in ["host", "hostaddr"] {
            // an empty place in a list of hosts is a socket too, unless it has an address
            let socket =
                |host: &str| host.starts_with(['/', '@']) || (host.is_empty() && written("hostaddr").is_none());
            if written(key).is_some_and(|list| list.split(',').any(socket)) {
                return Err(RemoteError::Forbidden { what: "a Unix socket".to_owned(), instead: BY_ENTRY });
            }
        }
        if written("password").is_none() {
            let instead = "write it into the remote, or let the operator make an entry of the config's remotes";
            return Err(RemoteError::Missing { what: "password", instead });
        }
        let mut target = conninfo.resolve(&nothing)?;
        target.passfile = None;
        if let Some(tls) = &mut target.tls {
            (tls.certificate, tls.key, tls.revoked) = (None, None, None);
            if tls.root != Root::System {
                tls.root = Root::Nobody;
            }
        }
        rooted(&target)?;
        Ok(Remote { target: bounded(target), password_must_count: true })
    }

    /// How long a connect may take in all.
    pub fn total_connect_timeout(&self) -> Duration {
        self.target.total_connect_timeout().min(REMOTE_CONNECT_TIMEOUT)
    }

    /// The same, at one of its places only.
    pub fn at(mut self, place: usize) -> Option<Remote> {
        let place = self.target.places.get(place)?.clone();
        self.target.places = vec![place];
        Some(self)
    }
}

/// Whether a name may stand in `remotes`; if not, why.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(format!("has a name of {} bytes; want 1 to {NAME_BYTES_MAX}", name.len()));
    }
    if name.contains('=') || name.contains("://") || name.contains('\0') {
        return Err("has a name that reads like a conninfo; want one without \"=\" and \"://\"".to_owned());
    }
    Ok(())
}

fn nothing(_: &str) -> Option<String> {
    None
}

fn named(conninfo: &Conninfo, instead: &'static str) -> Result<(), RemoteError> {
    let written = |key: &str| conninfo.get(key).is_some_and(|value| !value.is_empty());
    if !written("host") && !written("hostaddr") {
        return Err(RemoteError::Missing { what: "host", instead });
    }
    if !written("user") {
        return Err(RemoteError::Missing { what: "user", instead });
    }
    Ok(())
}

/// A mode that asks for a proof needs something to prove it by.
fn rooted(target: &Target) -> Result<(), RemoteError> {
    let unproven =
        |tls: &super::Tls| matches!(tls.mode, TlsMode::VerifyCa | TlsMode::VerifyFull) && tls.root == Root::Nobody;
    if target.tls.as_ref().is_some_and(unproven) {
        let instead = "use sslrootcert=system, or an entry of the config's remotes that names a file";
        return Err(RemoteError::Missing { what: "sslrootcert for its sslmode", instead });
    }
    Ok(())
}

fn bounded(mut target: Target) -> Target {
    target.foreign = true;
    target.connect_timeout_ms = target.connect_timeout_ms.min(REMOTE_CONNECT_MS_MAX);
    let asked = target.keepalive;
    target.keepalive = Keepalive {
        on: true,
        idle_s: asked.idle_s.min(SLOWEST.idle_s),
        interval_s: asked.interval_s.min(SLOWEST.interval_s),
        count: asked.count.min(SLOWEST.count),
        user_timeout_ms: asked.user_timeout_ms.min(SLOWEST.user_timeout_ms),
    };
    target
}

#[cfg(test)]
#[path = "untrusted/tests.rs"]
mod tests;
