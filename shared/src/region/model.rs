//! The protocol of a cell, played through: every order in which the atomic operations of a parent and its children
//! can fall, with a death at any of them.
//!
//! Each step is one load, store or compare-and-swap of `cell.rs`, in its order, over a cell with a payload of two
//! words (the parent's own loads of the generation are joined to the store behind them: no child ever changes a
//! generation). The parent fills for the first child, frees at any moment (in time, or because it gave up waiting),
//! fills for the second, frees by the first ticket once more (nothing may happen), and frees by the second. It may die
//! at any step; then its own parent sweeps the cell and fills it for a third child. A child starts when its cell is
//! published, is as late as it likes, and may die at any step.
//!
//! Assumed: all processes see one order of all operations. `Flaw::WipeSeenEarly` is what weaker memory could make of
//! `wipe`, whose relaxed stores nothing orders behind the store of FILLING. Not here: slots, processes, signals.

use super::{CellError, Region, Ticket};
use State::{Accepted, Filling, Free, Published};
use std::collections::{HashMap, HashSet};

const MAX_WORDS: usize = 2;
type ModelWords = [u8; MAX_WORDS];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Free,
    Filling,
    Published,
    Accepted,
}

/// Unused words are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Payload {
    length: usize,
    words: ModelWords,
}

/// Stands for the checksum: what it was made of.
type Sum = Option<(u32, Payload)>;

/// The shared words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Memory {
    word: (u32, State),
    length: usize,
    sum: Sum,
    payload: ModelWords,
}

const EMPTY: Memory = Memory { word: (0, Free), length: 0, sum: None, payload: [0; MAX_WORDS] };

/// What the parent does, one call after the other. A number is the generation of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Call {
    Fill(Payload),
    Free(u32),
    /// The sweep of a dead process's cell.
    Wipe,
}

/// One operation of the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Store {
    /// The compare-and-swap from FREE.
    Claim(u32),
    State(u32, State),
    Length(usize),
    Sum(Sum),
    Word(usize, u8),
}

/// Where a child is in `accept`, and what it has copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ChildModel {
    NotStarted,
    Read,
    CopyLength,
    CopySum(usize),
    CopyWord {
        length: usize,
        sum: Sum,
        words: ModelWords,
        next: usize,
    },
    Swap(Payload),
    LookAgain,
    Ended(ModelVerdict),
    /// Whatever the verdict was, or dead: it touches nothing any more.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ModelVerdict {
    Ran(Payload),
    Stale,
    Damaged,
}

/// What could have been written instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// Any payload passes. No flaw as long as all see one order.
    NoChecksum,
    AcceptWithoutSwap,
    PublishFirst,
    SameGeneration,
    WipeSeenEarly,
    WipeSeenEarlyAndNoChecksum,
}

impl Flaw {
    fn checks_sums(self) -> bool {
        !matches!(self, Flaw::NoChecksum | Flaw::WipeSeenEarlyAndNoChecksum | Flaw::PublishFirst)
    }

    /// One parent is enough to find a flaw.
    fn parent_may_die(self) -> bool {
        matches!(self, Flaw::None | Flaw::NoChecksum)
    }

    fn next_generation(self, generation: u32) -> u32 {
        if self == Flaw::SameGeneration { generation.max(1) } else { generation + 1 }
    }
}

/// One moment of the play.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Scene {
    memory: Memory,
    calls: Vec<Call>,
    /// The rest of the call that the parent is in.
    stores: Vec<Store>,
    filling: Option<Payload>,
    /// Generation and payload of what was published, and whether freeing it has begun; child n has ticket n.
    tickets: Vec<(u32, Payload, bool)>,
    children: [ChildModel; 3],
    parent_died: bool,
}

impl Scene {
    fn is_over(&self) -> bool {
        self.calls.is_empty() && self.stores.is_empty()
    }
}

