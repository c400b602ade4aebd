//! Which address is tried next, and whether in the clear: PURE.
//!
//! Both clients walk the same route, so that they end at the same server. libpq's rules: the next address or host is
//! tried when nobody can be reached, when a server is starting up, or when it is not of the wanted kind; a server
//! that says no ends the walk, but for one more try with or without TLS under `allow` and `prefer`. What something
//! on the way refuses in the startup message is sent after the login instead.

use crate::conninfo::{Place, SessionAttributes, Target, TlsMode};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    Plain,
    /// TLS if the server has it, else plain.
    Offered,
    /// TLS or nothing.
    Insisted,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leg<E> {
    /// Find the addresses of this name, then say `resolved`.
    Resolve { host: String, port: u16 },
    /// Connect and log in.
    Dial(ConnectAttempt),
    /// There is nothing left to try.
    Over(E),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectAttempt {
    pub place: Place,
    /// None for a Unix socket.
    pub address: Option<SocketAddr>,
    pub cover: Cover,
}

/// Why an attempt has not led to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No name, no route, nobody listens, no answer in time.
    Unreachable,
    /// The handshake did not end well.
    Tls,
    /// The server said no.
    Refused { code: String, encrypted: bool },
    /// Something on the way does not take our settings in the startup message.
    SettingsRefused,
    /// A session, but not of the wanted kind.
    Unsuitable,
    /// Anything else.
    Broken,
}

const CANNOT_CONNECT_NOW: &str = "57P03";
const PROTOCOL_VIOLATION: &str = "08P01";

impl Failure {
    /// A server's refusal. A pooler refuses what it does not know in a startup message.
    pub fn refused(code: &str, message: &str, encrypted: bool) -> Failure {
        if code == PROTOCOL_VIOLATION && message.contains("startup parameter") {
            return Failure::SettingsRefused;
        }
        Failure::Refused { code: code.to_owned(), encrypted }
    }
}

#[derive(Debug)]
pub struct Route {
    target: Target,
    /// Hosts still to be tried in this pass.
    places: VecDeque<Place>,
    /// Addresses of the present host still to be tried.
    addresses: VecDeque<Option<SocketAddr>>,
    attempt: Option<ConnectAttempt>,
    /// The other cover has been tried at this address.
    turned: bool,
    /// Stand-bys were preferred and none was found: any server will do.
    second_pass: bool,
}

impl Route {
    pub fn new(target: &Target) -> Route {
        let mut route = Route {
            target: target.clone(),
            places: VecDeque::new(),
            addresses: VecDeque::new(),
            attempt: None,
            turned: false,
            second_pass: false,
        };
        route.fill();
        route
    }

    /// The target, with what was learnt on the way.
    pub fn target(&self) -> &Target {
        &self.target
    }

    pub fn attempt(&self) -> Option<&ConnectAttempt> {
        self.attempt.as_ref()
    }

    /// The first leg. `nowhere` is told if there is no place at all.
    pub fn begin<E>(&mut self, nowhere: E) -> Leg<E> {
        self.next_place(nowhere)
    }

    /// The name that was to be resolved has these addresses.
    pub fn resolved<E>(&mut self, found: Vec<SocketAddr>, nowhere: E) -> Leg<E> {
        let mut found: Vec<_> = found.into_iter().map(Some).collect();
        if self.target.shuffle {
            shuffle(&mut found);
        }
        self.addresses = found.into();
        self.next_address(nowhere)
    }

    /// The attempt, or the resolution, has failed.
    pub fn failed<E>(&mut self, failure: &Failure, error: E) -> Leg<E> {
        let Some(attempt) = self.attempt.clone() else { return self.next_place(error) };
        let mode = self.target.tls_at(&attempt.place).map(|tls| tls.mode);
        let other = match (failure, mode, attempt.cover) {
            (Failure::SettingsRefused, _, _) if !self.target.late_settings => {
                self.target.late_settings = true;
                return Leg::Dial(attempt);
            }
            _ if self.turned => None,
            (Failure::Refused { encrypted: true, .. }, Some(TlsMode::Prefer), Cover::Offered) => Some(Cover::Plain),
            (Failure::Tls, Some(TlsMode::Prefer), Cover::Offered) => Some(Cover::Plain),
            (Failure::Refused { .. }, Some(TlsMode::Allow), Cover::Plain) => Some(Cover::Offered),
            _ => None,
        };
        let starting_up = matches!(failure, Failure::Refused { code, .. } if code == CANNOT_CONNECT_NOW);
        match (failure, other) {
            _ if starting_up => self.next_place(error),
            (_, Some(cover)) => {
                self.turned = true;
                let attempt = ConnectAttempt { cover, ..attempt };
                self.attempt = Some(attempt.clone());
                Leg::Dial(attempt)
            }
            (Failure::Unreachable, None) => self.next_address(error),
            (Failure::Unsuitable, None) => self.next_place(error),
            (Failure::Tls | Failure::Refused { .. } | Failure::SettingsRefused | Failure::Broken, None) => {
                Leg::Over(error)
            }
        }
    }

