//! From pairs to a `Target`: the PG* environment below them, libpq's defaults below that.
//!
//! Called before every connect and by the config check. The environment comes in as a function, so that tests
//! (and remote tasks, which must not see ours) bring their own. What can go wrong: values that are none, keywords
//! that this version does not honour (refused by name, `keyword.rs`), a socket path too long for the system.
//! Where the environment is to blame, the error names the variable.

use super::keyword::{self, KEYWORDS, Keyword, Rule};
use super::parse::unknown;
use super::{Conninfo, ConninfoError, Place, Target};
use std::net::IpAddr;
use std::path::PathBuf;

/// Debian's libpq looks for the server's socket here.
const SOCKET_FOLDER: &str = "/var/run/postgresql";
const PORT: u16 = 5432;
const CONNECT_TIMEOUT_MS: u64 = 10_000;
/// sockaddr_un holds 108 bytes, the last one is a NUL.
pub(crate) const LONGEST_SOCKET_PATH: usize = 107;

/// A value and the name under which it was found, for messages.
struct Found {
    name: &'static str,
    value: String,
}

struct Lookup<'a> {
    pairs: &'a Conninfo,
    environment: &'a dyn Fn(&str) -> Option<String>,
}

impl Conninfo {
    /// The server and login that these pairs mean. `connect_timeout` is 10 s unless given (0 and less mean not
    /// given, since nothing here waits for ever; 1 counts as 2, as in libpq).
    pub fn resolve(&self, environment: &dyn Fn(&str) -> Option<String>) -> Result<Target, ConninfoError> {
        if self.pairs.iter().any(|(name, value)| name.contains('\0') || value.contains('\0')) {
            return Err(ConninfoError::Nul);
        }
        if let Some((name, _)) = self.pairs.iter().find(|(name, _)| keyword::find(name).is_none()) {
            return Err(unknown(name));
        }
        let lookup = Lookup { pairs: self, environment };
        for keyword in KEYWORDS {
            lookup.judge(keyword)?;
        }
        let user = match lookup.value("user") {
            Some(user) => user,
            None => system_user()?,
        };
        Ok(Target {
            place: lookup.place()?,
            password: lookup.value("password"),
            database: lookup.value("dbname").unwrap_or_else(|| user.clone()),
            options: lookup.value("options"),
            connect_timeout_ms: lookup.connect_timeout_ms()?,
            user,
        })
    }
}

impl Lookup<'_> {
    /// What was written, else the environment's; an empty text hides the environment and means the default.
    fn find(&self, keyword: &Keyword) -> Option<Found> {
        let found = match (self.pairs.get(keyword.name), keyword.variable) {
            (Some(value), _) => Found { name: keyword.name, value: value.to_owned() },
            (None, Some(variable)) => Found { name: variable, value: (self.environment)(variable)? },
            (None, None) => return None,
        };
        (!found.value.is_empty()).then_some(found)
    }

    fn named(&self, name: &str) -> Option<Found> {
        keyword::find(name).and_then(|keyword| self.find(keyword))
    }

    fn value(&self, name: &str) -> Option<String> {
        self.named(name).map(|found| found.value)
    }

    fn judge(&self, keyword: &Keyword) -> Result<(), ConninfoError> {
        let Some(Found { name, value }) = self.find(keyword) else { return Ok(()) };
        match keyword.rule {
            Rule::Taken | Rule::Ignored => Ok(()),
            // libpq opens the file only if it has no password yet
            Rule::Refused { .. } if keyword.name == "passfile" && self.named("password").is_some() => Ok(()),
            Rule::Refused { instead } => Err(ConninfoError::NotSupported { what: name.to_owned(), instead }),
            Rule::Only { fine, .. } if fine.contains(&value.as_str()) => Ok(()),
            Rule::Only { refused, instead, .. } if refused.contains(&value.as_str()) => {
                Err(ConninfoError::NotSupported { what: format!("{name}={value}"), instead })
            }
            Rule::Only { fine, .. } => Err(bad_value(name, &format!("one of {}", fine.join(", ")))),
        }
    }

    fn place(&self) -> Result<Place, ConninfoError> {
        let (host, address) = (self.named("host"), self.named("hostaddr"));
        for found in [&host, &address, &self.named("port")].into_iter().flatten() {
            if found.value.contains(',') {
                return Err(ConninfoError::NotSupported {
                    what: format!("a list of several servers in {}", found.name),
                    instead: "name one server",
                });
            }
        }
        let port = self.port()?;
        let address = address
            .map(|found| found.value.parse::<IpAddr>().map_err(|_| bad_value(found.name, "an IP address")))
            .transpose()?;
        let host = host.map(|found| found.value).unwrap_or_else(|| match address {
            Some(address) => address.to_string(),
            None => SOCKET_FOLDER.to_owned(),
        });
        let is_socket = host.starts_with(['/', '@']);
        match address {
            // the address is what is dialled, even beside a socket's folder
            Some(address) if is_socket => Ok(Place::Tcp { host: address.to_string(), address: Some(address), port }),
            Some(_) => Ok(Place::Tcp { host, address, port }),
            None if is_socket => socket(&host, port),
            None => Ok(Place::Tcp { address: host.parse().ok(), host, port }),
        }
    }

    fn port(&self) -> Result<u16, ConninfoError> {
        let Some(found) = self.named("port") else { return Ok(PORT) };
        match found.value.trim().parse::<u16>() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(bad_value(found.name, "a number from 1 to 65535")),
        }
    }

    fn connect_timeout_ms(&self) -> Result<u64, ConninfoError> {
        let Some(found) = self.named("connect_timeout") else { return Ok(CONNECT_TIMEOUT_MS) };
        match found.value.trim().parse::<i32>() {
            Ok(seconds @ 1..) => Ok(u64::from(seconds.unsigned_abs().max(2)) * 1_000),
            Ok(_) => Ok(CONNECT_TIMEOUT_MS),
            Err(_) => Err(bad_value(found.name, "a whole number of seconds")),
        }
    }
}

