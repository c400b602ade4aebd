//! The log: one line per change of state, one `write(2)` of at most 4,096 bytes each.
//!
//! A line is `time level who[pid] message key=value ..`, or the same as one JSON object. Control characters are
//! escaped, so that a server's NOTICE cannot forge a line, and lines of many processes never mix: a write of up to
//! PIPE_BUF bytes is atomic. A reader that stalls does not stall us: after a tenth of a second the line is dropped
//! and counted. A closed pipe ends nothing. Callers never pass a password, and task text only at debug.

use crate::limits::{LOG_LINE_BYTES_MAX, LOG_TIMEOUT};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use nix::sys::stat::{Mode, SFlag};
use std::fmt::{Display, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

const CUT: &str = "..";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error,
    Warning,
    Info,
    Debug,
}

impl Level {
    pub const ALL: [Level; 4] = [Level::Error, Level::Warning, Level::Info, Level::Debug];

    pub fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    Text,
    Json,
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);
static JSON: AtomicU8 = AtomicU8::new(0);
static DROPPED: AtomicU32 = AtomicU32::new(0);
/// 1: the log goes to a socket.
static SOCKET: AtomicU8 = AtomicU8::new(0);
/// 0 launcher, 1 scheduler, 2 worker: one word, because a forked child changes it.
static WHO: AtomicU8 = AtomicU8::new(0);
const NAMES: [&str; 3] = ["launcher", "scheduler", "worker"];

/// Sets level and format for this process and its children to come; makes a panic one line too.
pub fn start(level: Level, format: LineFormat) {
    LEVEL.store(level as u8, Relaxed);
    JSON.store(u8::from(format == LineFormat::Json), Relaxed);
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("no message");
        let place = panic.location().map(|place| format!("{}:{}", place.file(), place.line())).unwrap_or_default();
        if !crate::process::panic_guard::expected(text, &place) {
            line(Level::Error, "panic", &[("text", LogValue::Text(&text)), ("place", LogValue::Text(&place))]);
        }
    }));
}

/// What was set, for a program that this process becomes.
pub fn in_force() -> (Level, LineFormat) {
    let level = Level::ALL.into_iter().find(|level| *level as u8 == LEVEL.load(Relaxed)).unwrap_or(Level::Info);
    (level, if JSON.load(Relaxed) == 1 { LineFormat::Json } else { LineFormat::Text })
}

/// In a fresh child: whose lines these are.
pub fn speak_as(kind: crate::region::ProcessKind) {
    WHO.store(kind as u8, Relaxed);
}

pub fn enabled(level: Level) -> bool {
    level as u8 <= LEVEL.load(Relaxed)
}

/// A moment in milliseconds since 1970, as the log writes it.
pub fn moment(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| "-".to_owned(), |moment| format!("{moment:.3}"))
}

/// The value of a key. In JSON a number or a truth value is written without quotes.
#[derive(Clone, Copy)]
pub enum LogValue<'a> {
    Bare(&'a dyn Display),
    Text(&'a dyn Display),
}

impl Display for LogValue<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (LogValue::Bare(value) | LogValue::Text(value)) = self;
        value.fmt(out)
    }
}

impl std::fmt::Debug for LogValue<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "LogValue({self})")
    }
}

impl LogValue<'_> {
    fn json(&self, text: &str) -> serde_json::Value {
        let bare = match self {
            // Not every number is one of JSON: NaN is a text.
            LogValue::Bare(_) => serde_json::from_str(text).ok(),
            LogValue::Text(_) => None,
        };
        bare.unwrap_or_else(|| text.into())
    }
}

/// Types whose values are numbers or truth values.
pub trait IsBare {}

macro_rules! bare {
    ($($type:ty),*) => { $(impl IsBare for $type {})* };
}

bare!(bool, i32, i64, u16, u32, u64, usize, f64, nix::unistd::Pid, nix::unistd::Uid);
impl<T: IsBare + ?Sized> IsBare for &T {}

/// For the macros: whether a type is bare decides which of the two traits provides `value`.
#[derive(Debug)]
pub struct Pair<'a, T>(pub &'a T);

pub trait BareValue<'a> {
    fn value(&self) -> LogValue<'a>;
}

pub trait TextValue<'a> {
    fn value(&self) -> LogValue<'a>;
}

impl<'a, T: Display + IsBare> BareValue<'a> for Pair<'a, T> {
    fn value(&self) -> LogValue<'a> {
        LogValue::Bare(self.0)
    }
}

impl<'a, T: Display> TextValue<'a> for &Pair<'a, T> {
    fn value(&self) -> LogValue<'a> {
        LogValue::Text(self.0)
    }
}

