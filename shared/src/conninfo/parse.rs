//! The two spellings of a conninfo: `host=db user=me` and `postgresql://me@db/app`.
//!
//! Called by the config and by whoever gets a conninfo as text; the result is pairs, not yet judged (`resolve.rs`
//! does that), but every keyword is one that libpq knows. What can go wrong: bad quoting, bad percent-encoding,
//! unknown keywords. Errors name places and keywords, never values: a value may be, or contain, a password.

use super::{Conninfo, ConninfoError, keyword};
use crate::config::nearest::nearest;

const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];

impl Conninfo {
    /// Reads either spelling, by libpq's rules.
    pub fn parse(text: &str) -> Result<Conninfo, ConninfoError> {
        if text.contains('\0') {
            return Err(ConninfoError::Nul);
        }
        match SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)) {
            Some(rest) => parse_uri(rest),
            None => parse_keywords(text),
        }
    }

    fn add(&mut self, key: &str, value: &str, at: usize) -> Result<(), ConninfoError> {
        if keyword::find(key).is_some() {
            self.set(key, value);
            return Ok(());
        }
        if self.has_password() {
            return Err(ConninfoError::UnknownAfterPassword { at });
        }
        if !is_word(key) {
            return Err(ConninfoError::NotAWord { at });
        }
        Err(unknown(key))
    }
}

/// What is none may be a part of a URI that went wrong, with its password.
fn is_word(key: &str) -> bool {
    key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

pub(super) fn unknown(key: &str) -> ConninfoError {
    ConninfoError::UnknownKeyword {
        keyword: key.chars().take(40).flat_map(char::escape_debug).collect(),
        nearest: nearest(key, Conninfo::keywords()),
    }
}

/// What C's isspace calls a blank.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}')
}

fn parse_keywords(text: &str) -> Result<Conninfo, ConninfoError> {
    let mut conninfo = Conninfo::default();
    let mut rest = text.trim_start_matches(is_blank);
    while !rest.is_empty() {
        let at = text.len() - rest.len();
        let end = rest.find(|c| c == '=' || is_blank(c)).unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        let Some(value) = after.trim_start_matches(is_blank).strip_prefix('=') else {
            return Err(ConninfoError::MissingEquals { at });
        };
        let value = value.trim_start_matches(is_blank);
        let value_at = text.len() - value.len();
        let (value, after) = match value.strip_prefix('\'') {
            Some(quoted) => take_value(quoted, |c| c == '\''),
            None => take_value(value, is_blank),
        };
        // a bare value may end with the text, a quoted one may not
        let quoted = text[value_at..].starts_with('\'');
        rest = match after {
            Some(after) => after,
            None if quoted => return Err(ConninfoError::UnterminatedQuote { at: value_at }),
            None => "",
        };
        conninfo.add(key, &value, at)?;
        rest = rest.trim_start_matches(is_blank);
    }
    Ok(conninfo)
}

/// The value up to its end, unescaped, and what follows the end; `None` if the text ended first.
fn take_value(text: &str, ends: impl Fn(char) -> bool) -> (String, Option<&str>) {
    let mut value = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => value.extend(chars.next()),
            c if ends(c) => return (value, Some(chars.as_str())),
            c => value.push(c),
        }
    }
    (value, None)
}

/// What follows the scheme: `user:password@host:port/dbname?key=value&..`.
fn parse_uri(rest: &str) -> Result<Conninfo, ConninfoError> {
    let mut conninfo = Conninfo::default();
    let before_path = &rest[..rest.find('/').unwrap_or(rest.len())];
    let rest = match before_path.find('@') {
        Some(end) => {
            let (user, password) = before_path[..end].split_once(':').unwrap_or((&before_path[..end], ""));
            add_decoded(&mut conninfo, "user", user)?;
            add_decoded(&mut conninfo, "password", password)?;
            &rest[end + 1..]
        }
        None => rest,
    };
    let authority_end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(authority_end);
    parse_authority(&mut conninfo, authority)?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    // most likely a password with an unencoded slash, which must not become a database's or a parameter's name
    if path.contains('@') || (path.is_empty() && query.contains('@')) {
        return Err(ConninfoError::Uri("an @ comes too late; write / ? @ in a user or password as %2F %3F %40"));
    }
    add_decoded(&mut conninfo, "dbname", path.strip_prefix('/').unwrap_or(path))?;
    let query = query.strip_suffix('&').unwrap_or(query);
    for parameter in query.split('&').filter(|_| !query.is_empty()) {
        parse_parameter(&mut conninfo, parameter)?;
    }
    Ok(conninfo)
}

