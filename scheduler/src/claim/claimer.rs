//! The claim of due rows.
//!
//! It is a short walk that knows whether its answer is exact, and otherwise a reading of the heads of all groups; neither depends
//! on how many rows wait. Results that wait to be recorded go first, in the same transaction.

use super::claimed_rows::{Claimed, GroupCursor, read_groups, read_rows};
use super::pass_request::{PassRequest, PassResult};
use super::round_trip::{PassSession, StatementValues, both};
use crate::attempt::ends::{self, unless_refused};
use crate::attempt::group::Group;
use crate::limits::{CANDIDATES, EXPIRY_ROUNDS, FEW_SLOTS, GROUPS_PER_PASS, LONGEST_INPUT_BYTES};
use shared::db::db_error::DbError;
use shared::db::statement;
use shared::region::TaskResult;
use std::rc::Rc;
use tokio_postgres::Row;

/// What every claim of a pass has in common.
pub(super) struct Claimer {
    pub session: PassSession,
    idle_backends: Vec<i32>,
    reserved: Vec<i32>,
    known: Known,
    only: Option<Rc<Group>>,
    by_fork: bool,
}

/// The tasks of workers, as parameters.
struct Known {
    ids: Vec<i64>,
    groups: Vec<Vec<u8>>,
    remotes: Vec<Option<Vec<u8>>>,
}

impl Known {
    fn new(known: &[(i64, Rc<Group>)]) -> Known {
        Known {
            ids: known.iter().map(|(task, _)| *task).collect(),
            groups: known.iter().map(|(_, group)| group.name.clone()).collect(),
            remotes: known.iter().map(|(_, group)| group.remote.clone()).collect(),
        }
    }
}

impl Claimer {
    pub fn new(session: PassSession, request: &PassRequest) -> Claimer {
        Claimer {
            session,
            idle_backends: request.idle_backends.clone(),
            reserved: request.reserved.clone(),
            known: Known::new(&request.known),
            only: request.only.clone(),
            by_fork: request.by_fork,
        }
    }

    /// Nothing is begun on pooled connections.
    pub fn close_reserved(&mut self) {
        self.reserved.clear();
    }

