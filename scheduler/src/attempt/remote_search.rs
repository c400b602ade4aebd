//! Tasks whose worker died while they ran on a remote: the session there is looked for, ended, and only when it is
//! known to be gone may the row be planned again.
//!
//! Each search has a link of its own to the remote, in flight beside everything else: a remote that does not answer
//! delays nobody. It says cancel four times, then terminate, as `settle` does here. A remote that cannot be reached, or
//! where another server answers, leaves the outcome unknown: it is tried again ever more seldom, and what to do about
//! it is decided by `remote_settle`. No row is touched from here. What can go wrong is news, never an error.

use crate::attempt::attempt_id::AttemptId;
use crate::limits::{
    CANCEL_TRIES, REMOTE_ANSWER_TIMEOUT, REMOTE_PAUSE, REMOTE_RETRY_FIRST, REMOTE_RETRY_LAST, REMOTE_SEARCHES,
};
use nix::poll::PollFlags;
use shared::conninfo::untrusted::{Entries, Remote};
use shared::db::back_off::BackOff;
use shared::db::db_error::DbError;
use shared::db::link::{Link, LinkEvent};
use shared::db::pinned::FIXED_PATH;
use shared::db::remote_session::{FoundSession, RemoteSession};
use shared::db::statement::{self, bare};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// A row that names a session on a remote, and whose worker is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lead {
    pub task: i64,
    pub attempt: i32,
    pub pid: Option<i32>,
    pub remote: Option<String>,
    pub session: String,
}

/// What a search has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// And when the server began that says so.
    Gone { server_began_us: i64 },
    /// Not to be reached, and why; `first`: nobody has heard of it yet.
    Unknown { why: String, first: bool },
}

/// What the remote answers.
#[derive(Clone, Copy, Debug)]
pub struct RemoteStatus {
    server_began_us: i64,
    there: bool,
}

#[derive(Debug)]
struct Search {
    task: i64,
    attempt: i32,
    /// Whom to ask for what; none if the row does not tell.
    aim: Result<Aim, String>,
    link: Option<Link<RemoteStatus>>,
    searches: u32,
    /// When to dial, or to look again; none while an answer is awaited.
    next: Option<Instant>,
    pause: BackOff,
    unknown_since: Option<Instant>,
    /// A sign for `mill.why` stands in the database.
    marked: bool,
    /// It is known to be gone, by a server that began then.
    gone: Option<i64>,
}

#[derive(Debug)]
struct Aim {
    remote: Remote,
    pid: i32,
    session: RemoteSession,
}

#[derive(Debug, Default)]
pub struct RemoteSearches {
    searches: BTreeMap<AttemptId, Search>,
}

impl RemoteSearches {
    pub fn is_empty(&self) -> bool {
        self.searches.is_empty()
    }

    /// Begins to search; one that goes on already goes on. Some: it is known to be gone, and when the
    /// server began that said so.
    pub fn begin(&mut self, run: AttemptId, lead: Lead, entries: &Entries, now: Instant) -> Option<i64> {
        let search = self.searches.entry(run).or_insert_with(|| Search {
            task: lead.task,
            attempt: lead.attempt,
            aim: aim(&lead, entries),
            link: None,
            searches: 0,
            next: Some(now),
            pause: BackOff::new(REMOTE_RETRY_FIRST, REMOTE_RETRY_LAST),
            unknown_since: None,
            marked: false,
            gone: None,
        });
        search.gone
    }

    /// The row is settled. True: its sign is to be taken down.
    pub fn end(&mut self, run: AttemptId) -> bool {
        self.searches.remove(&run).is_some_and(|search| search.marked)
    }

    /// How many outcomes are unknown.
    pub fn unknown(&self) -> usize {
        self.searches.values().filter(|search| search.unknown_since.is_some() && search.gone.is_none()).count()
    }

