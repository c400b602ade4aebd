//! A panic in the middle of somebody else's code, as a value.
//!
//! tokio-postgres takes a server at its word: a row with fewer columns than were announced makes it index beyond an
//! end. A process that must live on runs such code in here, and gets the panic's words instead of an end. What was
//! being worked on is of no further use and must be dropped.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs it; Err is what the panic said.
pub fn catch<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    let before = EXPECTED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    EXPECTED.set(before);
    outcome.map_err(|_| SAID.take().unwrap_or_else(|| "no message".to_owned()))
}

/// For the panic hook: true if somebody waits for it, who will say it in his own words.
pub fn expected(text: &str, place: &str) -> bool {
    if EXPECTED.get() {
        SAID.replace(Some(format!("{text} ({place})")));
    }
    EXPECTED.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_and_the_next_one_is_nobodys() {
        assert_eq!(catch(|| 1), Ok(1));
        assert!(catch(|| panic!("over")).is_err());
        assert!(!expected("later", "elsewhere"));
    }
}
