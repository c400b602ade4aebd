//! The password file: `host:port:database:user:password` lines, `*` for any, `\` before `:` and `\`.
//!
//! Looked into at the moment of a connect, by libpq's rules: the first line that matches counts, a file that is not
//! plain or that others may read is not used. That is no error by itself (the server may not ask), so the reason
//! comes back beside the missing password, for the message if the login then fails.

use super::Place;
use super::resolve::SOCKET_FOLDER;
use crate::limits::PASSFILE_BYTES_MAX;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const GROUP_AND_OTHERS: u32 = 0o077;

/// What a look for a password came to.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordAnswer {
    Found(String),
    None,
    /// There is a file, but it was not used; why, without anything of its content.
    Unused(String),
}

impl PasswordAnswer {
    pub fn password(&self) -> Option<&str> {
        match self {
            PasswordAnswer::Found(password) => Some(password),
            PasswordAnswer::None | PasswordAnswer::Unused(_) => None,
        }
    }

    /// What to add to the message of a failed login.
    pub fn advice(&self) -> String {
        match self {
            PasswordAnswer::Found(_) | PasswordAnswer::None => String::new(),
            PasswordAnswer::Unused(why) => format!("; {why}"),
        }
    }
}

impl std::fmt::Debug for PasswordAnswer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PasswordAnswer::Found(_) => out.write_str("Found(***)"),
            PasswordAnswer::None => out.write_str("None"),
            PasswordAnswer::Unused(why) => write!(out, "Unused({why})"),
        }
    }
}

pub(super) fn look_up(file: &Path, place: &Place, database: &str, user: &str) -> PasswordAnswer {
    let unused =
        |why: &str| PasswordAnswer::Unused(format!("the password file {} was not used: {why}", file.display()));
    let mut opened = match File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return PasswordAnswer::None,
        Err(error) => return unused(&error.to_string()),
    };
    let mode = match opened.metadata() {
        Ok(metadata) if metadata.is_file() => metadata.permissions().mode(),
        Ok(_) => return unused("it is not a regular file"),
        Err(error) => return unused(&error.to_string()),
    };
    if mode & GROUP_AND_OTHERS != 0 {
        return unused("other users may read it; chmod 600 it");
    }
    let mut bytes = Vec::new();
    if let Err(error) = (&mut opened).take(PASSFILE_BYTES_MAX).read_to_end(&mut bytes) {
        return unused(&error.to_string());
    }
    let (host, port) = names(place);
    let found = String::from_utf8_lossy(&bytes)
        .lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| password_in(line, [&host, &port, database, user]));
    bytes.fill(0);
    found.map_or(PasswordAnswer::None, PasswordAnswer::Found)
}

/// How a place is written in the file: the default socket folder is called localhost.
fn names(place: &Place) -> (String, String) {
    match place {
        Place::Tcp { host, port, .. } => (host.clone(), port.to_string()),
        Place::Unix { path } => {
            let folder = path.parent().map(|folder| folder.to_string_lossy().into_owned()).unwrap_or_default();
            let port = path.extension().map(|port| port.to_string_lossy().into_owned()).unwrap_or_default();
            (if folder == SOCKET_FOLDER { "localhost".to_owned() } else { folder }, port)
        }
    }
}

fn password_in(line: &str, wanted: [&str; 4]) -> Option<String> {
    let mut rest = line.trim_end_matches(['\r', '\n']);
    for word in wanted {
        rest = match rest.strip_prefix("*:") {
            Some(after) => after,
            None => {
                let (field, after) = field(rest);
                after.filter(|_| field == word)?
            }
        };
    }
    Some(field(rest).0)
}

/// The text up to the next colon, unescaped, and what follows that colon.
fn field(text: &str) -> (String, Option<&str>) {
    let mut value = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ':' => return (value, Some(chars.as_str())),
            '\\' => value.push(chars.next().unwrap_or('\\')),
            c => value.push(c),
        }
    }
    (value, None)
}

#[cfg(test)]
mod tests {
    use super::{PasswordAnswer, Place, look_up, password_in};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_first_four_fields_must_match_and_the_fifth_is_the_password() {
        let wanted = ["db", "5432", "app", "me"];
        for (line, password) in [
            ("db:5432:app:me:secret", Some("secret")),
            ("*:*:*:*:secret", Some("secret")),
            ("db:*:app:me:se\\:cr\\\\et", Some("se:cr\\et")),
            ("db:5432:app:me:a:b", Some("a")),
            ("db:5432:app:me:", Some("")),
            ("d\\b:5432:app:me:x", Some("x")),
            ("db:5433:app:me:secret", None),
            ("db:5432:app:me", None),
            ("db*:5432:app:me:x", None),
            ("", None),
        ] {
            assert_eq!(password_in(line, wanted).as_deref(), password, "{line}");
        }
        assert_eq!(password_in("::1:1:a:b:x", ["::1", "1", "a", "b"]), None);
        assert_eq!(password_in("\\:\\:1:1:a:b:x", ["::1", "1", "a", "b"]).as_deref(), Some("x"));
    }

    #[test]
    fn a_file_that_others_may_read_is_not_used_and_says_so() {
        let path = std::env::temp_dir().join(format!("mill-pgpass-{}", std::process::id()));
        std::fs::write(&path, "# note\nlocalhost:5432:*:me:by socket\n*:*:*:*:s3cret\n").unwrap();
        let place = Place::Tcp { host: "db".into(), address: None, port: 5432 };
        let socket = Place::Unix { path: "/var/run/postgresql/.s.PGSQL.5432".into() };
        for (mode, found) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let answer = look_up(&path, &place, "app", "me");
            assert_eq!(answer.password(), found.then_some("s3cret"), "{mode:o}");
            assert_eq!(answer.advice().contains("chmod 600"), !found);
            assert!(!format!("{answer:?}").contains("s3cret"));
            assert_eq!(look_up(&path, &socket, "app", "me").password(), found.then_some("by socket"));
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(look_up(&path, &place, "app", "me"), PasswordAnswer::None);
        assert!(matches!(look_up(&std::env::temp_dir(), &place, "app", "me"), PasswordAnswer::Unused(_)));
    }
}