fn parse_authority(conninfo: &mut Conninfo, authority: &str) -> Result<(), ConninfoError> {
    if authority.contains('@') {
        return Err(ConninfoError::Uri("it has more than one @; write @ as %40 in a password"));
    }
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    for server in authority.split(',') {
        let (host, port) = match server.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) =
                    bracketed.split_once(']').ok_or(ConninfoError::Uri("an IPv6 address has no closing bracket"))?;
                let port = match after.strip_prefix(':') {
                    Some(port) => port,
                    None if after.is_empty() => "",
                    None => return Err(ConninfoError::Uri("only a port may follow an IPv6 address in brackets")),
                };
                (host, port)
            }
            None => server.split_once(':').unwrap_or((server, "")),
        };
        if server.starts_with('[') && host.is_empty() {
            return Err(ConninfoError::Uri("an IPv6 address in brackets is empty"));
        }
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ConninfoError::Uri("a port is not a number; write / ? @ in a password as %2F %3F %40"));
        }
        hosts.push(host);
        ports.push(port);
    }
    add_decoded(conninfo, "host", &hosts.join(","))?;
    add_decoded(conninfo, "port", &ports.join(","))
}

fn parse_parameter(conninfo: &mut Conninfo, parameter: &str) -> Result<(), ConninfoError> {
    let (key, value) =
        parameter.split_once('=').ok_or(ConninfoError::Uri("a query parameter has no =; write key=value"))?;
    if value.contains('=') {
        return Err(ConninfoError::Uri("a query parameter has more than one =; write %3D in a value"));
    }
    let (key, value) = (decode(key)?, decode(value)?);
    // JDBC's spelling, which libpq takes as well
    match (key.as_str(), value.as_str()) {
        ("ssl", "true") => conninfo.set("sslmode", "require"),
        _ if !is_word(&key) => return Err(ConninfoError::Uri("the name of a query parameter has other than letters")),
        _ if keyword::find(&key).is_none() => return Err(unknown(&key)),
        _ => conninfo.set(&key, &value),
    }
    Ok(())
}

/// Parts of a URI that are empty count as not written.
fn add_decoded(conninfo: &mut Conninfo, key: &str, encoded: &str) -> Result<(), ConninfoError> {
    if !encoded.is_empty() {
        conninfo.set(key, &decode(encoded)?);
    }
    Ok(())
}

