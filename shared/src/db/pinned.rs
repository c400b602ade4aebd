//! Settings that our sessions rely on, and the two ways to send them.
//!
//! What a role's or a database's own settings say must not change what our statements mean. The settings go into
//! the startup message; behind something that refuses them there (a pooler), they go by a statement after the login.

use crate::conninfo::{SessionAttributes, Target};

/// A dead client's statement must not run on, and its locks must not outlive it: the server looks for us every 300 ms
/// while it works, and notices within 10 s that the way to us is cut (its own keep-alive would take two hours).
pub const WATCH: [(&str, &str); 5] = [
    ("client_connection_check_interval", "300"),
    ("tcp_keepalives_idle", "4"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "2"),
    ("tcp_user_timeout", "7000"),
];
/// On a server that is not sent our settings.
pub const FIXED_PATH: &str = "SET search_path = pg_catalog, pg_temp";
const READ_ONLY: &str = "default_transaction_read_only";

/// How the server writes names, strings, times and numbers as text. We compare such texts (expressions of defaults and of index
/// predicates) and put them into statements. A worker's session has none of these settings: its task finds what the role has set.
/// Not here: TimeZone and the order of days and months in what people write say what a value means, and are the role's; lc_messages only a
/// superuser may set, and we go by SQLSTATE; xmlbinary, lc_monetary, lc_numeric and lc_time change nothing that we read;
/// backslash_quote and escape_string_warning concern strings that we do not write.
const TEXTS: [(&str, &str); 6] = [
    ("quote_all_identifiers", "off"),
    ("standard_conforming_strings", "on"),
    ("DateStyle", "ISO"),
    ("IntervalStyle", "postgres"),
    ("extra_float_digits", "1"),
    ("bytea_output", "hex"),
];

/// Of every session of launcher and scheduler.
const LOOPS: [(&str, &str); 26] = [
    ("default_transaction_isolation", "read committed"),
    (READ_ONLY, "off"),
    ("default_transaction_deferrable", "off"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    // a scheduler sleeps for long; what the leader's session may not do, it sets itself
    ("idle_session_timeout", "0"),
    ("synchronous_commit", "on"),
    ("row_security", "off"),
    WATCH[0],
    WATCH[1],
    WATCH[2],
    WATCH[3],
    WATCH[4],
    ("plan_cache_mode", "force_generic_plan"),
    // Our statements are short and have their indexes, and are planned once, when the table may still be empty. Left to
    // its guesses, the server would read and sort the whole table at each look, and compile the statement before.
    ("jit", "off"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_sort", "off"),
    ("search_path", "pg_catalog,pg_temp"),
    TEXTS[0],
    TEXTS[1],
    TEXTS[2],
    TEXTS[3],
    TEXTS[4],
    TEXTS[5],
];

/// What a loop puts into `options`, after the operator's own. Where the kind of the server is asked for, the server's
/// own word on writing must be heard first.
pub fn in_startup(target: &Target) -> Option<String> {
    if target.late_settings || target.foreign {
        return target.options.clone();
    }
    let asked = matches!(target.attributes, SessionAttributes::ReadWrite | SessionAttributes::ReadOnly);
    let ours = LOOPS
        .iter()
        .filter(|(name, _)| !(asked && *name == READ_ONLY))
        .map(|(name, value)| format!("-c {name}={}", value.replace(' ', "\\ ")));
    Some(target.options.iter().cloned().chain(ours).collect::<Vec<_>>().join(" "))
}

/// The same after the login.
pub fn by_statement() -> String {
    set(&LOOPS)
}

/// A statement that sets these for the session. Names and values are our own constants.
pub fn set(settings: &[(&str, &str)]) -> String {
    let calls: Vec<String> =
        settings.iter().map(|(name, value)| format!("pg_catalog.set_config('{name}', '{value}', false)")).collect();
    format!("SELECT {}", calls.join(", "))
}
