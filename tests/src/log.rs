//! The log of a supervisor under test: a thread reads its stderr, line by line, and
//! keeps it in memory. The thread ends when the last process that holds the pipe is gone.
//! With PGMILL_SHOW_LOG=1 (`scripts/try`) it also prints each line, behind the name of the test.

use std::io::{BufRead, BufReader, Read, Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

#[derive(Debug, Clone, Default)]
pub struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    closed: Arc<AtomicBool>,
}

impl Log {
    /// Reads `source` until its end, in a thread.
    pub fn read(source: impl Read + Send + 'static) -> Log {
        let log = Log::default();
        log.feed(source);
        log
    }

    /// The same, into a log that is there already.
    pub fn feed(&self, source: impl Read + Send + 'static) {
        let reader = self.clone();
        let test = shows().then(name_of_test);
        thread::spawn(move || {
            let mut source = BufReader::new(source);
            let mut line = Vec::new();
            // a terminal whose other side is closed answers with an error: an end too
            while matches!(source.read_until(b'\n', &mut line), Ok(1..)) {
                let text = String::from_utf8_lossy(&line);
                let text = text.trim_end_matches(['\n', '\r']);
                if let Some(test) = &test {
                    let _ = stderr().write_all(format!("{test}| {text}\n").as_bytes());
                }
                reader.guard().push(text.to_owned());
                line.clear();
            }
            reader.closed.store(true, Ordering::Release);
        });
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.guard().clone()
    }

    /// How many lines so far: a mark for [`Log::since`].
    pub fn mark(&self) -> usize {
        self.guard().len()
    }

    /// The lines after a mark.
    pub fn since(&self, mark: usize) -> Vec<String> {
        self.guard().iter().skip(mark).cloned().collect()
    }

    /// The last lines, for a message.
    pub fn tail(&self, count: usize) -> String {
        let lines = self.guard();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }

    /// Does any line contain this?
    pub fn contains(&self, text: &str) -> bool {
        self.guard().iter().any(|line| line.contains(text))
    }

    /// Has everybody who could write a line gone?
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn guard(&self) -> MutexGuard<'_, Vec<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shows() -> bool {
    std::env::var("PGMILL_SHOW_LOG").as_deref() == Ok("1")
}

/// The beginning of the name of the calling thread's test, without its modules.
fn name_of_test() -> String {
    let current = thread::current();
    let name = current.name().unwrap_or("log");
    name.rsplit("::").next().unwrap_or(name).chars().take(30).collect()
}
