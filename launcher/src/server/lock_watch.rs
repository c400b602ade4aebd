//! What the locks of others mean for our databases. PURE.
//!
//! A session that drops, renames, moves or copies a database takes a lock on it as a whole, and then waits a few
//! seconds for other sessions to go. While that lock is held, and until the list of databases has been read again, no
//! session of ours may be in that database. A session that drops or changes the catalog locks its marker table: that is
//! a restart, which then waits for the end of that transaction. Each such transaction is reported once.

use crate::message::message_table::SeenMessage;
use std::collections::HashMap;
use std::time::Instant;

/// One read of pg_locks.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    pub messages: Vec<SeenMessage>,
    /// Databases that somebody works on as a whole.
    pub worked_on: Vec<u32>,
    pub markers: Vec<MarkerLock>,
    /// The sessions of active launchers on this server, of all names.
    pub leaders: Vec<i32>,
}

/// A marker table that somebody works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkerLock {
    pub database: u32,
    pub relation: u32,
    /// The transaction, as the server names it.
    pub holder: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Locked,
    /// The lock is gone; whether the database still is what it was is not known yet.
    Unknown {
        since: Instant,
    },
}

#[derive(Debug, Default)]
pub struct LockWatch {
    holds: HashMap<u32, Hold>,
    markers: Vec<MarkerLock>,
}

impl LockWatch {
    /// Returns the locks on marker tables that are new.
    #[must_use]
    pub fn see(&mut self, locks: &Locks, now: Instant) -> Vec<MarkerLock> {
        for (database, hold) in &mut self.holds {
            if *hold == Hold::Locked && !locks.worked_on.contains(database) {
                *hold = Hold::Unknown { since: now };
            }
        }
        for database in &locks.worked_on {
            self.holds.insert(*database, Hold::Locked);
        }
        let new = locks.markers.iter().filter(|lock| !self.markers.contains(lock)).cloned().collect();
        self.markers.clone_from(&locks.markers);
        new
    }

    /// The list of databases was asked for at a moment, and is known now.
    pub fn listed(&mut self, asked_at: Instant) {
        self.holds.retain(|_, hold| !matches!(hold, Hold::Unknown { since } if *since <= asked_at));
    }

    /// No session of ours may be in this database.
    pub fn holds(&self, database: u32) -> bool {
        self.holds.contains_key(&database)
    }

    /// A lock has gone, and the list of databases must be read.
    pub fn wants_list(&self) -> bool {
        self.holds.values().any(|hold| matches!(hold, Hold::Unknown { .. }))
    }

    /// Somebody works on this database's catalog.
    pub fn marker_is_locked(&self, database: u32, marker: Option<u32>) -> bool {
        self.markers.iter().any(|lock| lock.database == database && Some(lock.relation) == marker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_database_is_held_until_its_lock_is_gone_and_a_later_list_is_known() {
        let (mut watch, now) = (LockWatch::default(), Instant::now());
        let worked_on = Locks { worked_on: vec![5], ..Locks::default() };
        assert_eq!(watch.see(&worked_on, now), []);
        watch.listed(now);
        assert!(watch.holds(5) && !watch.holds(6) && !watch.wants_list());
        let later = now + Duration::from_millis(200);
        let _ = watch.see(&Locks::default(), later);
        assert!(watch.wants_list());
        watch.listed(now);
        assert!(watch.holds(5), "that list was asked for before the lock was gone");
        watch.listed(later);
        assert!(!watch.holds(5) && !watch.wants_list());
    }

    #[test]
    fn a_transaction_that_works_on_a_catalog_is_reported_once_and_the_next_one_again() {
        let (mut watch, now) = (LockWatch::default(), Instant::now());
        let lock = |holder: &str| MarkerLock { database: 5, relation: 77, holder: holder.to_owned() };
        let locks = |holder: &str| Locks { markers: vec![lock(holder)], ..Locks::default() };
        assert_eq!(watch.see(&locks("3/1"), now), [lock("3/1")]);
        assert_eq!(watch.see(&locks("3/1"), now), []);
        assert!(watch.marker_is_locked(5, Some(77)) && !watch.marker_is_locked(5, None));
        assert_eq!(watch.see(&locks("3/2"), now), [lock("3/2")]);
    }
}
