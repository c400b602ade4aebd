//! One attempt of a loop to connect and log in: a future over a socket of ours.
//!
//! `link` drives it. Everything that takes time is in the future; what can be known at once (files of TLS, a socket
//! that cannot be opened) fails at once.

use super::db_error::DbError;
use super::pinned;
use super::route::{ConnectAttempt, Cover, Failure};
use super::socket::{Socket, Wire};
use crate::conninfo::{ChannelBinding, Place, Target};
use crate::db::tls::stream::{Encrypted, Handshake};
use crate::db::tls::{self, TlsError};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio_postgres::config::{ChannelBinding as Binding, SslMode};
use tokio_postgres::{Client, Connection};

pub(super) type Conversation = Connection<Socket, Encrypted<Socket>>;
type Dialled = Result<(Client, Conversation), tokio_postgres::Error>;

pub(super) struct Dialling {
    future: Pin<Box<dyn Future<Output = Dialled>>>,
    pub(super) wire: Rc<Wire>,
    encrypted: Rc<Cell<bool>>,
    /// Said with a failed login: why the password file was of no use.
    advice: String,
}

pub(super) struct Failed {
    pub failure: Failure,
    pub db_error: DbError,
}

impl Dialling {
    pub(super) fn begin(target: &Target, attempt: &ConnectAttempt, application_name: &str) -> Result<Dialling, Failed> {
        let prepared = match (target.tls_at(&attempt.place), &attempt.place) {
            (Some(tls), Place::Tcp { host, .. }) if attempt.cover != Cover::Plain => {
                Some(tls::prepare(tls, host).map_err(|error| Failed {
                    failure: Failure::Tls,
                    db_error: DbError::standing(error.to_string()),
                })?)
            }
            _ => None,
        };
        let socket = Socket::dial(&attempt.place, attempt.address, &target.keepalive, attempt.cover != Cover::Plain)
            .map_err(|error| Failed { failure: Failure::Unreachable, db_error: DbError::passing(error.to_string()) })?;
        let wire = socket.wire();
        let encrypted = wire.encrypted();
        let password = target.password_at(&attempt.place);
        let mut config = login(target, application_name);
        config.ssl_mode(match attempt.cover {
            Cover::Plain => SslMode::Disable,
            Cover::Offered => SslMode::Prefer,
            Cover::Insisted => SslMode::Require,
        });
        if let Some(password) = password.password() {
            config.password(password);
        }
        let handshake = Handshake { prepared, encrypted: encrypted.clone() };
        let future = Box::pin(async move { config.connect_raw(socket, handshake).await });
        Ok(Dialling { future, wire, encrypted, advice: password.advice() })
    }

    pub(super) fn drive(&mut self, context: &mut Context<'_>) -> Poll<Result<(Client, Conversation), Failed>> {
        self.future.as_mut().poll(context).map_err(|error| {
            let db_error = DbError::of(&error);
            let failure = match error.as_db_error() {
                Some(refusal) => Failure::refused(refusal.code().code(), refusal.message(), self.encrypted.get()),
                None if !self.wire.reached() => Failure::Unreachable,
                None if is_tls(&error) => Failure::Tls,
                None => Failure::Broken,
            };
            Failed { failure, db_error: DbError { text: format!("{}{}", db_error.text, self.advice), ..db_error } }
        })
    }
}

fn is_tls(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(|inner| inner.downcast_ref::<TlsError>().is_some())
}

fn login(target: &Target, application_name: &str) -> tokio_postgres::Config {
    let mut config = tokio_postgres::Config::new();
    config.user(&target.user).dbname(&target.database).application_name(application_name);
    if let Some(options) = pinned::in_startup(target) {
        config.options(&options);
    }
    config.channel_binding(match target.channel_binding {
        ChannelBinding::Disable => Binding::Disable,
        ChannelBinding::Prefer => Binding::Prefer,
        ChannelBinding::Require => Binding::Require,
    });
    config
}
