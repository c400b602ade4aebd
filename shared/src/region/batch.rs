//! A batch: several tasks that a live worker has taken at once, and the one word that decides which of them are its own.
//!
//! The worker sends the inputs of a batch one after the other. As soon as one of them takes long, the scheduler gives
//! the rest back to the queue; the two never ask each other, and the database is not asked either. They agree by one
//! word: generation, CLOSED, sent. Before the worker writes an input it swaps sent + 1 onto the word; the scheduler
//! swaps CLOSED onto the word that it has read, and gives back what was not sent by then. Whoever swaps first decides:
//! a task behind `sent` is the scheduler's once the word is closed, and one before it is the worker's for ever.
//!
//! The generation is that of the slot and a number that rises with every batch, so a word is never the same twice. The
//! worker writes the ids while the word is closed and stores the open word last; the scheduler reads word, ids, and
//! swaps: if the swap succeeds, the ids are those of that word. When the word stands still for too long the worker's
//! watchdog leaves a copy of it and signals the scheduler. When a worker is dead, the word is of no interest: its rows name its backend.

use super::slot::SlotHandle;
use super::{Region, layout};
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

/// No batch is larger.
pub const BATCH_TASKS: usize = layout::BATCH_TASKS;
/// As many inputs stand on the wire at most.
pub const ON_WIRE: usize = 2;

/// The word. PURE: how it changes is told here, who may change it above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchWord(u64);

const SENT: u64 = 0xff;
const CLOSED: u64 = 1 << 8;
const COUNT_SHIFT: u32 = 9;
const COUNT: u64 = 0x7f << COUNT_SHIFT;
const NUMBER_SHIFT: u32 = 16;
const NUMBER: u64 = 0xff_ffff;
const GENERATION_SHIFT: u32 = 40;
const GENERATION: u64 = 0xff_ffff;

const _: () = assert!(BATCH_TASKS <= 0x7f);

impl BatchWord {
    /// Nothing is in it: how the word stands while the ids are written.
    fn closed(generation: u32, number: u64) -> BatchWord {
        BatchWord((u64::from(generation) & GENERATION) << GENERATION_SHIFT | (number & NUMBER) << NUMBER_SHIFT | CLOSED)
    }

    fn opened(self, count: usize) -> BatchWord {
        BatchWord(self.0 & !(CLOSED | COUNT | SENT) | (count as u64) << COUNT_SHIFT)
    }

    fn number(self) -> u64 {
        self.0 >> NUMBER_SHIFT & NUMBER
    }

    fn of(self, generation: u32) -> bool {
        self.0 >> GENERATION_SHIFT == u64::from(generation) & GENERATION
    }

    pub fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    pub fn count(self) -> usize {
        ((self.0 & COUNT) >> COUNT_SHIFT) as usize
    }

    pub fn sent(self) -> usize {
        (self.0 & SENT) as usize
    }

    /// The worker is about to write the next input. None: what is left is not its own any more, or nothing is left.
    pub fn send_next(self) -> Option<BatchWord> {
        (!self.is_closed() && self.sent() < self.count()).then_some(BatchWord(self.0 + 1))
    }

    /// What was not sent goes back. None: nothing would.
    pub fn close(self) -> Option<BatchWord> {
        (!self.is_closed() && self.sent() < self.count()).then_some(BatchWord(self.0 | CLOSED))
    }
}

impl Region {
    /// By the worker: these tasks (id, attempt) are its own, in this order, none of them sent.
    pub fn open_batch(&self, slot: SlotHandle, tasks: &[(i64, i32)]) {
        assert!(tasks.len() <= BATCH_TASKS, "a batch has its size");
        let word = self.batch_word(slot, layout::BATCH_WORD);
        let number = BatchWord(word.load(Relaxed)).number() + 1;
        let closed = BatchWord::closed(slot.generation(), number);
        word.store(closed.0, Release);
        fence(AcqRel);
        for (i, (task, attempt)) in tasks.iter().enumerate() {
            self.batch_word(slot, layout::BATCH_LIST + 2 * i).store(*task as u64, Relaxed);
            self.batch_word(slot, layout::BATCH_LIST + 2 * i + 1).store(*attempt as u64, Relaxed);
        }
        word.store(closed.opened(tasks.len()).0, Release);
    }

