//! The table that a person reads, and the file that a program reads.

use serde_json::{Value, json};
use std::fs;
use std::io;

/// What a benchmark must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Work per reference: rates.
    AtLeast(f64),
    /// Work per reference: durations and costs.
    AtMost(f64),
    /// Told, not judged.
    None,
}

impl Bound {
    pub fn ratio(self, work: f64, reference: f64) -> f64 {
        if reference > 0.0 { work / reference } else { f64::NAN }
    }

    /// A figure that is no number misses every bound.
    pub fn is_missed_by(self, ratio: f64) -> bool {
        match self {
            Bound::AtLeast(bound) => ratio.is_nan() || ratio < bound,
            Bound::AtMost(bound) => ratio.is_nan() || ratio > bound,
            Bound::None => false,
        }
    }

    pub fn json(self) -> Value {
        match self {
            Bound::AtLeast(bound) => json!({"at_least": bound}),
            Bound::AtMost(bound) => json!({"at_most": bound}),
            Bound::None => Value::Null,
        }
    }

    pub fn text(self) -> String {
        match self {
            Bound::AtLeast(bound) => format!(">= {bound}"),
            Bound::AtMost(bound) => format!("<= {bound}"),
            Bound::None => String::new(),
        }
    }
}

/// What came of one benchmark.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    pub what: String,
    pub unit: &'static str,
    work: Vec<f64>,
    reference: Vec<f64>,
    ratios: Vec<f64>,
    bound: Bound,
}

impl Line {
    pub fn new(
        name: &str,
        what: &str,
        unit: &'static str,
        work: Vec<f64>,
        reference: Vec<f64>,
        ratios: Vec<f64>,
        bound: Bound,
    ) -> Line {
        Line { name: name.to_owned(), what: what.to_owned(), unit, work, reference, ratios, bound }
    }

    /// A figure that was taken once, against a bound of its own.
    pub fn single(name: &str, what: &str, unit: &'static str, value: f64, bound: Bound) -> Line {
        Line::new(name, what, unit, vec![value], vec![1.0], vec![value], bound)
    }

    pub fn falls_short(&self) -> bool {
        self.bound.is_missed_by(median(&self.ratios))
    }

    pub fn brief(&self) -> String {
        format!("ratio {:.3}, bound {}", median(&self.ratios), self.bound.text())
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name, "what": self.what, "unit": self.unit, "work": self.work, "reference": self.reference,
            "ratios": self.ratios, "ratio": median(&self.ratios), "bound": self.bound.json(), "falls_short": self.falls_short(),
        })
    }
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

pub fn print(lines: &[Line]) {
    println!();
    println!(
        "{:<6} {:>12} {:>12} {:>8} {:>9} {:>17}  {:<12} what",
        "", "work", "reference", "ratio", "bound", "spread", ""
    );
    for line in lines {
        let low = line.ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let high = line.ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let spread = if line.ratios.len() > 1 { format!("{low:.3} .. {high:.3}") } else { String::new() };
        let verdict = if line.falls_short() {
            "FALLS SHORT"
        } else if line.bound == Bound::None {
            ""
        } else {
            "ok"
        };
        println!(
            "{:<6} {:>12.2} {:>12.2} {:>8.3} {:>9} {:>17}  {:<12} {} ({})",
            line.name,
            median(&line.work),
            median(&line.reference),
            median(&line.ratios),
            line.bound.text(),
            spread,
            verdict,
            line.what,
            line.unit,
        );
    }
    println!();
}

pub fn write(path: &str, machine: &str, lines: &[Line]) -> io::Result<()> {
    let lines: Vec<Value> = lines.iter().map(Line::json).collect();
    let text = serde_json::to_string_pretty(&json!({ "machine": machine, "benchmarks": lines }))?;
    fs::write(path, text + "\n")
}
