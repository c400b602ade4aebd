//! The operator's and the service manager's access to a running launcher.

pub mod control_socket;
pub mod orders;
pub mod service_manager;
