//! Where a server is and how to log in: libpq's conninfo dialect, resolved into a `Target`.
//!
//! `parse.rs` reads the two spellings (keywords and URIs) into pairs, `resolve.rs` adds the PG* environment
//! and libpq's defaults and refuses by name what is not supported, `keyword.rs` is the list of what libpq knows.
//! The config holds a `Conninfo`, every process connects by a `Target`. What can go wrong is a `ConninfoError`;
//! none of them, and no `Debug` or `Display` here, ever shows a password or a text that could be part of one.

mod keyword;
mod parse;
mod resolve;

pub(crate) use resolve::LONGEST_SOCKET_PATH;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// What stands in the place of a secret wherever a conninfo is shown.
const HIDDEN: &str = "***";

/// One server, one login. Travels through cells, so it is plain data. `Debug` never shows the password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub place: Place,
    pub user: String,
    pub password: Option<String>,
    pub database: String,
    pub options: Option<String>,
    pub connect_timeout_ms: u64,
}

impl fmt::Debug for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Target")
            .field("place", &self.place)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| HIDDEN))
            .field("database", &self.database)
            .field("options", &self.options)
            .field("connect_timeout_ms", &self.connect_timeout_ms)
            .finish()
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

/// Keywords and values as they were written, in that order, each keyword once (the last one counts, as in libpq).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Conninfo {
    pairs: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConninfoError {
    #[error("conninfo has no \"=\" after the word at byte {at}; a value with blanks needs single quotes")]
    MissingEquals { at: usize },
    #[error("conninfo has a quoted value that begins at byte {at} and never ends")]
    UnterminatedQuote { at: usize },
    #[error("conninfo has the unknown keyword \"{keyword}\"{}", suggestion(.nearest))]
    UnknownKeyword { keyword: String, nearest: Option<&'static str> },
    /// The word may be a piece of an unquoted password: its place is named, not its text.
    #[error(
        "conninfo has an unknown keyword at byte {at}, after a password; a password with blanks needs single quotes"
    )]
    UnknownAfterPassword { at: usize },
    #[error("conninfo is not a valid URI: {0}")]
    Uri(&'static str),
    #[error("conninfo holds a NUL character")]
    Nul,
    #[error("{name} has a value that is not valid: want {wanted}")]
    BadValue { name: String, wanted: String },
    #[error("{what} is not supported by this version: {instead}")]
    NotSupported { what: String, instead: &'static str },
    #[error("cannot tell the name of the operating system's user {uid}: give a user")]
    NoUser { uid: u32 },
    #[error("the socket path {path} has {length} bytes, more than the system's {longest}: use a shorter host folder")]
    SocketPathTooLong { path: String, length: usize, longest: usize },
}

fn suggestion(nearest: &Option<&'static str>) -> String {
    nearest.map(|word| format!("; did you mean \"{word}\"?")).unwrap_or_default()
}

impl Conninfo {
    /// The value of a keyword, if it was written (perhaps as an empty text).
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The same with one keyword set.
    pub fn with(&self, key: &str, value: &str) -> Conninfo {
        let mut changed = self.clone();
        changed.set(key, value);
        changed
    }

    /// These pairs laid over others: ours win. Naming another server (`host`, `hostaddr`) also leaves out the
    /// other's `host`, `hostaddr` and `password`: an address of one server must not redirect to another, and a
    /// password given for one server is not sent to another.
    pub fn over(&self, base: &Conninfo) -> Conninfo {
        let differs = |key: &str| self.get(key).is_some_and(|value| base.get(key) != Some(value));
        let other_server = differs("host") || differs("hostaddr");
        let server = ["host", "hostaddr", "password"];
        let mut sum = base.clone();
        sum.pairs.retain(|(name, _)| !(other_server && server.contains(&name.as_str())));
        for (name, value) in &self.pairs {
            sum.set(name, value);
        }
        sum
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Whether a secret stands in it.
    pub fn has_password(&self) -> bool {
        self.pairs.iter().any(|(name, value)| keyword::is_secret(name) && !value.is_empty())
    }

    /// All keywords that may be written, for the suggestions of other rooms.
    pub fn keywords() -> impl Iterator<Item = &'static str> {
        keyword::KEYWORDS.iter().map(|keyword| keyword.name)
    }

    fn set(&mut self, key: &str, value: &str) {
        match self.pairs.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value.to_owned(),
            None => self.pairs.push((key.to_owned(), value.to_owned())),
        }
    }
}

