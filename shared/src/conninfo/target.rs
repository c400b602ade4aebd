//! A server and a login, resolved: what every process connects by.
//!
//! Made by `resolve`, carried in cells, so it is plain data: files are named, not copied into it. A password that was
//! written or set in the environment is in it; one from a password file is looked up by whoever connects, at that
//! moment and per host, so that a changed file needs no restart and no cell holds it.

use super::HIDDEN;
use super::passfile::{self, PasswordAnswer};
use crate::limits::CONNECT_TIMEOUT_MS;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Unless told otherwise. With tcp_user_timeout set a dead peer is known at the first probe after
/// it, here after 8 s.
const KEEPALIVE: Keepalive = Keepalive { on: true, idle_s: 4, interval_s: 2, count: 2, user_timeout_ms: 7_000 };

/// One login, on one of several servers. `Debug` never shows the password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Where to try, in this order; never empty.
    pub places: Vec<Place>,
    /// Tried in random order instead.
    pub shuffle: bool,
    pub attributes: SessionAttributes,
    pub user: String,
    pub password: Option<String>,
    /// Where to look if there is no password.
    pub passfile: Option<PathBuf>,
    pub database: String,
    pub options: Option<String>,
    /// For each address of each host.
    pub connect_timeout_ms: u64,
    pub keepalive: Keepalive,
    /// None: never.
    pub tls: Option<Tls>,
    pub channel_binding: ChannelBinding,
    /// Our settings go by a statement after the login, because something between us and the server refuses them in
    /// the startup message. Found out by the first who connects, and handed down.
    #[serde(default)]
    pub late_settings: bool,
    /// Somebody else's server, perhaps of another version or system: our settings are not sent to it.
    #[serde(default)]
    pub foreign: bool,
    /// The place that is tried before all others, because a session that matters is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<Preferred>,
}

/// One of a target's places, and the address to which its name led.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preferred {
    pub place: usize,
    pub address: Option<IpAddr>,
}

impl Target {
    /// The plainest way to a place.
    pub fn at(place: Place, user: &str, database: &str) -> Target {
        Target {
            places: vec![place],
            shuffle: false,
            attributes: SessionAttributes::Any,
            user: user.to_owned(),
            password: None,
            passfile: None,
            database: database.to_owned(),
            options: None,
            connect_timeout_ms: CONNECT_TIMEOUT_MS,
            keepalive: Keepalive::default(),
            tls: None,
            channel_binding: ChannelBinding::Prefer,
            late_settings: false,
            foreign: false,
            prefer: None,
        }
    }

    /// All places in the order in which they are tried. A preferred address of a name comes first; the name itself stays in
    /// the list, because it may have other addresses.
    pub fn places_in_order(&self) -> Vec<Place> {
        let Some((preferred, pinned)) = self.prefer.and_then(|prefer| Some((prefer.place, self.pinned(prefer)?)))
        else {
            return self.places.clone();
        };
        let others = self.places.iter().enumerate().filter(|(index, place)| *index != preferred || **place != pinned);
        std::iter::once(pinned.clone()).chain(others.map(|(_, place)| place.clone())).collect()
    }

    fn pinned(&self, prefer: Preferred) -> Option<Place> {
        let place = self.places.get(prefer.place)?.clone();
        Some(match place {
            Place::Tcp { host, port, address } => Place::Tcp { host, port, address: address.or(prefer.address) },
            Place::Unix { .. } => place,
        })
    }

    /// Which of the places this is, be it with an address of its name.
    pub fn index_of(&self, place: &Place) -> usize {
        let own = self.places.iter().position(|own| own == place);
        own.or_else(|| self.prefer.map(|prefer| prefer.place)).unwrap_or(0)
    }

    /// How long one address may take.
    pub fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }

    /// How long a connect may take in all: every place twice, since a name may have two addresses.
    pub fn total_connect_timeout(&self) -> Duration {
        self.connect_timeout().saturating_mul(2 * self.places.len() as u32)
    }

    /// The password for a place: the written one, else the password file's. Reads the file.
    pub fn password_at(&self, place: &Place) -> PasswordAnswer {
        match (&self.password, &self.passfile) {
            (Some(password), _) => PasswordAnswer::Found(password.clone()),
            (None, Some(file)) => passfile::look_up(file, place, &self.database, &self.user),
            (None, None) => PasswordAnswer::None,
        }
    }

    /// The settings of TLS at a place: there is none on a Unix socket.
    pub fn tls_at(&self, place: &Place) -> Option<&Tls> {
        self.tls.as_ref().filter(|_| matches!(place, Place::Tcp { .. }))
    }

    /// All places in a few words, for messages.
    pub fn whereabouts(&self) -> String {
        self.places.iter().map(Place::to_string).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Target")
            .field("places", &self.places)
            .field("attributes", &self.attributes)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| HIDDEN))
            .field("passfile", &self.passfile)
            .field("database", &self.database)
            .field("options", &self.options)
            .field("connect_timeout_ms", &self.connect_timeout_ms)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// How the socket is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// The full path of the socket file, `/run/postgresql/.s.PGSQL.5432`; a leading `@` means an abstract socket.
    Unix { path: PathBuf },
    /// A host by name, by address, or by both (then the address is dialled, the name stays for messages and TLS).
    Tcp { host: String, address: Option<IpAddr>, port: u16 },
}

/// For messages: where we tried to go, without any secret.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Unix { path } => write!(f, "socket \"{}\"", path.display()),
            Place::Tcp { host, address: Some(address), port } if *host != address.to_string() => {
                write!(f, "\"{host}\" ({address}) port {port}")
            }
            Place::Tcp { host, port, .. } => write!(f, "\"{host}\" port {port}"),
        }
    }
}

/// target_session_attrs: which of several servers will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionAttributes {
    #[default]
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

/// What the kernel is told about a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keepalive {
    pub on: bool,
    pub idle_s: u32,
    pub interval_s: u32,
    pub count: u32,
    pub user_timeout_ms: u32,
}

impl Default for Keepalive {
    fn default() -> Keepalive {
        KEEPALIVE
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChannelBinding {
    Disable,
    #[default]
    Prefer,
    Require,
}

/// How a connection is encrypted and whom it believes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tls {
    pub mode: TlsMode,
    pub root: Root,
    /// The client's certificate and key; used if the first is there.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// A list of revoked certificates that libpq would use: its presence is refused.
    pub revoked: Option<PathBuf>,
    /// Whether the server is told by which name we call it.
    pub sni: bool,
    pub oldest: TlsVersion,
    pub newest: TlsVersion,
}

/// sslmode, but for `disable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TlsMode {
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl TlsMode {
    /// A plain connection will never do.
    pub fn insists(self) -> bool {
        matches!(self, TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull)
    }
}

/// Whom a server's certificate must come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Root {
    /// No file is known: only for modes that do not insist.
    Nobody,
    /// This file's certificates. If it is not there, nobody is asked for unless the mode insists.
    File(PathBuf),
    System,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TlsVersion {
    V1_2,
    V1_3,
}