/// The operations of one call, as `cell.rs` does them. None: refused.
fn stores_of(call: Call, memory: Memory, flaw: Flaw) -> Option<Vec<Store>> {
    let (generation, state) = memory.word;
    match call {
        Call::Fill(payload) => {
            let next = flaw.next_generation(generation);
            let mut stores = vec![Store::Claim(next), Store::Length(payload.length), Store::Sum(Some((next, payload)))];
            stores.extend((0..payload.length).map(|i| Store::Word(i, payload.words[i])));
            stores.insert(if flaw == Flaw::PublishFirst { 1 } else { stores.len() }, Store::State(next, Published));
            (state == Free).then_some(stores)
        }
        Call::Free(ticket) if ticket != generation => Some(Vec::new()),
        Call::Free(_) | Call::Wipe => {
            let mut stores = vec![Store::Length(0), Store::Sum(None)];
            stores.extend((0..MAX_WORDS).map(|i| Store::Word(i, 0)));
            let early = matches!(flaw, Flaw::WipeSeenEarly | Flaw::WipeSeenEarlyAndNoChecksum);
            stores.insert(if early { stores.len() } else { 0 }, Store::State(generation, Filling));
            stores.push(Store::State(generation, Free));
            Some(stores)
        }
    }
}

fn apply(memory: &mut Memory, store: Store) {
    match store {
        Store::Claim(generation) => memory.word = (generation, Filling),
        Store::State(generation, state) => memory.word = (generation, state),
        Store::Length(length) => memory.length = length,
        Store::Sum(sum) => memory.sum = sum,
        Store::Word(i, word) => memory.payload[i] = word,
    }
}

/// One operation of `accept` by the holder of a ticket of `generation`.
fn child_step(child: ChildModel, memory: &mut Memory, generation: u32, flaw: Flaw) -> ChildModel {
    let published = (generation, Published);
    match child {
        ChildModel::Read if memory.word == published => ChildModel::CopyLength,
        ChildModel::Read => ChildModel::Ended(ModelVerdict::Stale),
        ChildModel::CopyLength => ChildModel::CopySum(memory.length),
        ChildModel::CopySum(length) => checked(length, memory.sum, [0; MAX_WORDS], 0, generation, flaw),
        ChildModel::CopyWord { length, sum, mut words, next } => {
            words[next] = memory.payload[next];
            checked(length, sum, words, next + 1, generation, flaw)
        }
        ChildModel::LookAgain if memory.word == published => ChildModel::Ended(ModelVerdict::Damaged),
        ChildModel::LookAgain => ChildModel::Ended(ModelVerdict::Stale),
        ChildModel::Swap(copy) if flaw == Flaw::AcceptWithoutSwap || memory.word == published => {
            memory.word = (generation, Accepted);
            ChildModel::Ended(ModelVerdict::Ran(copy))
        }
        ChildModel::Swap(_) => ChildModel::Ended(ModelVerdict::Stale),
        ChildModel::NotStarted | ChildModel::Ended(_) | ChildModel::Gone => child,
    }
}

/// After a copied word: the next one, or the check, which touches no shared word.
fn checked(length: usize, sum: Sum, words: ModelWords, next: usize, generation: u32, flaw: Flaw) -> ChildModel {
    if next < length {
        return ChildModel::CopyWord { length, sum, words, next };
    }
    let copy = Payload { length, words };
    if flaw.checks_sums() && sum != Some((generation, copy)) { ChildModel::LookAgain } else { ChildModel::Swap(copy) }
}

const WRONG: &str = "a child ran with what was not its own";
const FREED: &str = "a child accepted after its cell was freed";
const FALSE_ALARM: &str = "a child took a freed cell for a damaged one";
const LEFT: &str = "something was left when all was over";
const REFUSED: &str = "the parent found its own cell in use";

/// A step of the way to a scene.
#[derive(Debug)]
#[expect(dead_code, reason = "read by its Debug, in the story of a failure")]
enum Step {
    Parent(Store),
    NothingToFree,
    ParentDiesAndIsSwept,
    Child(usize, ChildModel),
    ChildDies(usize),
}

/// What the third child is to read.
const THIRD: Payload = Payload { length: 2, words: [31, 32] };

/// The walk through all scenes that can be reached.
struct Play {
    flaw: Flaw,
    seen: HashSet<Scene>,
    path: Vec<Step>,
    /// The first way to each kind of violation.
    violations: HashMap<&'static str, Vec<String>>,
    verdicts: HashSet<(usize, ModelVerdict)>,
}

impl Play {
    fn run(first: Payload, second: Payload, flaw: Flaw) -> Play {
        let (one, two) = (flaw.next_generation(0), flaw.next_generation(1));
        let calls = vec![Call::Fill(first), Call::Free(one), Call::Fill(second), Call::Free(one), Call::Free(two)];
        let scene = Scene {
            memory: EMPTY,
            calls,
            stores: Vec::new(),
            filling: None,
            tickets: Vec::new(),
            children: [ChildModel::NotStarted; 3],
            parent_died: false,
        };
        let empty = HashSet::new();
        let mut play =
            Play { flaw, seen: empty, path: Vec::new(), violations: HashMap::new(), verdicts: HashSet::new() };
        play.explore(scene);
        play
    }

