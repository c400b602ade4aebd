//! The statements of a pass on the queue's session, and two of them in one write.

use crate::table::make::QueueStatements;
use shared::db::db_error::DbError;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use tokio_postgres::{Client, Row, ToStatement};

pub(super) type StatementValues<'a> = &'a [&'a (dyn tokio_postgres::types::ToSql + Sync)];

/// The session of a pass.
pub(super) struct PassSession {
    pub client: Rc<Client>,
    pub statements: Rc<QueueStatements>,
}

impl PassSession {
    pub async fn execute(&self, statement: &tokio_postgres::Statement) -> Result<u64, DbError> {
        self.client.execute(statement, &[]).await.map_err(|error| DbError::of(&error))
    }

    pub async fn one<S>(&self, statement: &S, values: StatementValues<'_>) -> Result<Row, DbError>
    where
        S: ?Sized + ToStatement,
    {
        self.client.query_one(statement, values).await.map_err(|error| DbError::of(&error))
    }

    pub async fn many<S>(&self, statement: &S, values: StatementValues<'_>) -> Result<Vec<Row>, DbError>
    where
        S: ?Sized + ToStatement,
    {
        self.client.query(statement, values).await.map_err(|error| DbError::of(&error))
    }
}

/// Both at once: the second is sent while the first is not answered. The server answers in that order. In boxes: held by value,
/// each nested future would be there once more for each step, and a pass ten pages long.
pub(super) fn both<A, B>(
    first: impl Future<Output = A>,
    second: impl Future<Output = B>,
) -> impl Future<Output = (A, B)> {
    let (mut first, mut second) = (Box::pin(first), Box::pin(second));
    let (mut one, mut other) = (None, None);
    poll_fn(move |context| {
        if one.is_none()
            && let Poll::Ready(answer) = first.as_mut().poll(context)
        {
            one = Some(answer);
        }
        if other.is_none()
            && let Poll::Ready(answer) = second.as_mut().poll(context)
        {
            other = Some(answer);
        }
        match (one.take(), other.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            (first, second) => {
                (one, other) = (first, second);
                Poll::Pending
            }
        }
    })
}
