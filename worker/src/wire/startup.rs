//! The login: startup message, authentication, and the server's greeting up to its first ReadyForQuery.
//!
//! `Session::connect` calls it on a fresh socket; the link's deadline bounds all of it. Spoken: trust, password,
//! md5 and SCRAM-SHA-256, bound to the channel where there is TLS. A refusal of the server is
//! `ConnectError::Server`; no error text holds the password.

use crate::limits::{BARE_TEXT_BYTES, LOGIN_BYTES, LOGIN_ROUNDS, LONGEST_LOGIN_ERROR_BYTES};
use std::io;

use bytes::BytesMut;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256};
use postgres_protocol::message::frontend;
use shared::conninfo::{ChannelBinding as Binding, PasswordAnswer, Place, Target};

use super::error::ConnectError;
use super::incoming::{ServerSettings, TransactionStatus, malformed, remember, speech, unexpected};
use super::link::{WireLink, u32_at};
use super::outgoing::Outgoing;
use super::server_error::ServerError;

/// What a server tells of the new session.
#[derive(Debug)]
pub(super) struct Greeting {
    pub(super) pid: i32,
    pub(super) secret: i32,
    pub(super) parameters: ServerSettings,
    pub(super) status: TransactionStatus,
    /// A password was asked for, and given.
    pub(super) password_counted: bool,
}

/// Logs in.
pub(super) fn log_in(
    link: &mut WireLink,
    target: &Target,
    at: &Place,
    parameters: &[(&str, &str)],
    place: &str,
) -> Result<Greeting, ConnectError> {
    let password = target.password_at(at);
    let mut login = LoginDialogue {
        link,
        target,
        password,
        place,
        outgoing: Outgoing::default(),
        proof: Proof::None,
        bound: false,
        asked: false,
    };
    login.hello(parameters)?;
    login.authenticate()?;
    login.greeting()
}

struct LoginDialogue<'a> {
    link: &'a mut WireLink,
    target: &'a Target,
    password: PasswordAnswer,
    place: &'a str,
    outgoing: Outgoing<'static>,
    proof: Proof,
    /// The login is bound to the encrypted channel.
    bound: bool,
    /// The server has asked for the password.
    asked: bool,
}

/// How far SCRAM has come: the server has to prove that it knows the password, too.
enum Proof {
    None,
    Begun(Box<ScramSha256>),
    Answered(Box<ScramSha256>),
    Done,
}