    /// Whose sign is still to be put up; from now on it counts as standing.
    pub fn mark(&mut self, run: AttemptId) -> bool {
        self.searches.get_mut(&run).is_some_and(|search| !std::mem::replace(&mut search.marked, true))
    }

    /// The session that held the signs is lost.
    pub fn all_unmarked(&mut self) {
        self.searches.values_mut().for_each(|search| search.marked = false);
    }

    /// Outcomes that have been unknown for so long; each is told once.
    pub fn overdue(&mut self, timeout: Duration, now: Instant) -> Vec<(AttemptId, i64, i32)> {
        let late =
            |search: &Search| search.unknown_since.is_some_and(|since| now >= since + timeout) && search.gone.is_none();
        let overdue: Vec<_> = self
            .searches
            .iter()
            .filter(|(_, search)| late(search))
            .map(|(run, search)| (*run, search.task, search.attempt))
            .collect();
        for (run, _, _) in &overdue {
            if let Some(search) = self.searches.get_mut(run) {
                // Should the row refuse its end, it is tried again after as long.
                search.unknown_since = Some(now);
            }
        }
        overdue
    }

    pub fn interests(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        self.searches.values().filter_map(|search| search.link.as_ref()?.interest())
    }

    pub fn deadline(&self, reset: Duration) -> Option<Instant> {
        let full = self.connected() >= REMOTE_SEARCHES;
        let next = |search: &Search| search.next.filter(|_| search.link.is_some() || !full);
        let late = |search: &Search| search.unknown_since.filter(|_| search.gone.is_none()).map(|since| since + reset);
        let links = |search: &Search| search.link.as_ref().and_then(Link::deadline);
        self.searches.values().flat_map(|search| [next(search), late(search), links(search)]).flatten().min()
    }

    /// Lets all searches go on. `name`: how our sessions call themselves.
    pub fn turn(&mut self, name: &str, now: Instant) -> Vec<(AttemptId, i64, i32, News)> {
        let mut connected = self.connected();
        let mut news = Vec::new();
        for (run, search) in &mut self.searches {
            let before = search.link.is_some();
            let may_dial = before || connected < REMOTE_SEARCHES;
            if let Some(new) = search.turn(name, may_dial, now) {
                news.push((*run, search.task, search.attempt, new));
            }
            connected = connected + usize::from(search.link.is_some()) - usize::from(before);
        }
        news
    }

    fn connected(&self) -> usize {
        self.searches.values().filter(|search| search.link.is_some()).count()
    }
}

fn aim(lead: &Lead, entries: &Entries) -> Result<Aim, String> {
    let session: RemoteSession = lead.session.parse().map_err(|()| "the row does not name the session".to_owned())?;
    let text = lead.remote.as_deref().unwrap_or_default();
    let remote = Remote::find(text.as_bytes(), entries).map_err(|error| error.to_string())?;
    let remote = remote.at(session.place).ok_or("the remote has fewer hosts than before")?;
    let pid = lead.pid.ok_or("the row does not name the server process")?;
    Ok(Aim { remote, pid, session })
}

impl Search {
    fn turn(&mut self, name: &str, may_dial: bool, now: Instant) -> Option<News> {
        if self.gone.is_some() {
            return None;
        }
        let due = self.next.is_some_and(|at| now >= at);
        let (remote, pid, session) = match &self.aim {
            Ok(Aim { remote, pid, session }) => (remote, *pid, *session),
            Err(why) if due => {
                let why = why.clone();
                return Some(self.missed(why, now));
            }
            Err(_) => return None,
        };
        let terminate = self.searches >= CANCEL_TRIES;
        match &mut self.link {
            None if due && may_dial => {
                self.next = None;
                self.link = Some(Link::dial(&remote.target, name, None, false));
            }
            Some(link) if due => {
                self.next = None;
                link.ask("ending a session on a remote", REMOTE_ANSWER_TIMEOUT, move |client| {
                    end(client, pid, session, terminate)
                });
            }
            None | Some(_) => {}
        }
        for event in self.link.as_mut().map(|link| link.drive(now)).unwrap_or_default() {
            match event {
                LinkEvent::Up => self.next = Some(now),
                LinkEvent::Notified | LinkEvent::CatalogChanged => {}
                LinkEvent::Lost(db_error) => return Some(self.missed(db_error.text, now)),
                LinkEvent::Answered(RemoteStatus { server_began_us, there }) => {
                    match session.judge(server_began_us, there) {
                        FoundSession::Gone => {
                            self.gone = Some(server_began_us);
                            self.link = None;
                            return Some(News::Gone { server_began_us });
                        }
                        FoundSession::Alive => {
                            self.searches += 1;
                            self.next = Some(now + REMOTE_PAUSE);
                        }
                        FoundSession::Elsewhere => {
                            return Some(self.missed(
                                "the remote is another server than the one that the task ran on".to_owned(),
                                now,
                            ));
                        }
                    }
                }
            }
        }
        None
    }

