//! How the loops of launcher and scheduler speak to a server: connections and queries that are in flight while the
//! loop waits.
//!
//! `link` owns one connection and the questions in flight on it, `dial` makes it along a `route` (which address is tried
//! next; workers walk it too), `socket` the bytes below it, `address` the name resolution in a child, `refusal` says what
//! a refused statement means for a result, `db_error` sorts errors into what passes by itself and what somebody must
//! repair, `back_off` says when to try again, `reported_once` what was told about it, `server` which server a session is
//! on, `identifier` quotes names, `catalog` is the text of the schema `mill`, `migrate` how an older one becomes this
//! one, `one_shot` is how a command asks. A worker has a client of its own and uses none of `link`.

mod address;
pub mod back_off;
mod calendar_type;
pub mod catalog;
pub mod db_error;
mod dial;
pub mod frames;
pub mod identifier;
pub mod link;
pub mod lock_key;
pub mod migrate;
pub mod one_shot;
pub mod pinned;
pub mod refusal;
pub mod remote_session;
pub mod reported_once;
pub mod route;
pub mod server;
pub mod socket;
pub mod statement;
pub mod task_column;
pub mod tls;