    /// Claims up to `count` rows; `ends` are recorded first, in the same transaction.
    pub async fn claim(
        &self,
        count: usize,
        running: &[i64],
        mut ends: Option<&[TaskResult<'static>]>,
        result: &mut PassResult,
    ) -> Result<(), DbError> {
        for _ in 0..EXPIRY_ROUNDS {
            let used: Vec<i32> = result.claimed.iter().filter_map(|row| Some(row.begun.as_ref()?.0)).collect();
            let reserved: Vec<i32> = self.reserved.iter().filter(|backend| !used.contains(backend)).copied().collect();
            // Nobody may see an end that a crash of the server could take back.
            let request = ClaimRequest { count, running, reserved: &reserved, lazy: ends.is_none() };
            let Claimed { claimed, expired, busy } = match ends.take() {
                Some(results) => match self.claim_one_group(results, &request, result).await? {
                    Some(claimed) => claimed,
                    None => self.claim_behind(results, &request, result).await?,
                },
                None => self.claim_once(&request, &mut result.cursor).await?,
            };
            result.busy |= busy;
            let enough = claimed.len() >= count || expired.is_empty();
            result.claimed.extend(claimed);
            if !expired.is_empty() {
                Box::pin(self.expire(&expired)).await?;
            }
            if enough || !result.claimed.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// All at once; if the data refuse a repetition, one by one, so that a refused row holds up no other.
    async fn expire(&self, tasks: &[i64]) -> Result<(), DbError> {
        let queue = &self.session.statements.queue;
        let copied = self.session.many(&queue.fill(statement::LIST_COLUMNS), &[]).await?;
        let copied: Vec<String> = copied.iter().map(|row| row.get("name")).collect();
        let text = queue.fill_repeating(statement::EXPIRE_TASKS, &copied);
        match self.session.one(&text, &[&tasks]).await {
            Ok(rows) => {
                let (gone, again): (i64, i64) = (rows.get("gone"), rows.get("again"));
                shared::info!("tasks not started in time", gone = gone, repeated = again);
                return Ok(());
            }
            Err(db_error) if db_error.passes() => return Err(db_error),
            Err(_) => {}
        }
        for task in tasks {
            let Err(refusal) = self.session.one(&text, &[&[*task].as_slice()]).await else { continue };
            let failed = self.session.many(&queue.fill(statement::EXPIRE_REFUSED), &[task, &refusal.text]).await;
            for db_error in [Some(refusal), failed.err()].into_iter().flatten() {
                if db_error.passes() {
                    return Err(db_error);
                }
                shared::warning!("an expired task cannot be repeated", task = task, error = db_error);
            }
        }
        Ok(())
    }

    /// `claim_behind` in one statement, for its most frequent case: short tasks of one group follow one another. Without it
    /// P2 is 8 % slower (docs/measurements.md). None: it is not that case, or the database refuses one of the rows, and
    /// nothing has been done.
    async fn claim_one_group(
        &self,
        results: &[TaskResult<'static>],
        request: &ClaimRequest<'_>,
        result: &mut PassResult,
    ) -> Result<Option<Claimed>, DbError> {
        let name = self.only.as_ref().and_then(|group| group.plain_name());
        let Some(name) = name.filter(|_| request.reserved.len() >= request.count) else { return Ok(None) };
        let count = request.count as i64;
        let (tasks, attempts, failed, outputs, errors) = ends::columns(results);
        let ended: StatementValues<'_> = &[&tasks, &attempts, &failed, &outputs, &errors];
        let claim: StatementValues<'_> = &[&count, &self.known.ids, &name, &request.reserved, &LONGEST_INPUT_BYTES];
        let rows = match self.session.many(&self.session.statements.one_group, &[ended, claim].concat()).await {
            Err(db_error) if !db_error.passes() => return Ok(None),
            rows => rows?,
        };
        let Some(first) = rows.first() else { return Ok(None) };
        result.written = Some(first.get("written"));
        if first.get("exact") {
            return Ok(Some(read_rows(&rows)));
        }
        self.claim_once(request, &mut result.cursor).await.map(Some)
    }

    /// The ends of earlier tasks and the claim of what they make room for, in one transaction: the ends first, since two that
    /// claim before they end can wait for each other's rows. All of it is sent at once, so that no other query on
    /// this session comes between. If the database refuses the ends, nothing is claimed.
    async fn claim_behind(
        &self,
        results: &[TaskResult<'static>],
        request: &ClaimRequest<'_>,
        result: &mut PassResult,
    ) -> Result<Claimed, DbError> {
        let cursor = &mut result.cursor;
        let few = cursor.is_few();
        let rows = async { if few { self.send_groups(request, cursor).await } else { self.send_walk(request).await } };
        let begin = both(
            self.session.execute(&self.session.statements.begin),
            ends::write(results, &self.session.client, &self.session.statements),
        );
        let commit = self.session.execute(&self.session.statements.commit);
        let ((begun, written), (rows, committed)) = both(begin, both(rows, commit)).await;
        begun?;
        let written = match (written, &rows, committed) {
            (Ok(_), Ok(_), Err(db_error)) => Err(db_error),
            (written, ..) => written,
        };
        let refused = written.is_err();
        result.written = Some(unless_refused(written)?);
        if refused {
            return Ok(Claimed { claimed: Vec::new(), expired: Vec::new(), busy: false });
        }
        if few { Ok(read_groups(&rows?, cursor)) } else { self.walked(&rows?, request, cursor).await }
    }

    async fn claim_once(&self, request: &ClaimRequest<'_>, cursor: &mut GroupCursor) -> Result<Claimed, DbError> {
        // Few groups: their heads are read as quickly as a walk that may come to nothing, and that is always exact.
        if cursor.is_few() {
            return self.claim_groups(request, cursor).await;
        }
        let rows = self.send_walk(request).await?;
        self.walked(&rows, request, cursor).await
    }

    async fn send_walk(&self, request: &ClaimRequest<'_>) -> Result<Vec<Row>, DbError> {
        let ClaimRequest { count, running, reserved, lazy } = request;
        let walk =
            if *count <= FEW_SLOTS { &self.session.statements.walk_few } else { &self.session.statements.walk_many };
        let values: StatementValues<'_> =
            &[&(*count as i64), running, &self.idle_backends, reserved, &LONGEST_INPUT_BYTES];
        self.session.many(walk, &[values, &self.known(), &[lazy, &self.by_fork]].concat()).await
    }

    /// What a walk has brought, or, where it is not exact, the heads of all groups.
    async fn walked(
        &self,
        rows: &[Row],
        request: &ClaimRequest<'_>,
        cursor: &mut GroupCursor,
    ) -> Result<Claimed, DbError> {
        let exact = rows.first().is_none_or(|row| row.get("exact"));
        if exact {
            return Ok(read_rows(rows));
        }
        let began = cursor.after;
        let found = self.claim_groups(request, cursor).await?;
        // Nothing behind the cursor: once more from the start, so that no group waits for the round to end.
        if found.claimed.is_empty() && began != i32::MIN {
            cursor.after = i32::MIN;
            return self.claim_groups(request, cursor).await;
        }
        Ok(found)
    }

    async fn claim_groups(&self, request: &ClaimRequest<'_>, cursor: &mut GroupCursor) -> Result<Claimed, DbError> {
        let rows = self.send_groups(request, cursor).await?;
        Ok(read_groups(&rows, cursor))
    }

    async fn send_groups(&self, request: &ClaimRequest<'_>, cursor: &GroupCursor) -> Result<Vec<Row>, DbError> {
        let ClaimRequest { count, running, reserved, lazy } = request;
        let depth = (CANDIDATES / cursor.groups.max(1)).clamp(1, (*count).max(4)) as i64;
        let after = cursor.after;
        let heads: StatementValues<'_> =
            &[&(*count as i64), running, &self.idle_backends, &after, &GROUPS_PER_PASS, &depth];
        let values = [heads, &[reserved, &LONGEST_INPUT_BYTES], &self.known(), &[lazy, &self.by_fork]].concat();
        self.session.many(&self.session.statements.groups, &values).await
    }

    fn known(&self) -> [&(dyn tokio_postgres::types::ToSql + Sync); 3] {
        [&self.known.ids, &self.known.groups, &self.known.remotes]
    }
}

/// What a claim asks for.
struct ClaimRequest<'a> {
    count: usize,
    /// Tasks of workers.
    running: &'a [i64],
    /// Backends that plain tasks are begun on.
    reserved: &'a [i32],
    /// If nothing begins, the commit need not wait for the disk.
    lazy: bool,
}