/// The keyword form, with secrets hidden.
impl fmt::Display for Conninfo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.pairs.iter().enumerate() {
            let blank = if index > 0 { " " } else { "" };
            let plain = !value.is_empty()
                && !value.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\'' || c == '\\');
            if keyword::is_secret(name) {
                write!(out, "{blank}{name}={HIDDEN}")?;
            } else if plain {
                write!(out, "{blank}{name}={value}")?;
            } else {
                let quoted = value.replace('\\', "\\\\").replace('\'', "\\'");
                write!(out, "{blank}{name}='{quoted}'")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Conninfo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Conninfo({:?})", self.to_string())
    }
}

/// For messages: where we tried to go, without any secret.
impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Unix { path } => write!(f, "socket \"{}\"", path.display()),
            Place::Tcp { host, address: Some(address), port } if *host != address.to_string() => {
                write!(f, "\"{host}\" ({address}) port {port}")
            }
            Place::Tcp { host, port, .. } => write!(f, "\"{host}\" port {port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Conninfo, Place, Target};

    fn read(text: &str) -> Conninfo {
        Conninfo::parse(text).expect("conninfo")
    }

    #[test]
    fn no_way_of_showing_shows_the_password() {
        let conninfo = read("host=/tmp user=me password='s3 cret' sslpassword=k3y");
        let target = Target {
            place: Place::Unix { path: "/tmp/x".into() },
            user: "me".into(),
            password: Some("s3 cret".into()),
            database: "me".into(),
            options: None,
            connect_timeout_ms: 1,
        };
        for shown in [conninfo.to_string(), format!("{conninfo:?}"), format!("{target:?} {target:#?}")] {
            assert!(!shown.contains("cret") && !shown.contains("k3y"), "{shown}");
            assert!(shown.contains("***"), "{shown}");
        }
    }

    #[test]
    fn the_upper_layer_wins_and_the_rest_shines_through() {
        let sum = read("user=billing options=-cx=1").over(&read("host=db user=mill password=p"));
        assert_eq!(sum, read("host=db user=billing password=p options=-cx=1"));
        assert_eq!(Conninfo::default().over(&sum), sum);
        assert_eq!(sum.over(&Conninfo::default()), sum);
    }

    #[test]
    fn another_server_inherits_neither_the_address_nor_the_password() {
        let sum = read("host=other").over(&read("hostaddr=10.0.0.1 port=5433 password=p user=mill"));
        assert_eq!(sum, read("port=5433 user=mill host=other"));
        let same = read("host=db port=1").over(&read("host=db password=p"));
        assert_eq!(same, read("host=db password=p port=1"));
    }

    #[test]
    fn with_sets_one_keyword_and_leaves_the_original() {
        let before = read("user=a");
        assert_eq!(before.with("user", "b").with("dbname", "c").to_string(), "user=b dbname=c");
        assert_eq!(before.get("user"), Some("a"));
        assert_eq!(before.get("dbname"), None);
    }

    #[test]
    fn what_is_shown_without_a_secret_reads_back() {
        let conninfo = Conninfo::default().with("user", "a b").with("dbname", "it's \\ odd").with("host", "");
        assert_eq!(read(&conninfo.to_string()), conninfo);
    }

    #[test]
    fn an_empty_password_is_no_password() {
        assert!(!read("password=''").has_password());
        assert!(read("password=x").has_password());
        assert!(Conninfo::default().is_empty());
    }
}