    /// By the worker, before it writes the next input. False: it is not to be written.
    pub fn send_next(&self, slot: SlotHandle) -> bool {
        let word = self.batch_word(slot, layout::BATCH_WORD);
        let mut seen = word.load(Acquire);
        while let Some(next) = BatchWord(seen).send_next() {
            match word.compare_exchange(seen, next.0, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// By the worker's watchdog: the task that was sent last takes long. Then it signals the scheduler.
    pub fn call_batch_slow(&self, slot: SlotHandle) {
        let word = self.batch_word(slot, layout::BATCH_WORD).load(Acquire);
        self.batch_word(slot, layout::BATCH_SLOW).store(word, Release);
    }

    /// By the scheduler: the batch has not moved since its worker called it slow.
    pub fn batch_is_slow(&self, slot: SlotHandle) -> bool {
        let word = self.batch_word(slot, layout::BATCH_WORD).load(Acquire);
        let open = BatchWord(word).of(slot.generation()) && BatchWord(word).close().is_some();
        open && self.batch_word(slot, layout::BATCH_SLOW).load(Acquire) == word
    }

    /// By the scheduler, or by the worker itself when it is to send no more: what was not sent, and never will be by
    /// that worker. Nothing: the worker was quicker, or there is nothing to take back.
    pub fn close_batch(&self, slot: SlotHandle) -> Vec<(i64, i32)> {
        let word = self.batch_word(slot, layout::BATCH_WORD);
        let seen = word.load(Acquire);
        let Some(closed) = BatchWord(seen).close().filter(|word| word.of(slot.generation())) else {
            return Vec::new();
        };
        let rest = self.batch_list(slot, BatchWord(seen).sent()..BatchWord(seen).count());
        fence(AcqRel);
        match word.compare_exchange(seen, closed.0, AcqRel, Acquire) {
            Ok(_) => rest,
            Err(_) => Vec::new(),
        }
    }

    /// By the scheduler: the tasks of a live worker's batch that it may be at, or will be: all but those whose turn is
    /// over. At most two are on the wire.
    pub fn batch_held(&self, slot: SlotHandle) -> Vec<(i64, i32)> {
        self.batch_part(slot, |word| {
            let end = if word.is_closed() { word.sent() } else { word.count() };
            word.sent().saturating_sub(ON_WIRE)..end
        })
    }

    /// By the scheduler: the tasks of a dead worker's last batch that were sent.
    pub fn batch_sent(&self, slot: SlotHandle) -> Vec<(i64, i32)> {
        self.batch_part(slot, |word| 0..word.sent())
    }

    fn batch_part(&self, slot: SlotHandle, part: impl Fn(BatchWord) -> Range<usize>) -> Vec<(i64, i32)> {
        let word = self.batch_word(slot, layout::BATCH_WORD);
        let seen = word.load(Acquire);
        if !BatchWord(seen).of(slot.generation()) {
            return Vec::new();
        }
        let tasks = self.batch_list(slot, part(BatchWord(seen)));
        fence(AcqRel);
        // Moved meanwhile: the ids may be another batch's.
        if word.load(Acquire) == seen { tasks } else { Vec::new() }
    }

    fn batch_list(&self, slot: SlotHandle, part: Range<usize>) -> Vec<(i64, i32)> {
        part.map(|i| {
            let task = self.batch_word(slot, layout::BATCH_LIST + 2 * i).load(Relaxed);
            let attempt = self.batch_word(slot, layout::BATCH_LIST + 2 * i + 1).load(Relaxed);
            (task as i64, attempt as i32)
        })
        .collect()
    }

    fn batch_word(&self, slot: SlotHandle, word: usize) -> &AtomicU64 {
        self.words.at(layout::batch_start(self.limit, slot.index()) + word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// What one of the two sides does next.
    #[derive(Clone, Copy, Debug)]
    enum ModelStep {
        Worker,
        Scheduler,
    }

    /// The worker in single steps: load, swap, write the input (which is what must never happen twice). When all is
    /// sent it opens the next batch, in the steps in which the words are written.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    struct WorkerModel {
        seen: Option<u64>,
        written: Vec<i64>,
        opening: Option<(usize, usize)>,
        batches: i64,
    }

    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    struct SchedulerModel {
        seen: Option<u64>,
        read: Vec<i64>,
        returned: Vec<i64>,
        lost: usize,
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Model {
        word: u64,
        ids: [i64; 2],
        worker: WorkerModel,
        scheduler: SchedulerModel,
        taken: Vec<i64>,
    }

    impl Model {
        fn step(&mut self, who: ModelStep) {
            match who {
                ModelStep::Worker => self.work(),
                ModelStep::Scheduler => self.watch(),
            }
        }

        fn work(&mut self) {
            if let Some((written, count)) = self.worker.opening {
                if written < count {
                    self.ids[written] = self.worker.batches * 10 + written as i64;
                    self.taken.push(self.ids[written]);
                    self.worker.opening = Some((written + 1, count));
                } else {
                    self.word = BatchWord(self.word).opened(count).0;
                    self.worker.opening = None;
                }
                return;
            }
            match self.worker.seen.take() {
                None => {
                    let word = BatchWord(self.word);
                    if word.send_next().is_some() {
                        self.worker.seen = Some(self.word);
                    } else if self.worker.batches < 3 {
                        self.worker.batches += 1;
                        self.word = BatchWord::closed(7, word.number() + 1).0;
                        self.worker.opening = Some((0, 2));
                    }
                }
                Some(seen) if seen == self.word => {
                    let next = BatchWord(seen).send_next().expect("it was asked before");
                    self.word = next.0;
                    self.worker.written.push(self.ids[next.sent() - 1]);
                }
                Some(_) => {}
            }
        }

        fn watch(&mut self) {
            match self.scheduler.seen {
                None => {
                    if BatchWord(self.word).close().is_some() {
                        self.scheduler.seen = Some(self.word);
                    }
                }
                Some(seen) if self.scheduler.read.len() < BatchWord(seen).count() - BatchWord(seen).sent() => {
                    let at = BatchWord(seen).sent() + self.scheduler.read.len();
                    self.scheduler.read.push(self.ids[at]);
                }
                Some(seen) => {
                    let read = std::mem::take(&mut self.scheduler.read);
                    self.scheduler.seen = None;
                    if seen == self.word {
                        self.word = BatchWord(seen).close().expect("it was asked before").0;
                        self.scheduler.returned.extend(read);
                    } else {
                        self.scheduler.lost += 1;
                    }
                }
            }
        }
    }

    /// Every interleaving of three batches of two tasks with a scheduler that keeps closing: each task is sent or
    /// given back, never both, none twice; and the worker stops only at a closed word.
    #[test]
    fn in_every_interleaving_a_task_is_sent_or_given_back_and_never_both() {
        let start = Model {
            word: BatchWord::closed(7, 0).0,
            ids: [0; 2],
            worker: WorkerModel::default(),
            scheduler: SchedulerModel::default(),
            taken: Vec::new(),
        };
        let (mut states, mut swaps_lost, mut returns) = (0u64, 0, 0);
        let (mut met, mut ahead) = (HashSet::from([start.clone()]), vec![start]);
        while let Some(model) = ahead.pop() {
            states += 1;
            swaps_lost += model.scheduler.lost;
            returns += model.scheduler.returned.len();
            let mut all = [&model.worker.written[..], &model.scheduler.returned[..]].concat();
            all.sort_unstable();
            let before = all.len();
            all.dedup();
            assert_eq!(before, all.len(), "a task twice: {model:?}");
            assert!(all.iter().all(|task| model.taken.contains(task)), "a task that nobody took: {model:?}");
            let word = BatchWord(model.word);
            if model.worker.opening.is_none()
                && model.worker.seen.is_none()
                && (word.is_closed() || word.sent() == word.count())
            {
                let mut taken = model.taken.clone();
                taken.sort_unstable();
                assert_eq!(all, taken, "a task is lost: {model:?}");
            }
            for who in [ModelStep::Worker, ModelStep::Scheduler] {
                let mut next = model.clone();
                next.step(who);
                if met.insert(next.clone()) {
                    ahead.push(next);
                }
            }
        }
        assert!(
            states > 1_000 && swaps_lost > 0 && returns > 0,
            "{states} states, {swaps_lost} lost, {returns} returns"
        );
    }

    #[test]
    fn two_threads_at_one_word_share_each_batch_without_a_gap() {
        let region = Region::create(1).unwrap();
        let slot = region.slots().reserve().unwrap();
        let other = region.clone();
        let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let done = over.clone();
        let scheduler = std::thread::spawn(move || {
            let mut returned = Vec::new();
            while !done.load(Acquire) {
                returned.extend(other.close_batch(slot));
                std::thread::yield_now();
            }
            returned
        });
        let (mut sent, mut next) = (Vec::new(), 0);
        for _ in 0..20_000 {
            let tasks: Vec<(i64, i32)> = (0..BATCH_TASKS as i64).map(|i| (next + i, 1)).collect();
            next += BATCH_TASKS as i64;
            region.open_batch(slot, &tasks);
            for task in &tasks {
                if !region.send_next(slot) {
                    break;
                }
                sent.push(*task);
            }
        }
        over.store(true, Release);
        let returned = scheduler.join().unwrap();
        let mut all = [&sent[..], &returned[..]].concat();
        all.sort_unstable();
        assert_eq!(all, (0..next).map(|task| (task, 1)).collect::<Vec<_>>());
    }

    #[test]
    fn a_batch_of_an_earlier_use_of_the_slot_is_nobodys() {
        let region = Region::create(1).unwrap();
        let first = region.slots().reserve().unwrap();
        region.open_batch(first, &[(1, 1), (2, 1)]);
        region.slots().release(first);
        let second = region.slots().reserve().unwrap();
        assert_eq!(region.close_batch(second), []);
        assert_eq!((region.batch_held(second), region.batch_sent(second)), (vec![], vec![]));
        region.call_batch_slow(second);
        assert!(!region.batch_is_slow(second));
        region.open_batch(second, &[(3, 1), (4, 1), (5, 2)]);
        assert!(region.send_next(second));
        assert!(!region.batch_is_slow(second));
        region.call_batch_slow(second);
        assert!(region.batch_is_slow(second));
        assert!(region.send_next(second), "slow or not, it is the worker's until the word is closed");
        assert!(!region.batch_is_slow(second), "it has moved since");
        assert_eq!(region.batch_held(second), [(3, 1), (4, 1), (5, 2)]);
        assert_eq!(region.close_batch(second), [(5, 2)]);
        assert_eq!(region.batch_held(second), [(3, 1), (4, 1)], "what is closed is the scheduler's");
        assert_eq!(region.batch_sent(second), [(3, 1), (4, 1)]);
        assert!(!region.send_next(second));
        assert_eq!(region.close_batch(second), [], "once");
    }
}
