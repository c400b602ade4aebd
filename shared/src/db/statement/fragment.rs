//! Parts that several statements have in common, or that a statement has in some of its forms only: one file each under
//! `shared/sql/task/fragments`. A statement includes one by its name in braces.

macro_rules! fragments {
    ($($name:literal)*) => {
        /// Name and text of each.
        pub(super) const FRAGMENTS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../sql/task/fragments/", $name, ".sql")))),*];
    };
}

fragments! {
    "among"
    "begin_columns"
    "begin_one"
    "begin_unlocked"
    "busy"
    "claim_choice"
    "claim_columns"
    "claim_tail"
    "end_many"
    "end_one"
    "end_unlocked"
    "expired"
    "group_bytes"
    "logical_time"
    "next_attempt"
    "next_time"
    "own_backend"
    "plain"
    "plain_row"
    "run_setup"
    "running"
    "scan_start"
    "scan_start_contended"
    "session_setup"
    "still_claimed"
    "still_planned"
    "still_working"
    "task_lock"
    "young"
}

pub(super) fn fragment(name: &str) -> Option<&'static str> {
    FRAGMENTS.iter().find(|(own, _)| *own == name).map(|(_, text)| *text)
}
