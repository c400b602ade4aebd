//! The next times of a back-fill: a range of past times, in order, from the end, or at random. PURE.
//!
//! However long the range, only a handful of times is in memory. Where it stands is in its row: the time that was fired
//! last, or, at random, how many spans have been walked and how far the present one. A span holds some 64 times; spans
//! are visited in an order that goes through all of them, and the times of each are shuffled, both by the row's own
//! number: another process goes on exactly where this one was killed.

use shared::calendar::{Error, Moment, Schedule};

/// About so many times are in one span.
const SPAN_TIMES: u64 = 64;
const MOST_SPANS: u64 = 65_536;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Earliest,
    Latest,
    Random,
}

/// A back-fill's row, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub struct BackfillRange {
    pub number: i32,
    pub lo: Moment,
    pub hi: Moment,
    pub order: Order,
    /// The time that was fired last.
    pub at: Option<Moment>,
    pub span: i32,
    pub pos: i32,
}

/// The times that come next, each with where the row stands after it; `ends`: there are no others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    pub times: Vec<Moment>,
    pub spans: Vec<i32>,
    pub positions: Vec<i32>,
    pub ends: bool,
}

impl Chunk {
    fn of(times: Vec<Moment>, most: usize) -> Chunk {
        let (spans, positions) = (vec![0; times.len()], vec![0; times.len()]);
        Chunk { ends: times.len() < most, times, spans, positions }
    }
}

pub fn chunk(schedule: &Schedule, range: &BackfillRange, most: usize) -> Result<Chunk, Error> {
    match range.order {
        Order::Earliest => {
            let lo = range.at.map_or(Ok(range.lo), |at| at.plus_us(1))?;
            Ok(Chunk::of(schedule.times(lo, range.hi).take(most).collect(), most))
        }
        Order::Latest => {
            let hi = range.at.unwrap_or(range.hi);
            Ok(Chunk::of(schedule.times(range.lo, hi).rev().take(most).collect(), most))
        }
        Order::Random => at_random(schedule, range, most),
    }
}

fn at_random(schedule: &Schedule, range: &BackfillRange, most: usize) -> Result<Chunk, Error> {
    let spans = (schedule.count(range.lo, range.hi) / SPAN_TIMES).clamp(1, MOST_SPANS).next_power_of_two();
    let length = (range.hi.us() - range.lo.us()) as u64;
    let border = |k: u64| range.lo.plus_us((u128::from(length) * u128::from(k) / u128::from(spans)) as i64);
    let mut chunk = Chunk::default();
    let mut pos = range.pos as usize;
    for walked in range.span as u64..spans {
        let place = visited(walked, spans, range.number);
        let mut times: Vec<Moment> = schedule.times(border(place)?, border(place + 1)?).collect();
        shuffle(&mut times, range.number as u64 ^ place.rotate_left(32));
        for (done, time) in times.into_iter().enumerate().skip(pos) {
            if chunk.times.len() == most {
                return Ok(chunk);
            }
            chunk.times.push(time);
            chunk.spans.push(walked as i32);
            chunk.positions.push(done as i32 + 1);
        }
        pos = 0;
    }
    chunk.ends = true;
    Ok(chunk)
}

/// The span that is visited after so many others: an odd factor goes through all residues of a power of two.
fn visited(walked: u64, spans: u64, number: i32) -> u64 {
    let mut seed = number as u64;
    let factor = random(&mut seed) | 1;
    walked.wrapping_mul(factor).wrapping_add(random(&mut seed)) & (spans - 1)
}

fn shuffle(times: &mut [Moment], mut seed: u64) {
    for i in (1..times.len()).rev() {
        times.swap(i, (random(&mut seed) % (i as u64 + 1)) as usize);
    }
}

/// SplitMix64: the same numbers on every machine and in every version.
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shared::calendar::{Grid, Interval, Zone};

    fn minutes(start: Moment) -> Schedule {
        Schedule::Grid(Grid::new(start, Interval::from_seconds(60), Zone::utc()).expect("a grid"))
    }

    /// Walks a whole range in chunks, each begun anew from what the row would say.
    fn walk(schedule: &Schedule, mut range: BackfillRange, most: usize) -> Vec<Moment> {
        let mut all = Vec::new();
        loop {
            let chunk = chunk(schedule, &range, most).expect("computed");
            // the window lets through only some of them
            let through = if chunk.times.len() > 1 { chunk.times.len() - 1 } else { chunk.times.len() };
            all.extend(&chunk.times[..through]);
            if let Some(last) = through.checked_sub(1) {
                range.at = Some(chunk.times[last]);
                (range.span, range.pos) = (chunk.spans[last], chunk.positions[last]);
            }
            if chunk.ends && through == chunk.times.len() {
                return all;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn every_order_fires_each_time_once_wherever_it_is_cut(
            start in 0i64..4_000_000_000, length in 1i64..4_000, most in 1usize..70, number in 1i32..1000,
        ) {
            let lo = Moment::from_seconds(start).expect("a time");
            let hi = Moment::from_seconds(start + length * 13).expect("a time");
            let schedule = minutes(lo);
            let all: Vec<Moment> = schedule.times(lo, hi).collect();
            let range = |order| BackfillRange { number, lo, hi, order, at: None, span: 0, pos: 0 };
            prop_assert_eq!(&walk(&schedule, range(Order::Earliest), most), &all);
            let mut latest = walk(&schedule, range(Order::Latest), most);
            latest.reverse();
            prop_assert_eq!(&latest, &all);
            let mut random = walk(&schedule, range(Order::Random), most);
            if all.len() > 20 {
                prop_assert_ne!(&random, &all);
            }
            random.sort();
            prop_assert_eq!(&random, &all);
        }
    }
}
