//! How the scheduler ends: asked to, or by itself.

use shared::process::exit_code::ExitCode;
use shared::process::stopping::Stopping;

#[derive(Debug)]
pub struct Stop {
    pub state: Stopping,
    /// It leaves at once.
    pub leave: Option<ExitCode>,
    /// How it leaves once it has stopped, if nobody asked it to.
    pub parting: Option<ExitCode>,
}

impl Stop {
    pub fn new() -> Stop {
        Stop { state: Stopping::No, leave: None, parting: None }
    }
}
