//! The rows that a claim returns.

use crate::attempt::group::Group;
use crate::limits::{FEW_GROUPS, GROUPS_PER_PASS};
use std::rc::Rc;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};
use worker::TaskRow;

/// A row that is ours now: state TAKE, or WORK if it is begun; this attempt.
#[derive(Clone, Debug)]
pub struct ClaimedRow {
    pub task: i64,
    pub attempt: i32,
    /// The job whose run it is.
    pub job: Option<i32>,
    pub group: Rc<Group>,
    /// Its worker may go on with others of its group.
    pub reuse: bool,
    /// Begun in the name of this backend, whose connection is reserved for it.
    pub begun: Option<(i32, Box<TaskRow>)>,
    /// Not begun, and plain: all that its worker has to know of it.
    pub handed: Option<Box<TaskRow>>,
}

impl ClaimedRow {
    /// The backend in whose name it is begun.
    pub fn begun_on(&self) -> Option<i32> {
        self.begun.as_ref().map(|(backend, _)| *backend)
    }
}

/// Where the reading of groups goes on, and how many there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupCursor {
    pub after: i32,
    pub groups: usize,
    /// They have been counted, and all of them.
    pub known: bool,
}

impl GroupCursor {
    /// Their heads are read as quickly as rows are walked.
    pub(super) fn is_few(&self) -> bool {
        self.known && self.groups <= FEW_GROUPS
    }
}

impl Default for GroupCursor {
    fn default() -> GroupCursor {
        GroupCursor { after: i32::MIN, groups: 1, known: false }
    }
}

/// What a claim has brought.
pub(super) struct Claimed {
    pub claimed: Vec<ClaimedRow>,
    /// Rows found expired.
    pub expired: Vec<i64>,
    pub busy: bool,
}

/// Texts as the server sent them, whatever their encoding.
struct Raw(Vec<u8>);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Raw, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(raw.to_vec()))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TEXT
    }
}

/// What a reading of the groups has brought, and where the next one goes on.
pub(super) fn read_groups(rows: &[Row], cursor: &mut GroupCursor) -> Claimed {
    let groups: i64 = rows.first().map_or(0, |row| row.get("groups"));
    let last: Option<i32> = rows.first().and_then(|row| row.get("last"));
    cursor.groups = groups.max(1) as usize;
    cursor.known = groups < i64::from(GROUPS_PER_PASS);
    cursor.after = if groups >= i64::from(GROUPS_PER_PASS) { last.unwrap_or(i32::MIN) } else { i32::MIN };
    read_rows(rows)
}

pub(super) fn read_rows(rows: &[Row]) -> Claimed {
    let claimed = rows.iter().filter_map(|row| {
        let (task, attempt) = (row.get::<_, Option<i64>>("id")?, row.get::<_, Option<i32>>("attempt")?);
        let texts = row.get::<_, Option<Vec<Option<Raw>>>>("task_row");
        let texts = texts.map(|texts| texts.into_iter().map(|text| text.map(|Raw(bytes)| bytes)).collect());
        let sign = row.get("sign");
        let whole = texts.map(|texts| Box::new(TaskRow { lock_key: sign, ..worker::task_row(texts) }));
        let (begun, handed) = match row.get::<_, Option<i32>>("backend") {
            Some(backend) => (whole.map(|whole| (backend, whole)), None),
            None => (None, whole),
        };
        let group = Rc::new(Group { name: row.get("group"), remote: row.get("remote") });
        let reuse = row.get::<_, Option<bool>>("reuse") == Some(true);
        Some(ClaimedRow { task, attempt, job: row.get("job"), group, reuse, begun, handed })
    });
    let expired = rows.first().and_then(|row| row.get::<_, Option<Vec<i64>>>("expired")).unwrap_or_default();
    Claimed { claimed: claimed.collect(), expired, busy: rows.first().is_some_and(|row| row.get("busy")) }
}
