//! `dial CONNINFO`: where pgmill's two clients end with a conninfo, in this process's environment.
//!
//! Started by the tests of the dialect, beside psql. One line per client: its name, then what the server answered, or
//! `-` and the reason. Single-threaded when the loops' client runs: it resolves names in a forked child.
#![forbid(unsafe_code)]

use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use shared::conninfo::{Conninfo, Target};
use shared::db::db_error::DbError;
use shared::db::link::{Link, LinkEvent};
use tests::dialect::QUESTION;
use worker::wire::Session;

fn main() {
    let text = std::env::args().nth(1).expect("a conninfo");
    let target = Conninfo::parse(&text).and_then(|conninfo| conninfo.resolve(&|name| std::env::var(name).ok()));
    let (link, worker) = match target {
        Ok(target) => (by_link(&target), by_worker(&target)),
        Err(error) => (Err(error.to_string()), Err(error.to_string())),
    };
    for (client, answer) in [("link", link), ("worker", worker)] {
        match answer {
            Ok(answer) => println!("{client} {answer}"),
            Err(why) => println!("{client} - {}", why.replace('\n', " ")),
        }
    }
}

fn by_link(target: &Target) -> Result<String, String> {
    let mut link: Link<String> = Link::dial(target, "dial", None, std::env::var_os("DIAL_DOUBTFUL").is_some());
    loop {
        for event in link.drive(Instant::now()) {
            match event {
                LinkEvent::Lost(db_error) => return Err(db_error.text),
                LinkEvent::Answered(answer) => return Ok(answer),
                LinkEvent::Notified | LinkEvent::CatalogChanged => {}
                LinkEvent::Up => link.ask("the question", target.connect_timeout(), |client| async move {
                    let row = client.query_one(QUESTION, &[]).await.map_err(|error| DbError::of(&error))?;
                    Ok(row.get::<_, String>(0))
                }),
            }
        }
        let wait = link.deadline().map(|at| at.saturating_duration_since(Instant::now()).as_millis() as i32 + 1);
        let mut fds: Vec<PollFd<'_>> =
            link.interest().map(|(fd, flags)| PollFd::new(fd, flags | PollFlags::POLLERR)).into_iter().collect();
        let _ =
            poll(&mut fds, wait.map_or(PollTimeout::NONE, |ms| PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)));
    }
}

fn by_worker(target: &Target) -> Result<String, String> {
    let deadline = Instant::now() + target.total_connect_timeout();
    let mut session = Session::connect(target, &[("application_name", "dial")], deadline).map_err(|e| e.to_string())?;
    let rows = session.execute(QUESTION, &[]).map_err(|error| error.to_string())?;
    let answer = rows.first().and_then(|row| row.first()).and_then(Option::as_deref).unwrap_or_default();
    Ok(String::from_utf8_lossy(answer).into_owned())
}
