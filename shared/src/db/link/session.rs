//! A session of a link: what drives it, and the greeting.

use crate::db::db_error::{DbError, DbErrorKind};
use crate::db::dial::Conversation;
use crate::db::socket::Wire;
use crate::db::{pinned, server};
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio_postgres::{AsyncMessage, Client, SimpleQueryMessage};

/// The channel of the catalog; every other one is a queue's.
const CATALOG: &str = "mill_0";

/// Which notifications have come.
#[derive(Default)]
pub(super) struct Notifications {
    pub queue: bool,
    pub catalog: bool,
}

/// A session and what drives it.
pub(super) struct LinkSession {
    pub client: Rc<Client>,
    pub conversation: Box<Conversation>,
    pub wire: Rc<Wire>,
}

impl LinkSession {
    /// Moves bytes; answers go to the questions. Returns which notifications came meanwhile.
    pub fn drive(&mut self, context: &mut Context<'_>) -> Result<Notifications, DbError> {
        let mut heard = Notifications::default();
        loop {
            match self.conversation.poll_message(context) {
                Poll::Pending => return Ok(heard),
                Poll::Ready(Some(Ok(AsyncMessage::Notification(notification)))) => {
                    let flag = if notification.channel() == CATALOG { &mut heard.catalog } else { &mut heard.queue };
                    *flag = true;
                }
                Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => {
                    crate::debug!("notice", text = notice.message());
                }
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Err(passing(DbError::of(&error))),
                Poll::Ready(None) => return Err(DbError::passing("the server closed the connection")),
            }
        }
    }
}

/// Our settings where they could not go with the login, and the number of the backend.
pub(super) async fn greet(client: Rc<Client>, late: bool, proof: Option<i64>) -> Result<i32, DbError> {
    if late {
        client.batch_execute(&pinned::by_statement()).await.map_err(|error| DbError::of(&error))?;
    }
    if let Some(proof) = proof {
        server::prove(&client, proof).await?;
    }
    let answer = client.simple_query("SELECT pg_catalog.pg_backend_pid()").await;
    let answer = answer.map_err(|error| DbError::of(&error))?;
    let pid = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    });
    pid.ok_or_else(|| DbError::passing("the server did not report its backend pid"))
}

/// A cut link is a passing error, whatever SQLSTATE the server gave as its last word.
fn passing(db_error: DbError) -> DbError {
    DbError { kind: DbErrorKind::Passing, ..db_error }
}
