//! A session of a link: what drives it, and the greeting.

use crate::db::dial::Conversation;
use crate::db::socket::Wire;
use crate::db::trouble::{Trouble, TroubleKind};
use crate::db::{pinned, server};
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio_postgres::{AsyncMessage, Client, SimpleQueryMessage};

/// The channel of the catalog; every other one is a queue's.
const CATALOG: &str = "mill_0";

/// Whose bells have rung.
#[derive(Default)]
pub(super) struct Heard {
    pub queue: bool,
    pub catalog: bool,
}

/// A session and what drives it.
pub(super) struct Session {
    pub client: Rc<Client>,
    pub conversation: Box<Conversation>,
    pub wire: Rc<Wire>,
}

impl Session {
    /// Moves bytes; answers go to the questions. Whose bells rang meanwhile.
    pub fn drive(&mut self, context: &mut Context<'_>) -> Result<Heard, Trouble> {
        let mut heard = Heard::default();
        loop {
            match self.conversation.poll_message(context) {
                Poll::Pending => return Ok(heard),
                Poll::Ready(Some(Ok(AsyncMessage::Notification(notification)))) => {
                    let bell = if notification.channel() == CATALOG { &mut heard.catalog } else { &mut heard.queue };
                    *bell = true;
                }
                Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => {
                    crate::debug!("notice", text = notice.message());
                }
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Err(passing(Trouble::of(&error))),
                Poll::Ready(None) => return Err(Trouble::passing("the server closed the connection")),
            }
        }
    }
}

/// Our settings where they could not go with the login, and the number of the backend.
pub(super) async fn greet(client: Rc<Client>, late: bool, proof: Option<i64>) -> Result<i32, Trouble> {
    if late {
        client.batch_execute(&pinned::by_statement()).await.map_err(|error| Trouble::of(&error))?;
    }
    if let Some(proof) = proof {
        server::prove(&client, proof).await?;
    }
    let answer = client.simple_query("SELECT pg_catalog.pg_backend_pid()").await;
    let answer = answer.map_err(|error| Trouble::of(&error))?;
    let pid = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    });
    pid.ok_or_else(|| Trouble::passing("the server did not report its backend pid"))
}

/// A link that was cut is passing trouble, whatever SQLSTATE the server gave as its last word.
fn passing(trouble: Trouble) -> Trouble {
    Trouble { kind: TroubleKind::Passing, ..trouble }
}
