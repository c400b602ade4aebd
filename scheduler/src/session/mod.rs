//! The scheduler's session: how it comes up, on which server it is, and what keeps it from serving.

pub mod catalog;
pub mod home_server;
pub mod installer_session;
pub mod queue_session;
pub mod reload;
pub mod report;
pub mod session_state;
pub mod start_gate;
pub mod version_check;
pub mod write_pause;
