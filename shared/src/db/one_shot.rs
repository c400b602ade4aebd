//! A question to a server from a command that then ends: connect, ask, answer, in one call that waits.
//!
//! It drives a `Link`, so that commands reach their server by the same dialect, routes and TLS as the loops do. What can
//! go wrong is `DbError`, in words for the operator.

use super::db_error::DbError;
use super::link::{Link, LinkEvent};
use crate::conninfo::Target;
use nix::poll::{PollFd, PollTimeout, poll};
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// Connects, puts the question and waits for its answer; `timeout` is for the answer alone.
pub fn ask<A, F, Q>(target: &Target, name: &str, timeout: Duration, question: Q) -> Result<A, DbError>
where
    Q: FnOnce(Rc<Client>) -> F,
    F: Future<Output = Result<A, DbError>> + 'static,
{
    let mut link: Link<A> = Link::dial(target, name, None, false);
    let mut question = Some(question);
    loop {
        let now = Instant::now();
        let wait = link.deadline().map(|deadline| deadline.saturating_duration_since(now));
        let wait = wait.map_or(PollTimeout::MAX, |wait| {
            PollTimeout::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX)
        });
        let mut fds: Vec<PollFd<'_>> = link.interest().map(|(fd, flags)| PollFd::new(fd, flags)).into_iter().collect();
        // EINTR and the like: the deadlines bring us back.
        let _ = poll(&mut fds, wait);
        drop(fds);
        for event in link.drive(Instant::now()) {
            match event {
                LinkEvent::Up => {
                    if let Some(question) = question.take() {
                        link.ask("the command", timeout, question);
                    }
                }
                LinkEvent::Answered(answer) => return Ok(answer),
                LinkEvent::Notified | LinkEvent::CatalogChanged => {}
                LinkEvent::Lost(db_error) => return Err(db_error),
            }
        }
    }
}
