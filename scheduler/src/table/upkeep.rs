//! When the table is repaired beside the service, and which table was served last.

use shared::db::back_off::BackOff;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Upkeep {
    pub mend_at: Option<Instant>,
    pub mend_pause: BackOff,
    /// The table that this process served last.
    pub served: Option<u32>,
}

impl Upkeep {
    pub fn new() -> Upkeep {
        Upkeep { mend_at: None, mend_pause: BackOff::new(FIRST_PAUSE, LONGEST_PAUSE), served: None }
    }
}
