//! What a process has reported about its errors. PURE.
//!
//! A condition is logged once when it begins and once when it ends, however its text changes while it lasts (a server
//! that stops gives three different errors). But an error that somebody must repair is logged when it appears, even if it
//! was hidden behind one that passes.

use super::db_error::{DbError, DbErrorKind};

#[derive(Debug, Default)]
pub struct ReportedOnce {
    current: Option<DbError>,
    told: Option<DbError>,
}

impl ReportedOnce {
    /// Remembers the error. True: it is worth a line.
    #[must_use]
    pub fn begin(&mut self, db_error: DbError) -> bool {
        let new = match &self.told {
            None => true,
            // After a restart the scheduler may be back before its launcher: then the next try finds both on one server.
            Some(told) if db_error.kind == DbErrorKind::Apart => {
                db_error.text != told.text && self.current() == Some(db_error.text.as_str())
            }
            Some(told) => !db_error.passes() && db_error.text != told.text,
        };
        if new {
            self.told = Some(db_error.clone());
        }
        self.current = Some(db_error);
        new
    }

    /// What lasts is worth another line.
    pub fn remind(&mut self) {
        self.told = None;
    }

    /// It is over. True: there was something.
    pub fn end(&mut self) -> bool {
        self.told = None;
        self.current.take().is_some()
    }

    /// What is wrong at present.
    pub fn current(&self) -> Option<&str> {
        self.current.as_ref().map(|db_error| db_error.text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_told_once_and_what_must_be_repaired_when_it_appears() {
        let mut reported_once = ReportedOnce::default();
        let (down, wrong, other) = (DbError::passing("down"), DbError::standing("wrong"), DbError::standing("other"));
        let told: Vec<bool> = [&down, &DbError::passing("starting"), &wrong, &wrong, &down, &wrong, &other]
            .into_iter()
            .map(|db_error| reported_once.begin(db_error.clone()))
            .collect();
        assert_eq!(told, [true, false, true, false, false, false, true]);
        assert_eq!(reported_once.current(), Some("other"));
        assert!(reported_once.end() && !reported_once.end());
        assert!(reported_once.begin(down));
    }

    #[test]
    fn two_servers_are_told_at_once_or_behind_another_error_at_the_second_try() {
        let apart = DbError { kind: DbErrorKind::Apart, text: "two servers".into() };
        let cut = DbError::passing("cut");
        let mut reported_once = ReportedOnce::default();
        let told: Vec<bool> =
            [&cut, &apart, &apart, &apart, &cut, &apart].map(|db_error| reported_once.begin(db_error.clone())).to_vec();
        assert_eq!(told, [true, false, true, false, false, false]);
        assert!(reported_once.end() && reported_once.begin(apart));
    }
}