fn decode(encoded: &str) -> Result<String, ConninfoError> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let ([high, low], after) = after
            .split_first_chunk::<2>()
            .ok_or(ConninfoError::Uri("a % is not followed by two hexadecimal digits"))?;
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match (digit(high), digit(low)) {
            (Some(0), Some(0)) => return Err(ConninfoError::Nul),
            (Some(high), Some(low)) => bytes.push(high * 16 + low),
            _ => return Err(ConninfoError::Uri("a % is not followed by two hexadecimal digits")),
        }
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| ConninfoError::Uri("its percent-encoding is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::{Conninfo, ConninfoError};
    use proptest::prelude::{any, proptest};

    fn pairs(text: &str) -> Vec<(String, String)> {
        Conninfo::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).pairs
    }

    fn expect(text: &str, wanted: &[(&str, &str)]) {
        let wanted: Vec<_> = wanted.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        assert_eq!(pairs(text), wanted, "{text}");
    }

    #[test]
    fn a_uri_that_went_wrong_behind_its_question_mark_tells_no_password() {
        let error = Conninfo::parse("postgresql://me@h/app?:hush@h:1/app?x=1").expect_err("a query of that kind");
        assert!(matches!(error, ConninfoError::Uri(_)) && !error.to_string().contains("hush"), "{error}");
    }

    #[test]
    fn keywords_are_read_with_blanks_quotes_and_escapes_as_libpq_does() {
        expect("", &[]);
        expect(" host=db  user = me\n", &[("host", "db"), ("user", "me")]);
        expect("user='a b' dbname='it\\'s'", &[("user", "a b"), ("dbname", "it's")]);
        expect("user=a\\ b dbname=c\\\\d", &[("user", "a b"), ("dbname", "c\\d")]);
        expect("password='' user='x'dbname=y", &[("password", ""), ("user", "x"), ("dbname", "y")]);
        expect("user= port=1", &[("user", "port=1")]);
        expect("user=x\\", &[("user", "x")]);
        expect("options='-c a=b -c c=d'", &[("options", "-c a=b -c c=d")]);
    }

    #[test]
    fn the_last_of_equal_keywords_counts() {
        expect("user=a port=1 user=b", &[("user", "b"), ("port", "1")]);
    }

    #[test]
    fn a_uri_is_read_with_all_its_parts() {
        expect(
            "postgresql://me:s%40crt@db.example:5433/app?connect_timeout=5&options=-c%20a%3Db",
            &[
                ("user", "me"),
                ("password", "s@crt"),
                ("host", "db.example"),
                ("port", "5433"),
                ("dbname", "app"),
                ("connect_timeout", "5"),
                ("options", "-c a=b"),
            ],
        );
        expect("postgres://", &[]);
        expect("postgres:///app", &[("dbname", "app")]);
        expect("postgres://db", &[("host", "db")]);
        expect("postgres://db?user=me", &[("host", "db"), ("user", "me")]);
        expect("postgres://me@/app", &[("user", "me"), ("dbname", "app")]);
        expect("postgres://[::1]:5433/app", &[("host", "::1"), ("port", "5433"), ("dbname", "app")]);
        expect("postgres://%2Frun%2Fpostgresql/app", &[("host", "/run/postgresql"), ("dbname", "app")]);
        expect("postgres:///app?host=/run/postgresql", &[("dbname", "app"), ("host", "/run/postgresql")]);
        expect("postgres://a:1,b:2/c", &[("host", "a,b"), ("port", "1,2"), ("dbname", "c")]);
        expect("postgres://db/?ssl=true", &[("host", "db"), ("sslmode", "require")]);
    }

    #[test]
    fn a_bad_uri_is_refused() {
        for text in [
            "postgres://[::1",
            "postgres://[]/x",
            "postgres://[::1]x/y",
            "postgres://db/%zz",
            "postgres://db/%4",
            "postgres://db/%ff",
            "postgres://db/?user",
            "postgres://db/?user=a=b",
        ] {
            assert!(matches!(Conninfo::parse(text), Err(ConninfoError::Uri(_))), "{text}");
        }
        assert_eq!(Conninfo::parse("postgres://db/a%00b"), Err(ConninfoError::Nul));
        assert_eq!(Conninfo::parse("user=a\0b"), Err(ConninfoError::Nul));
    }

    #[test]
    fn an_unknown_keyword_is_named_with_the_nearest() {
        for text in ["hots=db", "postgres://db/?hots=x"] {
            let error = Conninfo::parse(text).expect_err(text).to_string();
            assert!(error.contains("\"hots\"; did you mean \"host\"?"), "{error}");
        }
    }

    #[test]
    fn pieces_of_a_password_never_stand_in_an_error() {
        for text in [
            "user=me password=my s3cret host=db",
            "user=me password=my s3cret=x host=db",
            "user=me password='my s3cret",
            "password=x s3cret",
            "postgres://me:pa%zzs3cret@db/app",
            "postgres://me:pa@s3cret@db/app",
            "postgres://me:1/s3cret@db/app",
            "postgres://me:1?s3cret=/x@db/app",
            "postgres://me:x?s3cret=1",
            "postgres://me:s3cret@[::1/app",
        ] {
            let error = Conninfo::parse(text).expect_err(text);
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{text}: {error}");
        }
    }

    #[test]
    fn an_open_quote_and_a_missing_equals_are_named_by_their_place() {
        assert_eq!(Conninfo::parse("user='me"), Err(ConninfoError::UnterminatedQuote { at: 5 }));
        assert_eq!(Conninfo::parse("port=1 user me"), Err(ConninfoError::MissingEquals { at: 7 }));
        assert_eq!(Conninfo::parse("db"), Err(ConninfoError::MissingEquals { at: 0 }));
    }

    #[test]
    fn a_uri_with_a_mistyped_beginning_does_not_show_its_password() {
        for text in
            [" postgresql://me:hush@db/app?a=b", "ostgres://me:hush@db/app?a=b", "jdbc:postgresql://me:hush@db/x=y"]
        {
            let said = Conninfo::parse(text).unwrap_err().to_string();
            assert!(!said.contains("hush"), "{said}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in any::<String>(), like in "[a-z=' \\\\%@:/?&\\[\\],é]{0,40}") {
            let _ = Conninfo::parse(&text);
            let _ = Conninfo::parse(&like);
            let _ = Conninfo::parse(&format!("postgres://{like}"));
            let _ = Conninfo::parse(&format!("postgresql://{text}"));
        }

        #[test]
        fn every_value_survives_quoting(user in "[^\0]{0,20}", options in "[^\0]{1,20}") {
            let conninfo = Conninfo::default().with("user", &user).with("options", &options);
            assert_eq!(Conninfo::parse(&conninfo.to_string()), Ok(conninfo));
        }
    }
}
