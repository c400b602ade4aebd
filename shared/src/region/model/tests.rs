//! What the walk finds, and that the model answers as the cell does.

use super::*;

const LONG: Payload = Payload { length: 2, words: [11, 12] };
const SHORT: Payload = Payload { length: 1, words: [21, 0] };

#[test]
fn in_every_order_a_child_runs_with_its_own_parameters_or_not_at_all() {
    for (first, second) in [(LONG, SHORT), (SHORT, LONG)] {
        let play = Play::run(first, second, Flaw::None);
        play.expect_no_violation();
        // The walk has been everywhere: each child could run, and each could be too late.
        for (number, own) in [first, second, THIRD].into_iter().enumerate() {
            assert!(play.verdicts.contains(&(number, ModelVerdict::Ran(own))));
            assert!(play.verdicts.contains(&(number, ModelVerdict::Stale)));
        }
    }
}

/// The word alone decides; the checksum is for stray writes.
#[test]
fn in_every_order_the_word_alone_keeps_parameters_apart() {
    Play::run(LONG, SHORT, Flaw::NoChecksum).expect_no_violation();
}

/// And for machines on which the wiping may be seen before the word says so.
#[test]
fn where_wiping_is_seen_early_the_checksum_keeps_parameters_whole() {
    for (first, second) in [(LONG, SHORT), (SHORT, LONG)] {
        let play = Play::run(first, second, Flaw::WipeSeenEarly);
        assert_eq!(play.violations.keys().collect::<Vec<_>>(), [&FALSE_ALARM]);
        let unchecked = Play::run(first, second, Flaw::WipeSeenEarlyAndNoChecksum);
        assert!(unchecked.violations.contains_key(WRONG));
    }
}

#[test]
fn the_walk_finds_what_is_wrong_with_a_careless_protocol() {
    let find = |flaw, what| {
        let play = Play::run(LONG, SHORT, flaw);
        assert!(play.violations.contains_key(what), "{flaw:?} was not found out: {:?}", play.violations);
    };
    find(Flaw::AcceptWithoutSwap, FREED);
    find(Flaw::AcceptWithoutSwap, LEFT);
    find(Flaw::PublishFirst, WRONG);
    find(Flaw::SameGeneration, WRONG);
}

/// Whole calls in every order of five: the model answers as the cell does.
#[test]
fn the_model_answers_as_the_cell_does() {
    const CALLS: usize = 6;
    const LENGTH: u32 = 5;
    for number in 0..CALLS.pow(LENGTH) {
        let calls: Vec<usize> = (0..LENGTH).map(|at| number / CALLS.pow(at) % CALLS).collect();
        compare(&calls);
    }
}

fn compare(calls: &[usize]) {
    let region = Region::create(1).unwrap();
    let slot = region.slots().reserve().unwrap();
    let mut memory = EMPTY;
    // The newest ticket and the one before.
    let mut tickets = [Ticket { index: 0, generation: 900 }, Ticket { index: 0, generation: 901 }];
    for call in calls {
        match call {
            0 | 1 => {
                let payload = [LONG, SHORT][*call];
                let filled = region.fill(slot, &bytes(payload));
                let stores = stores_of(Call::Fill(payload), memory, Flaw::None);
                assert_eq!(filled.is_ok(), stores.is_some(), "{calls:?}");
                stores.into_iter().flatten().for_each(|store| apply(&mut memory, store));
                if let Ok(ticket) = filled {
                    assert_eq!(memory.word.0, ticket.generation, "{calls:?}");
                    tickets = [ticket, tickets[0]];
                }
            }
            2 | 3 => {
                let ticket = tickets[call - 2];
                let mut child = ChildModel::Read;
                while !matches!(child, ChildModel::Ended(_)) {
                    child = child_step(child, &mut memory, ticket.generation, Flaw::None);
                }
                let expected = match child {
                    ChildModel::Ended(ModelVerdict::Ran(payload)) => Ok(bytes(payload)),
                    _ => Err(CellError::Stale),
                };
                assert_eq!(region.accept(ticket), expected, "{calls:?}");
            }
            _ => {
                let ticket = tickets[call - 4];
                region.free(ticket);
                let stores = stores_of(Call::Free(ticket.generation), memory, Flaw::None);
                stores.into_iter().flatten().for_each(|store| apply(&mut memory, store));
            }
        }
        assert_eq!(region.cells_in_use() == 1, memory.word.1 != Free, "{calls:?}");
        assert_eq!(region.cells_are_wiped(), memory.payload == [0; MAX_WORDS], "{calls:?}");
    }
}

fn bytes(payload: Payload) -> Vec<u8> {
    payload.words[..payload.length].iter().flat_map(|word| u64::from(*word).to_le_bytes()).collect()
}