    fn note(&mut self, what: &'static str) {
        let path = &self.path;
        self.violations.entry(what).or_insert_with(|| path.iter().map(|step| format!("{step:?}")).collect());
    }

    fn step(&mut self, step: Step, scene: Scene, judge: impl FnOnce(&mut Play)) {
        self.path.push(step);
        judge(self);
        self.explore(scene);
        self.path.pop();
    }

    fn explore(&mut self, scene: Scene) {
        if !self.seen.insert(scene.clone()) {
            return;
        }
        if scene.is_over() {
            let leftover = Memory { word: (0, scene.memory.word.1), ..scene.memory };
            if leftover != EMPTY {
                self.note(LEFT);
            }
        } else {
            self.parent_goes_on(scene.clone());
            self.parent_dies(scene.clone());
        }
        for number in 0..scene.children.len() {
            if !matches!(scene.children[number], ChildModel::NotStarted | ChildModel::Gone) {
                self.child_goes_on(scene.clone(), number);
                self.child_dies(scene.clone(), number);
            }
        }
    }

    fn parent_goes_on(&mut self, mut scene: Scene) {
        if scene.stores.is_empty() {
            let call = scene.calls.remove(0);
            match stores_of(call, scene.memory, self.flaw) {
                Some(stores) => scene.stores = stores,
                None => return self.note(REFUSED),
            }
            scene.filling = match call {
                Call::Fill(payload) => Some(payload),
                Call::Free(_) | Call::Wipe => None,
            };
            if scene.stores.is_empty() {
                return self.step(Step::NothingToFree, scene, |_| {});
            }
        }
        let store = scene.stores.remove(0);
        apply(&mut scene.memory, store);
        match (scene.filling, store) {
            (Some(payload), Store::State(generation, Published)) => {
                scene.children[scene.tickets.len()] = ChildModel::Read;
                scene.tickets.push((generation, payload, false));
            }
            (None, Store::State(generation, _)) => {
                let freed = scene.tickets.iter_mut().filter(|ticket| ticket.0 == generation);
                freed.for_each(|ticket| ticket.2 = true);
            }
            (_, Store::Claim(_) | Store::State(..) | Store::Length(_) | Store::Sum(_) | Store::Word(..)) => {}
        }
        scene.filling = scene.filling.filter(|_| !scene.stores.is_empty());
        self.step(Step::Parent(store), scene, |_| {});
    }

    fn parent_dies(&mut self, mut scene: Scene) {
        if !scene.parent_died && self.flaw.parent_may_die() {
            let third = self.flaw.next_generation(scene.memory.word.0);
            scene.parent_died = true;
            scene.stores.clear();
            scene.filling = None;
            scene.calls = vec![Call::Wipe, Call::Fill(THIRD), Call::Free(third)];
            self.step(Step::ParentDiesAndIsSwept, scene, |_| {});
        }
    }

    fn child_goes_on(&mut self, mut scene: Scene, number: usize) {
        let (generation, own, freed) = scene.tickets[number];
        let now = child_step(scene.children[number], &mut scene.memory, generation, self.flaw);
        scene.children[number] = if matches!(now, ChildModel::Ended(_)) { ChildModel::Gone } else { now };
        self.step(Step::Child(number, now), scene, |play| {
            if let ChildModel::Ended(verdict) = now {
                play.verdicts.insert((number, verdict));
            }
            match now {
                ChildModel::Ended(ModelVerdict::Ran(copy)) if copy != own => play.note(WRONG),
                ChildModel::Ended(ModelVerdict::Ran(_)) if freed => play.note(FREED),
                ChildModel::Ended(ModelVerdict::Damaged) => play.note(FALSE_ALARM),
                _ => {}
            }
        });
    }

    fn child_dies(&mut self, mut scene: Scene, number: usize) {
        scene.children[number] = ChildModel::Gone;
        self.step(Step::ChildDies(number), scene, |_| {});
    }

    #[track_caller]
    fn expect_no_violation(&self) {
        assert!(self.violations.is_empty(), "{:?} of {} scenes: {:#?}", self.flaw, self.seen.len(), self.violations);
    }
}

mod tests;