    /// Whether a session of this kind will do, by what the server reports; if not, why.
    pub fn suits(&self, in_hot_standby: Option<&str>, read_only_by_default: Option<&str>) -> Result<(), String> {
        use SessionAttributes as A;
        let wanted = match self.target.attributes {
            A::Any => return Ok(()),
            A::PreferStandby if self.second_pass => return Ok(()),
            other => other,
        };
        let Some(standby) = in_hot_standby.map(|word| word == "on") else {
            return Err("the server does not report whether it is a standby (target_session_attrs)".to_owned());
        };
        let read_only = standby || read_only_by_default == Some("on");
        let why = match wanted {
            A::ReadWrite if read_only => "is read-only",
            A::ReadOnly if !read_only => "is not read-only",
            A::Primary if standby => "is a standby",
            A::Standby | A::PreferStandby if !standby => "is not a standby",
            A::Any | A::ReadWrite | A::ReadOnly | A::Primary | A::Standby | A::PreferStandby => return Ok(()),
        };
        Err(format!("the server {why}, which target_session_attrs excludes"))
    }

    fn fill(&mut self) {
        let mut places = self.target.places_in_order();
        if self.target.shuffle {
            let preferred = usize::from(self.target.prefer.is_some());
            shuffle(&mut places[preferred..]);
        }
        self.places = places.into();
    }

    fn next_place<E>(&mut self, error: E) -> Leg<E> {
        self.attempt = None;
        self.addresses.clear();
        if self.places.is_empty()
            && self.target.attributes == SessionAttributes::PreferStandby
            && !std::mem::replace(&mut self.second_pass, true)
        {
            self.fill();
        }
        let Some(place) = self.places.pop_front() else { return Leg::Over(error) };
        let known = match &place {
            Place::Unix { .. } => Some(None),
            Place::Tcp { address, port, .. } => address.map(|address| Some(SocketAddr::new(address, *port))),
        };
        let name = match &place {
            Place::Tcp { host, port, .. } => (host.clone(), *port),
            Place::Unix { .. } => Default::default(),
        };
        self.attempt = Some(ConnectAttempt { cover: self.first_cover(&place), place, address: None });
        match known {
            Some(address) => {
                self.addresses.push_back(address);
                self.next_address(error)
            }
            None => Leg::Resolve { host: name.0, port: name.1 },
        }
    }

    fn next_address<E>(&mut self, error: E) -> Leg<E> {
        match (self.addresses.pop_front(), self.attempt.take()) {
            (Some(address), Some(attempt)) => {
                self.turned = false;
                let attempt = ConnectAttempt { cover: self.first_cover(&attempt.place), place: attempt.place, address };
                self.attempt = Some(attempt.clone());
                Leg::Dial(attempt)
            }
            _ => self.next_place(error),
        }
    }

    fn first_cover(&self, place: &Place) -> Cover {
        match self.target.tls_at(place).map(|tls| tls.mode) {
            None | Some(TlsMode::Allow) => Cover::Plain,
            Some(TlsMode::Prefer) => Cover::Offered,
            Some(TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull) => Cover::Insisted,
        }
    }
}