impl LoginDialogue<'_> {
    fn hello(&mut self, parameters: &[(&str, &str)]) -> Result<(), ConnectError> {
        let ours = ["user", "database", "client_encoding", "options"];
        let encoding =
            parameters.iter().rfind(|(name, _)| *name == "client_encoding").map_or("UTF8", |(_, value)| value);
        let mut options: Vec<&str> = self.target.options.as_deref().into_iter().collect();
        options.extend(parameters.iter().filter(|(name, _)| *name == "options").map(|(_, value)| *value));
        let options = options.join(" ");

        let mut all = vec![
            ("user", self.target.user.as_str()),
            ("database", self.target.database.as_str()),
            ("client_encoding", encoding),
        ];
        if !options.is_empty() {
            all.push(("options", options.as_str()));
        }
        all.extend(parameters.iter().filter(|(name, _)| !ours.contains(name)));
        let mut message = BytesMut::new();
        frontend::startup_message(all, &mut message).map_err(|source| self.connect_error(source))?;
        self.outgoing.own(&message);
        Ok(())
    }

    fn authenticate(&mut self) -> Result<(), ConnectError> {
        for _ in 0..LOGIN_ROUNDS {
            let (tag, body) = self.message()?;
            if tag != b'R' {
                return Err(self.connect_error(unexpected(tag)));
            }
            if body.len() < 4 {
                return Err(self.connect_error(malformed("Authentication")));
            }
            let (method, rest) = (u32_at(&body, 0), &body[4..]);
            if matches!(method, 0 | 3 | 5) && self.target.channel_binding == Binding::Require && !self.bound {
                return Err(self.unbound());
            }
            match method {
                0 if matches!(self.proof, Proof::None | Proof::Done) => return Ok(()),
                0 => {
                    return Err(self.connect_error(io::Error::other("server did not prove that it knows the password")));
                }
                3 => self.answer_password(|_, password| password.to_vec())?,
                5 => {
                    let Ok(salt) = <[u8; 4]>::try_from(rest) else {
                        return Err(self.connect_error(malformed("AuthenticationMD5Password")));
                    };
                    self.answer_password(|user, password| md5_hash(user, password, salt).into_bytes())?;
                }
                10 => self.begin_scram(rest)?,
                11 | 12 => self.go_on_with_scram(method, rest)?,
                other => return Err(self.method(&method_name(other))),
            }
        }
        Err(self.connect_error(malformed("too many authentication messages")))
    }

    fn greeting(&mut self) -> Result<Greeting, ConnectError> {
        let mut key = None;
        let mut parameters = ServerSettings::new();
        loop {
            let (tag, body) = self.message()?;
            match tag {
                b'K' if body.len() == 8 => key = Some((u32_at(&body, 0) as i32, u32_at(&body, 4) as i32)),
                b'S' => remember(&mut parameters, &body).map_err(|source| self.connect_error(source))?,
                b'Z' => {
                    let status = TransactionStatus::read(&body).map_err(|source| self.connect_error(source))?;
                    let (pid, secret) = key.ok_or_else(|| self.connect_error(malformed("no BackendKeyData")))?;
                    return Ok(Greeting { pid, secret, parameters, status, password_counted: self.asked });
                }
                _ => return Err(self.connect_error(unexpected(tag))),
            }
        }
    }

    fn answer_password(&mut self, make: impl Fn(&[u8], &[u8]) -> Vec<u8>) -> Result<(), ConnectError> {
        self.asked = true;
        let answer = make(self.target.user.as_bytes(), self.password()?);
        let mut message = BytesMut::new();
        frontend::password_message(&answer, &mut message).map_err(|source| self.connect_error(source))?;
        self.outgoing.own(&message);
        Ok(())
    }

    fn begin_scram(&mut self, mechanisms: &[u8]) -> Result<(), ConnectError> {
        let offered: Vec<&[u8]> = mechanisms.split(|&byte| byte == 0).filter(|name| !name.is_empty()).collect();
        let end_point = self.link.end_point().filter(|_| self.target.channel_binding != Binding::Disable);
        let (mechanism, binding) = match end_point {
            Some(end_point) if offered.contains(&SCRAM_SHA_256_PLUS.as_bytes()) => {
                self.bound = true;
                (SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(end_point))
            }
            _ if self.target.channel_binding == Binding::Require => return Err(self.unbound()),
            _ if !offered.contains(&SCRAM_SHA_256.as_bytes()) => {
                return Err(self.method(&String::from_utf8_lossy(&offered.join(&b", "[..]))));
            }
            // We could have: a server that could too, and was kept from it, will notice.
            Some(_) => (SCRAM_SHA_256, ChannelBinding::unrequested()),
            None => (SCRAM_SHA_256, ChannelBinding::unsupported()),
        };
        self.asked = true;
        let scram = Box::new(ScramSha256::new(self.password()?, binding));
        let mut message = BytesMut::new();
        frontend::sasl_initial_response(mechanism, scram.message(), &mut message)
            .map_err(|source| self.connect_error(source))?;
        self.outgoing.own(&message);
        self.proof = Proof::Begun(scram);
        Ok(())
    }

    fn go_on_with_scram(&mut self, method: u32, data: &[u8]) -> Result<(), ConnectError> {
        match (method, std::mem::replace(&mut self.proof, Proof::None)) {
            (11, Proof::Begun(mut scram)) => {
                let mut message = BytesMut::new();
                scram
                    .update(data)
                    .and_then(|()| frontend::sasl_response(scram.message(), &mut message))
                    .map_err(|source| self.connect_error(source))?;
                self.outgoing.own(&message);
                self.proof = Proof::Answered(scram);
                Ok(())
            }
            (12, Proof::Answered(mut scram)) => {
                scram.finish(data).map_err(|source| self.connect_error(source))?;
                self.proof = Proof::Done;
                Ok(())
            }
            _ => Err(self.connect_error(malformed("AuthenticationSASL out of turn"))),
        }
    }

    /// The next message that is no notice; an error of the server is ours.
    fn message(&mut self) -> Result<(u8, Vec<u8>), ConnectError> {
        loop {
            if let Some(refusal) = self.bare_refusal().map_err(|source| self.connect_error(source))? {
                return Err(ConnectError::Server(refusal));
            }
            let head = self.link.head(&mut self.outgoing).map_err(|source| self.connect_error(source))?;
            if head.body > LOGIN_BYTES {
                return Err(self.connect_error(malformed("it is too long for a login")));
            }
            if head.tag != b'E' && head.tag != b'N' {
                let body = self.link.body(head.body, &mut self.outgoing).map(<[u8]>::to_vec);
                return Ok((head.tag, body.map_err(|source| self.connect_error(source))?));
            }
            let said = speech(self.link, head.body, &mut self.outgoing).map_err(|source| self.connect_error(source))?;
            if head.tag == b'E' {
                return Err(ConnectError::Server(said));
            }
        }
    }

    /// A postmaster that cannot start a process says so without a frame: an `E`, the text, a NUL.
    fn bare_refusal(&mut self) -> io::Result<Option<ServerError>> {
        let header = self.link.peek(5, &mut self.outgoing)?;
        if header[0] != b'E' || (u32_at(header, 1) as usize) <= LONGEST_LOGIN_ERROR_BYTES {
            return Ok(None);
        }
        let mut count = 5;
        // Its end, by a NUL or by the end of the stream, is as good as any.
        while let Ok(text) = self.link.peek(count + 1, &mut self.outgoing) {
            if text[count] == 0 || count == BARE_TEXT_BYTES {
                break;
            }
            count += 1;
        }
        let text = String::from_utf8_lossy(&self.link.peek(count, &mut self.outgoing)?[1..]).trim().to_string();
        Ok(Some(ServerError::local("FATAL", "53000", &text)))
    }

    fn password(&self) -> Result<&[u8], ConnectError> {
        let missing = || ConnectError::NoPassword { place: self.place.to_string(), advice: self.password.advice() };
        self.password.password().map(str::as_bytes).ok_or_else(missing)
    }

    fn unbound(&self) -> ConnectError {
        ConnectError::Unbound { place: self.place.to_string() }
    }

    fn method(&self, name: &str) -> ConnectError {
        ConnectError::Method { place: self.place.to_string(), method: name.to_string() }
    }

    fn connect_error(&self, source: io::Error) -> ConnectError {
        ConnectError::Io { attempted: "log in to", place: self.place.to_string(), source }
    }
}

fn method_name(code: u32) -> String {
    match code {
        2 => "Kerberos V5".to_string(),
        6 => "SCM credential".to_string(),
        7 | 8 => "GSSAPI".to_string(),
        9 => "SSPI".to_string(),
        other => format!("unknown (code {other})"),
    }
}
