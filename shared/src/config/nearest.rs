//! The known word that lies nearest to a mistyped one: `sleeep` → `sleep`.
//!
//! Called by `config` and `conninfo` when they refuse an unknown key, so that the refusal can say what was
//! probably meant. Nothing can go wrong: a word that resembles nothing gets no suggestion, and a word too long
//! to be a typing mistake is not looked at.

use crate::limits::MISTYPED_LETTERS_MAX;

/// The known word with the smallest edit distance, if it is near enough to be meant; the first of equals.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(MISTYPED_LETTERS_MAX + 1).flat_map(char::to_lowercase).collect();
    if word.is_empty() || word.len() > MISTYPED_LETTERS_MAX {
        return None;
    }
    known
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.chars().collect::<Vec<_>>()), candidate))
        .filter(|(distance, candidate)| *distance <= allowance(word.len().max(candidate.len())))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many slips of the finger a word of this length forgives.
fn allowance(length: usize) -> usize {
    match length {
        0..=2 => 0,
        3..=5 => 1,
        6..=8 => 2,
        _ => 3,
    }
}

/// Insertions, deletions, replacements and swaps of neighbours, each counted once.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, left_char) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, right_char) in right.iter().enumerate() {
            let replaced = above[column] + usize::from(left_char != right_char);
            let mut best = replaced.min(above[column + 1] + 1).min(current[column] + 1);
            let swapped = row > 0 && column > 0 && *left_char == right[column - 1] && left[row - 1] == *right_char;
            if swapped {
                best = best.min(before[column - 1] + 1);
            }
            current.push(best);
        }
        before = std::mem::replace(&mut above, current);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};
    use proptest::prelude::{any, proptest};

    const KNOWN: [&str; 5] = ["sleep", "schema", "table", "timeout", "max"];

    fn chars(text: &str) -> Vec<char> {
        text.chars().collect()
    }

    #[test]
    fn a_doubled_a_missing_a_wrong_and_a_swapped_letter_are_recognised() {
        assert_eq!(nearest("sleeep", KNOWN), Some("sleep"));
        assert_eq!(nearest("schma", KNOWN), Some("schema"));
        assert_eq!(nearest("tible", KNOWN), Some("table"));
        assert_eq!(nearest("tiemout", KNOWN), Some("timeout"));
    }

    #[test]
    fn capitals_are_forgiven() {
        assert_eq!(nearest("SLEEP", KNOWN), Some("sleep"));
    }

    #[test]
    fn a_word_that_resembles_nothing_gets_no_suggestion() {
        assert_eq!(nearest("colour", KNOWN), None);
        assert_eq!(nearest("", KNOWN), None);
        assert_eq!(nearest("x", KNOWN), None);
    }

    #[test]
    fn a_huge_word_is_not_looked_at() {
        assert_eq!(nearest(&"s".repeat(1_000_000), KNOWN), None);
    }

    #[test]
    fn a_swap_of_neighbours_counts_once() {
        assert_eq!(distance(&chars("ab"), &chars("ba")), 1);
        assert_eq!(distance(&chars("kitten"), &chars("sitting")), 3);
        assert_eq!(distance(&chars(""), &chars("abc")), 3);
    }

    proptest! {
        #[test]
        fn the_distance_is_symmetric_and_zero_only_for_equals(left in "[a-c]{0,6}", right in "[a-c]{0,6}") {
            let there = distance(&chars(&left), &chars(&right));
            assert_eq!(there, distance(&chars(&right), &chars(&left)));
            assert_eq!(there == 0, left == right);
        }

        #[test]
        fn any_word_is_survived(word in any::<String>()) {
            let _ = nearest(&word, KNOWN);
        }
    }
}