fn shuffle<T>(items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, rand::random_range(0..=last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conninfo::Conninfo;

    fn route(text: &str) -> Route {
        Route::new(&Conninfo::parse(text).unwrap().resolve(&|_| None).unwrap())
    }

    fn refused(code: &str, encrypted: bool) -> Failure {
        Failure::refused(code, "no", encrypted)
    }

    /// The walk as words, with one failure after the other.
    fn walk(text: &str, failures: &[Failure]) -> Vec<String> {
        let mut route = route(text);
        let mut legs = vec![route.begin("nowhere")];
        for failure in failures {
            legs.push(route.failed(failure, "why"));
        }
        legs.iter()
            .map(|leg| match leg {
                Leg::Resolve { host, .. } => format!("resolve {host}"),
                Leg::Dial(attempt) => {
                    let port =
                        attempt.address.map_or_else(|| "socket".to_owned(), |address| address.port().to_string());
                    format!("{port} {:?}", attempt.cover)
                }
                Leg::Over(why) => format!("over: {why}"),
            })
            .collect()
    }

    #[test]
    fn an_unreachable_server_gives_way_to_the_next_and_a_refusal_ends_the_walk() {
        let two = "host=127.0.0.1,127.0.0.1 port=1,2 sslmode=disable";
        assert_eq!(walk(two, &[Failure::Unreachable, Failure::Unreachable]), ["1 Plain", "2 Plain", "over: why"]);
        assert_eq!(walk(two, &[refused("28P01", false)]), ["1 Plain", "over: why"]);
        assert_eq!(walk(two, &[refused("57P03", false)]), ["1 Plain", "2 Plain"]);
        assert_eq!(walk(two, &[Failure::Unsuitable]), ["1 Plain", "2 Plain"]);
        assert_eq!(walk(two, &[Failure::Broken]), ["1 Plain", "over: why"]);
    }

    #[test]
    fn prefer_falls_back_to_plain_once_and_allow_turns_to_tls_once() {
        let prefer = "host=127.0.0.1 port=1 sslmode=prefer";
        for first in [Failure::Tls, refused("28000", true)] {
            let legs = walk(prefer, &[first, refused("28000", false)]);
            assert_eq!(legs, ["1 Offered", "1 Plain", "over: why"]);
        }
        assert_eq!(walk(prefer, &[refused("28000", false)]), ["1 Offered", "over: why"]);
        let allow = walk("host=127.0.0.1 port=1 sslmode=allow", &[refused("28000", false), refused("28000", true)]);
        assert_eq!(allow, ["1 Plain", "1 Offered", "over: why"]);
    }

    #[test]
    fn where_tls_is_required_nothing_leads_to_a_plain_connection() {
        let all = [Failure::Tls, Failure::Unreachable, Failure::Broken, Failure::Unsuitable, Failure::SettingsRefused];
        for mode in ["require", "verify-ca", "verify-full"] {
            for failure in all.iter().cloned().chain([refused("28000", true), refused("57P03", true)]) {
                let text = format!("host=127.0.0.1,127.0.0.1 port=1,2 sslmode={mode} target_session_attrs=primary");
                let legs = walk(&text, &[failure.clone(), failure.clone(), failure]);
                assert!(legs.iter().all(|leg| leg.ends_with("Insisted") || leg.starts_with("over")), "{legs:?}");
            }
        }
    }

    #[test]
    fn a_name_is_resolved_and_each_of_its_addresses_tried() {
        let mut route = route("host=db,127.0.0.1 port=7,8 sslmode=disable");
        assert_eq!(route.begin(()), Leg::Resolve { host: "db".into(), port: 7 });
        let found = vec!["127.0.0.2:7".parse().unwrap(), "127.0.0.3:7".parse().unwrap()];
        let address = |leg: Leg<()>| match leg {
            Leg::Dial(attempt) => attempt.address.unwrap().to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(address(route.resolved(found, ())), "127.0.0.2:7");
        assert_eq!(address(route.failed(&Failure::Unreachable, ())), "127.0.0.3:7");
        assert_eq!(address(route.failed(&Failure::Unreachable, ())), "127.0.0.1:8");
        assert_eq!(route.failed(&Failure::Unreachable, ()), Leg::Over(()));
    }

    #[test]
    fn settings_that_something_refuses_are_kept_for_later_once() {
        let mut route = route("host=/tmp");
        let first = route.begin(());
        let failure = Failure::refused("08P01", "unsupported startup parameter: options", false);
        assert_eq!(route.failed(&failure, ()), first);
        assert!(route.target().late_settings);
        assert_eq!(route.failed(&failure, ()), Leg::Over(()));
    }

    #[test]
    fn a_stand_by_is_preferred_and_any_other_server_taken_in_the_second_pass() {
        let mut route = route("host=/a,/b target_session_attrs=prefer-standby");
        assert!(matches!(route.begin(()), Leg::Dial(_)));
        assert!(route.suits(Some("off"), Some("off")).is_err() && route.suits(Some("on"), None).is_ok());
        for _ in 0..2 {
            assert!(matches!(route.failed(&Failure::Unsuitable, ()), Leg::Dial(_)));
        }
        assert!(route.suits(Some("off"), Some("off")).is_ok());
        assert!(matches!(route.failed(&Failure::Unreachable, ()), Leg::Dial(_)));
        assert_eq!(route.failed(&Failure::Unreachable, ()), Leg::Over(()));
    }

    #[test]
    fn a_kind_of_server_is_told_by_what_it_reports() {
        for (wanted, primary, standby, read_only_primary) in [
            ("any", true, true, true),
            ("read-write", true, false, false),
            ("read-only", false, true, true),
            ("primary", true, false, true),
            ("standby", false, true, false),
        ] {
            let route = route(&format!("host=/a target_session_attrs={wanted}"));
            assert_eq!(route.suits(Some("off"), Some("off")).is_ok(), primary, "{wanted}");
            assert_eq!(route.suits(Some("on"), Some("off")).is_ok(), standby, "{wanted}");
            assert_eq!(route.suits(Some("off"), Some("on")).is_ok(), read_only_primary, "{wanted}");
            assert_eq!(route.suits(None, None).is_ok(), wanted == "any");
        }
    }
}
