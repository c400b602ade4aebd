//! Waiting for something to become true: the only place of the tests that sleeps.
//!
//! [`eventually`] is for the common case; [`wait`] adds another deadline and a closure
//! that tells what was seen instead (rows, states, last log lines) when it never came;
//! [`steadily`] is for what must *not* happen during a while.

use std::fmt::Debug;
use std::thread::sleep;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(10);
const DEADLINE: Duration = Duration::from_secs(15);

/// What a probe may answer: `bool`, or `Option<T>` when the value is wanted.
pub trait Outcome {
    type Value;
    fn arrived(self) -> Option<Self::Value>;
}

impl Outcome for bool {
    type Value = ();
    fn arrived(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Outcome for Option<T> {
    type Value = T;
    fn arrived(self) -> Option<T> {
        self
    }
}

/// A wait that is being described: `wait("..").within(..).telling(..).until(..)`.
#[must_use]
pub struct Wait<'a> {
    what: &'a str,
    deadline: Duration,
    context: Option<Box<dyn Fn() -> String + 'a>>,
}

impl Debug for Wait<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Wait({:?}, {:?})", self.what, self.deadline)
    }
}

/// Begins a wait; `what` completes the sentence "waited in vain until ..".
pub fn wait(what: &str) -> Wait<'_> {
    Wait { what, deadline: DEADLINE, context: None }
}

impl<'a> Wait<'a> {
    /// Another deadline than 15 s.
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// What to print if it never comes.
    pub fn telling(mut self, context: impl Fn() -> String + 'a) -> Self {
        self.context = Some(Box::new(context));
        self
    }

    /// Probes until it answers true or Some; panics with the context at the deadline.
    #[track_caller]
    pub fn until<T: Outcome>(self, mut probe: impl FnMut() -> T) -> T::Value {
        match self.poll(&mut probe) {
            Some(value) => value,
            None => {
                let context = self.context.map(|tell| tell()).unwrap_or_default();
                panic!("waited {:?} in vain until {}\n{context}", self.deadline, self.what);
            }
        }
    }

    /// The same without a panic: `None` at the deadline.
    pub fn attempt<T: Outcome>(self, mut probe: impl FnMut() -> T) -> Option<T::Value> {
        self.poll(&mut probe)
    }

    fn poll<T: Outcome>(&self, probe: &mut impl FnMut() -> T) -> Option<T::Value> {
        let began = Instant::now();
        loop {
            // looked at before the probe, so that the last probe is never before the deadline
            let late = began.elapsed() >= self.deadline;
            if let Some(value) = probe().arrived() {
                return Some(value);
            }
            if late {
                return None;
            }
            sleep(POLL);
        }
    }
}

/// Waits up to 15 s until the probe answers true or Some.
#[track_caller]
pub fn eventually<T: Outcome>(what: &str, probe: impl FnMut() -> T) -> T::Value {
    wait(what).until(probe)
}

/// Checks over and over, for `duration`, that something stays true.
#[track_caller]
pub fn steadily(what: &str, duration: Duration, mut probe: impl FnMut() -> bool) {
    let began = Instant::now();
    while began.elapsed() < duration {
        assert!(probe(), "after {:?} it was no longer so that {what}", began.elapsed());
        sleep(POLL);
    }
}
