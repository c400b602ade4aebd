//! Where a server is and how to log in: libpq's conninfo dialect, resolved into a `Target`.
//!
//! `parse.rs` reads the two spellings (keywords and URIs) into pairs, `resolve.rs` adds the service file
//! (`service.rs`), the PG* environment and libpq's defaults and refuses by name what is not supported, `keyword.rs` is
//! the list of what libpq knows, `passfile.rs` finds passwords. The config holds a `Conninfo`, every process connects
//! by a `Target` (`target.rs`). What can go wrong is a `ConninfoError`;
//! none of them, and no `Debug` or `Display` here, ever shows a password or a text that could be part of one.

mod keyword;
mod parse;
mod passfile;
mod resolve;
mod service;
mod target;
pub mod untrusted;

pub use passfile::PasswordAnswer;
pub use target::{
    ChannelBinding, Keepalive, Place, Preferred, Root, SessionAttributes, Target, Tls, TlsMode, TlsVersion,
};

use std::fmt;

/// What stands in the place of a secret wherever a conninfo is shown.
const HIDDEN: &str = "***";

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
    /// No word at all, so perhaps a URI that is mistyped, with a password in it.
    #[error(
        "conninfo has no keyword at byte {at}; a URI begins with postgresql:// or postgres://, and nothing before it"
    )]
    NotAWord { at: usize },
    #[error("conninfo is not a valid URI: {0}")]
    Uri(&'static str),
    #[error("conninfo holds a NUL character")]
    Nul,
    #[error("{name} has a value that is not valid: want {wanted}")]
    BadValue { name: String, wanted: String },
    #[error("{what} is not supported by this version: {instead}")]
    NotSupported { what: String, instead: &'static str },
    #[error("{0}")]
    Service(String),
    #[error("there are {hosts} hosts and {count} values in {name}: give one for each host, or one for all ports")]
    Unmatched { name: &'static str, count: usize, hosts: usize },
    #[error("sslmode=verify-full needs the name of the host to compare with, not only its address")]
    NoName,
    #[error("cannot find the name of the system user {uid}; set user")]
    NoUser { uid: u32 },
    #[error("the socket path {path} has {length} bytes, more than the system's {longest}; use a shorter host folder")]
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
        if other_server && base.get("service").is_some() {
            // the service may hold a password for its own server; an empty one hides it
            sum.set("password", "");
        }
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

#[cfg(test)]
mod tests {
    use super::{Conninfo, Place, Target};

    fn read(text: &str) -> Conninfo {
        Conninfo::parse(text).expect("conninfo")
    }

    #[test]
    fn no_way_of_showing_shows_the_password() {
        let conninfo = read("host=/tmp user=me password='s3 cret' sslpassword=k3y");
        let mut target = Target::at(Place::Unix { path: "/tmp/x".into() }, "me", "me");
        target.password = Some("s3 cret".into());
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