fn socket(folder: &str, port: u16) -> Result<Place, ConninfoError> {
    let path = format!("{}/.s.PGSQL.{port}", folder.trim_end_matches('/'));
    if path.len() > LONGEST_SOCKET_PATH {
        let (length, longest) = (path.len(), LONGEST_SOCKET_PATH);
        return Err(ConninfoError::SocketPathTooLong { path, length, longest });
    }
    Ok(Place::Unix { path: PathBuf::from(path) })
}

fn system_user() -> Result<String, ConninfoError> {
    let uid = nix::unistd::geteuid();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => Ok(user.name),
        Ok(None) | Err(_) => Err(ConninfoError::NoUser { uid: uid.as_raw() }),
    }
}

fn bad_value(name: &str, wanted: &str) -> ConninfoError {
    ConninfoError::BadValue { name: name.to_owned(), wanted: wanted.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::{Conninfo, ConninfoError, Place, Target};
    use super::{LONGEST_SOCKET_PATH, system_user};
    use proptest::prelude::{any, proptest};

    fn resolve_in(text: &str, environment: &[(&str, &str)]) -> Result<Target, ConninfoError> {
        let lookup =
            |name: &str| environment.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.to_string());
        Conninfo::parse(text).expect(text).resolve(&lookup)
    }

    fn resolve(text: &str) -> Result<Target, ConninfoError> {
        resolve_in(text, &[])
    }

    fn refusal(text: &str) -> String {
        resolve(text).expect_err(text).to_string()
    }

    fn unix(path: &str) -> Place {
        Place::Unix { path: path.into() }
    }

    fn tcp(host: &str, address: Option<&str>, port: u16) -> Place {
        Place::Tcp { host: host.into(), address: address.map(|text| text.parse().unwrap()), port }
    }

    #[test]
    fn nothing_given_means_the_local_socket_and_the_systems_user() {
        let target = resolve("").unwrap();
        assert_eq!(target.place, unix("/var/run/postgresql/.s.PGSQL.5432"));
        assert_eq!(target.user, system_user().unwrap());
        assert_eq!(target.database, target.user);
        assert_eq!((target.password, target.options, target.connect_timeout_ms), (None, None, 10_000));
    }

    #[test]
    fn the_environment_stands_below_what_is_written() {
        let environment = [
            ("PGHOST", "env.example"),
            ("PGPORT", "6000"),
            ("PGUSER", "env"),
            ("PGPASSWORD", "secret"),
            ("PGDATABASE", "envdb"),
            ("PGOPTIONS", "-cx=1"),
            ("PGCONNECT_TIMEOUT", "7"),
            ("PGSSLMODE", "prefer"),
        ];
        let target = resolve_in("", &environment).unwrap();
        assert_eq!(target.place, tcp("env.example", None, 6000));
        assert_eq!((target.user.as_str(), target.database.as_str()), ("env", "envdb"));
        assert_eq!((target.password.as_deref(), target.options.as_deref()), (Some("secret"), Some("-cx=1")));
        assert_eq!(target.connect_timeout_ms, 7_000);
        let target = resolve_in("host=/tmp port=1 user=me password=p dbname=d", &environment).unwrap();
        assert_eq!(target.place, unix("/tmp/.s.PGSQL.1"));
        assert_eq!((target.user.as_str(), target.database.as_str()), ("me", "d"));
        assert_eq!(target.password.as_deref(), Some("p"));
    }

    #[test]
    fn an_empty_value_hides_the_environment_and_means_the_default() {
        let target = resolve_in("host='' user=me dbname=''", &[("PGHOST", "x"), ("PGDATABASE", "y")]).unwrap();
        assert_eq!(target.place, unix("/var/run/postgresql/.s.PGSQL.5432"));
        assert_eq!(target.database, "me");
    }

    #[test]
    fn a_host_is_a_name_an_address_or_a_folder() {
        let table = [
            ("host=db", tcp("db", None, 5432)),
            ("host=10.0.0.1", tcp("10.0.0.1", Some("10.0.0.1"), 5432)),
            ("host=::1 port=1", tcp("::1", Some("::1"), 1)),
            ("host=db hostaddr=10.0.0.1", tcp("db", Some("10.0.0.1"), 5432)),
            ("hostaddr=10.0.0.1", tcp("10.0.0.1", Some("10.0.0.1"), 5432)),
            ("host=/tmp hostaddr=10.0.0.1", tcp("10.0.0.1", Some("10.0.0.1"), 5432)),
            ("host=/tmp/ port=5", unix("/tmp/.s.PGSQL.5")),
            ("host=@mill", unix("@mill/.s.PGSQL.5432")),
            ("postgres://[::1]/x", tcp("::1", Some("::1"), 5432)),
            ("postgres://%2Ftmp/x", unix("/tmp/.s.PGSQL.5432")),
        ];
        for (text, place) in table {
            assert_eq!(resolve(text).expect(text).place, place, "{text}");
        }
    }

    #[test]
    fn a_connect_timeout_of_one_second_counts_as_two() {
        for (text, ms) in [("1", 2_000), ("2", 2_000), ("30", 30_000), ("0", 10_000), ("-1", 10_000)] {
            assert_eq!(resolve(&format!("connect_timeout={text}")).unwrap().connect_timeout_ms, ms);
        }
    }

    #[test]
    fn harmless_keywords_are_accepted() {
        for text in [
            "application_name=x fallback_application_name=y client_encoding=utf8 keepalives=0 keepalives_idle=1",
            "sslmode=disable",
            "sslmode=allow gssencmode=disable channel_binding=prefer",
            "sslmode=prefer target_session_attrs=any load_balance_hosts=disable tcp_user_timeout=5",
            "passfile=/x password=p",
            "sslrootcert=''",
        ] {
            resolve(text).expect(text);
        }
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name_with_what_to_do() {
        assert_eq!(
            refusal("sslmode=require"),
            "sslmode=require is not supported by this version: \
             connect over a Unix socket or a trusted network with sslmode=prefer"
        );
        for (text, name) in [
            ("sslmode=verify-full", "sslmode=verify-full"),
            ("passfile=/x", "passfile"),
            ("service=x", "service"),
            ("sslcert=/x", "sslcert"),
            ("gssencmode=require", "gssencmode=require"),
            ("channel_binding=require", "channel_binding=require"),
            ("target_session_attrs=read-write", "target_session_attrs=read-write"),
            ("host=a,b", "several servers in host"),
            ("requirepeer=x", "requirepeer"),
        ] {
            let error = refusal(text);
            assert!(error.contains(name) && error.contains("not supported by this version: "), "{error}");
        }
    }

    #[test]
    fn the_environment_is_named_where_it_is_to_blame() {
        for (variable, value) in [("PGSSLMODE", "require"), ("PGSERVICE", "x"), ("PGPORT", "x"), ("PGHOST", "a,b")] {
            let error = resolve_in("", &[(variable, value)]).expect_err(variable).to_string();
            assert!(error.contains(variable), "{error}");
        }
    }

    #[test]
    fn bad_values_are_refused_without_showing_them() {
        for text in
            ["port=s3cret", "port=0", "port=70000", "hostaddr=s3cret", "connect_timeout=s3cret", "sslmode=s3cret"]
        {
            let error = refusal(text);
            assert!(error.contains(text.split('=').next().unwrap()) && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_keyword_set_by_hand_is_judged_too() {
        let error = Conninfo::default().with("usr", "x").resolve(&|_| None).expect_err("unknown");
        assert!(error.to_string().contains("did you mean \"user\"?"), "{error}");
        assert_eq!(Conninfo::default().with("user", "a\0").resolve(&|_| None), Err(ConninfoError::Nul));
    }

    #[test]
    fn a_socket_path_may_have_107_bytes_and_no_more() {
        let folder = |length: usize| format!("host=/{}", "x".repeat(length - 1 - "/.s.PGSQL.5432".len()));
        assert!(resolve(&folder(LONGEST_SOCKET_PATH)).is_ok());
        let error = refusal(&folder(LONGEST_SOCKET_PATH + 1));
        assert!(error.contains("108 bytes") && error.contains("107"), "{error}");
    }

    proptest! {
        #[test]
        fn any_value_is_survived(value in any::<String>(), key in "host|port|hostaddr|sslmode|connect_timeout|user") {
            let _ = Conninfo::default().with(&key, &value).with("dbname", &value).resolve(&|_| None);
            let _ = Conninfo::default().resolve(&|_| Some(value.clone()));
        }
    }
}