/// Writes one line. The macros `error!`, `warning!`, `info!` and `debug!` are the usual way here.
pub fn line(level: Level, message: &str, pairs: &[(&str, LogValue<'_>)]) {
    if !enabled(level) {
        return;
    }
    write_once(&composed(level, message, pairs));
}

fn composed(level: Level, message: &str, pairs: &[(&str, LogValue<'_>)]) -> Vec<u8> {
    let now = jiff::Timestamp::now();
    let who = NAMES.get(usize::from(WHO.load(Relaxed))).copied().unwrap_or("pgmill");
    let pid = std::process::id();
    if JSON.load(Relaxed) == 1 {
        json_line(&format!("{now:.3}"), level, who, pid, message, pairs)
    } else {
        text_line(&format!("{now:.3}"), level, who, pid, message, pairs)
    }
}

fn text_line(now: &str, level: Level, who: &str, pid: u32, message: &str, pairs: &[(&str, LogValue<'_>)]) -> Vec<u8> {
    let mut line = format!("{now} {:<7} {who}[{pid}] ", level.name());
    escape_into(&mut line, message);
    for (key, value) in pairs {
        let value = value.to_string();
        let bare = !value.is_empty()
            && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/' | b':' | b'+'));
        let _ = write!(line, " {key}=");
        if bare {
            line.push_str(&value);
        } else {
            line.push('"');
            escape_into(&mut line, &value);
            line.push('"');
        }
    }
    finished(line)
}

fn json_line(now: &str, level: Level, who: &str, pid: u32, message: &str, pairs: &[(&str, LogValue<'_>)]) -> Vec<u8> {
    // The longest value gives way until the object fits: a cut object would not be JSON.
    let message = ("message".to_owned(), LogValue::Text(&message), message.to_owned());
    let pairs = pairs.iter().map(|(key, value)| (subject(key), *value, value.to_string()));
    let mut values: Vec<(String, LogValue<'_>, String)> = [message].into_iter().chain(pairs).collect();
    loop {
        let mut object = serde_json::Map::new();
        object.insert("time".into(), now.into());
        object.insert("level".into(), level.name().into());
        object.insert("process".into(), who.into());
        object.insert("pid".into(), pid.into());
        for (key, value, text) in &values {
            object.insert(key.clone(), value.json(text));
        }
        let line = serde_json::Value::Object(object).to_string();
        if line.len() < LOG_LINE_BYTES_MAX {
            return finished(line);
        }
        let Some((_, _, longest)) = values.iter_mut().max_by_key(|(_, _, text)| text.len()) else {
            return finished(String::new());
        };
        let keep = floor_char_boundary(longest, longest.len() / 2);
        longest.truncate(keep);
        longest.push_str(CUT);
    }
}

/// In an object a key stands once: the pid of a child must not replace the pid of the one who writes about it.
fn subject(key: &str) -> String {
    match key {
        "time" | "level" | "process" | "pid" | "message" => format!("subject_{key}"),
        own => own.to_owned(),
    }
}

/// Newline at the end, and never longer than one write may be.
fn finished(mut line: String) -> Vec<u8> {
    if line.len() >= LOG_LINE_BYTES_MAX {
        let keep = floor_char_boundary(&line, LOG_LINE_BYTES_MAX - 1 - CUT.len());
        line.truncate(keep);
        line.push_str(CUT);
    }
    line.push('\n');
    line.into_bytes()
}

fn floor_char_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn escape_into(line: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\n' => line.push_str("\\n"),
            '\t' => line.push_str("\\t"),
            '\r' => line.push_str("\\r"),
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                let _ = write!(line, "\\u{{{:x}}}", c as u32);
            }
            c => line.push(c),
        }
        // What will be cut anyway need not be built: a value may be a megabyte.
        if line.len() > LOG_LINE_BYTES_MAX {
            return;
        }
    }
}

/// For a process that must not wait for its log's reader, and for its children: makes writes to the log fail where
/// they would wait. A query first is not enough: between the answer and the write another process fills the pipe.
///
/// O_NONBLOCK belongs to what was opened, which we share with whoever started us, so a pipe or a terminal is opened
/// anew. Where that is refused, the question alone must do; a socket has a flag for a single write.
pub fn never_wait() {
    let stderr = std::io::stderr();
    let Ok(found) = nix::sys::stat::fstat(&stderr) else { return };
    let kind = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT;
    match kind {
        SFlag::S_IFSOCK => SOCKET.store(1, Relaxed),
        SFlag::S_IFIFO | SFlag::S_IFCHR => {
            let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
            if let Ok(own) = nix::fcntl::open("/proc/self/fd/2", flags, Mode::empty()) {
                let _ = nix::unistd::dup2_stderr(&own);
            }
        }
        _ => {}
    }
}

fn write_once(line: &[u8]) {
    let dropped = DROPPED.load(Relaxed);
    // A reader who has once let a line fall is not waited for again until there is room.
    let until = Instant::now() + if dropped > 0 { Duration::ZERO } else { LOG_TIMEOUT };
    if dropped > 0 {
        let why = "log lines dropped: the reader was too slow";
        if !put(&composed(Level::Warning, why, &[("count", LogValue::Bare(&dropped))]), until) {
            DROPPED.fetch_add(1, Relaxed);
            return;
        }
        DROPPED.fetch_sub(dropped, Relaxed);
    }
    if !put(line, until) {
        DROPPED.fetch_add(1, Relaxed);
    }
}

/// False: there was no room in time, and nothing has been written. A pipe takes a line whole or not at all; a terminal
/// may take a part, and then gets the rest or never will.
fn put(line: &[u8], until: Instant) -> bool {
    let stderr = std::io::stderr();
    let mut rest = line;
    while !rest.is_empty() {
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        let mut room = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
        let asked = poll(&mut room, PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO));
        let written = match asked {
            Ok(0) => return rest.len() < line.len(),
            _ if SOCKET.load(Relaxed) == 1 => send(stderr.as_raw_fd(), rest, MsgFlags::MSG_DONTWAIT),
            _ => nix::unistd::write(&stderr, rest),
        };
        match written {
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            // Somebody else was quicker.
            Err(Errno::EAGAIN) if Instant::now() < until => {}
            Err(Errno::EAGAIN) => return rest.len() < line.len(),
            // A closed pipe, a full disk: nobody to tell.
            Err(_) => return true,
        }
    }
    true
}

/// `info!("scheduler started", database = name, pid = pid)`: keys are written as they stand, values by Display.
#[macro_export]
macro_rules! log_line {
    ($level:expr, $message:expr $(, $key:ident = $value:expr)* $(,)?) => {
        if $crate::log::enabled($level) {
            #[allow(unused_imports)]
            use $crate::log::{BareValue as _, TextValue as _};
            $crate::log::line($level, ::std::convert::AsRef::<str>::as_ref(&$message), &[$((stringify!($key), (&$crate::log::Pair(&$value)).value())),*]);
        }
    };
}
#[macro_export]
macro_rules! error { ($($t:tt)*) => { $crate::log_line!($crate::log::Level::Error, $($t)*) }; }
#[macro_export]
macro_rules! warning { ($($t:tt)*) => { $crate::log_line!($crate::log::Level::Warning, $($t)*) }; }
#[macro_export]
macro_rules! info { ($($t:tt)*) => { $crate::log_line!($crate::log::Level::Info, $($t)*) }; }
#[macro_export]
macro_rules! debug { ($($t:tt)*) => { $crate::log_line!($crate::log::Level::Debug, $($t)*) }; }

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(message: &str, value: &str) -> String {
        String::from_utf8(text_line("now", Level::Info, "worker", 1, message, &[("key", LogValue::Text(&value))]))
            .unwrap()
    }

    #[test]
    fn a_notice_cannot_forge_a_line() {
        let line = text("notice", "x\n2026-01-01 error launcher[1] all lost\u{1b}[2J");
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.ends_with('\n') && !line.contains('\u{1b}'));
    }

    #[test]
    fn in_json_the_pid_of_a_child_does_not_replace_the_writers() {
        let line = json_line("now", Level::Info, "scheduler", 1, "worker started", &[("pid", LogValue::Bare(&2))]);
        let said: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!((said["pid"].as_i64(), said["subject_pid"].as_i64()), (Some(1), Some(2)));
    }

    #[test]
    fn in_json_numbers_and_truth_values_are_bare_and_texts_are_not() {
        let (task, name, own) = (&7i64, "7".to_owned(), nix::unistd::Pid::from_raw(3));
        let values = [
            ("task", Pair(task).value()),
            ("borrowed", Pair(&task).value()),
            ("done", Pair(&true).value()),
            ("child", Pair(&own).value()),
            ("name", (&Pair(&name)).value()),
            ("share", Pair(&f64::NAN).value()),
        ];
        let line = json_line("now", Level::Info, "worker", 1, "m", &values);
        let line = String::from_utf8(line).unwrap();
        for part in [
            r#""task":7,"#,
            r#""borrowed":7,"#,
            r#""done":true,"#,
            r#""child":3,"#,
            r#""name":"7""#,
            r#""share":"NaN""#,
        ] {
            assert!(line.contains(part) || line.replace('}', ",").contains(part), "{part} is not in {line}");
        }
    }

    proptest! {
        #[test]
        fn every_line_is_one_line_of_at_most_4096_bytes(message in ".{0,80}", value in "\\PC{0,3000}|[\\x00-\\x1f]{0,6000}") {
            for line in [
                text(&message, &value).into_bytes(),
                json_line("now", Level::Info, "worker", 1, &message, &[("key", LogValue::Text(&value))]),
            ] {
                prop_assert!(line.len() <= LOG_LINE_BYTES_MAX);
                prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
                prop_assert_eq!(line.last(), Some(&b'\n'));
            }
        }

        #[test]
        fn a_json_line_is_json_however_long_its_values_are(value in "\\PC{0,9000}") {
            let line = json_line("now", Level::Info, "worker", 1, "notice", &[("key", LogValue::Text(&value))]);
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&line).is_ok());
        }
    }
}