    fn missed(&mut self, why: String, now: Instant) -> News {
        self.link = None;
        self.next = Some(self.pause.next(now));
        let first = self.unknown_since.is_none();
        self.unknown_since.get_or_insert(now);
        News::Unknown { why, first }
    }
}

async fn end(client: Rc<Client>, pid: i32, session: RemoteSession, terminate: bool) -> Result<RemoteStatus, DbError> {
    client.batch_execute(FIXED_PATH).await.map_err(|error| DbError::of(&error))?;
    let row = client.query_one(&bare(statement::END_REMOTE), &[&pid, &session.began_us, &terminate]).await;
    let row = row.map_err(|error| DbError::of(&error))?;
    Ok(RemoteStatus { server_began_us: row.get("server_began"), there: row.get("there") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn lead(remote: &str, session: &str) -> Lead {
        Lead { task: 7, attempt: 1, pid: Some(4711), remote: Some(remote.into()), session: session.into() }
    }

    /// Turns until there is news.
    fn news(searches: &mut RemoteSearches) -> News {
        let began = Instant::now();
        loop {
            if let Some((_, task, attempt, news)) = searches.turn("test", Instant::now()).pop() {
                assert_eq!((task, attempt), (7, 1));
                return news;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "no news");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_the_row_does_not_tell_stays_unknown_and_is_said_once() {
        for (remote, session) in [
            ("nobody", "0 1 1"),
            ("host=127.0.0.1 user=a password=s3cret", "garbage"),
            ("host=127.0.0.1 user=a password=s3cret", "5 1 1"),
        ] {
            let mut searches = RemoteSearches::default();
            let run = AttemptId::default();
            assert!(searches.begin(run, lead(remote, session), &Entries::default(), Instant::now()).is_none());
            let News::Unknown { why, first } = news(&mut searches) else { panic!("it is not gone") };
            assert!(first && !why.contains("s3cret"), "{why}");
            assert_eq!(searches.unknown(), 1);
            assert!(searches.mark(run) && !searches.mark(run));
            assert!(matches!(news(&mut searches), News::Unknown { first: false, .. }));
            assert!(searches.end(run), "a sign stands");
        }
    }

    #[test]
    fn a_remote_that_is_not_there_is_unknown_and_overdue_after_the_reset() {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|own| own.local_addr()).unwrap().port();
        let remote = format!("host=127.0.0.1 port={port} user=a password=b");
        let mut searches = RemoteSearches::default();
        searches.begin(AttemptId::default(), lead(&remote, "0 1 1"), &Entries::default(), Instant::now());
        assert!(matches!(news(&mut searches), News::Unknown { first: true, .. }));
        let reset = Duration::from_secs(3600);
        assert!(searches.overdue(reset, Instant::now()).is_empty());
        assert_eq!(searches.overdue(reset, Instant::now() + reset), [(AttemptId::default(), 7, 1)]);
        assert!(searches.overdue(reset, Instant::now() + reset).is_empty(), "told once");
    }
}
