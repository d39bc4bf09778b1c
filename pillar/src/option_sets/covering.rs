//! Covering arrays of strength two, as in pairwise software testing: few rows of values in which
//! every pair of values of any two options occurs.

use std::cmp::Reverse;
use std::collections::BTreeSet;

/// An option and one of its values.
type Chosen = (usize, usize);

/// Rows with the index of one value for each option; `counts` has the number of values of each.
/// Every pair of values of two options is in at least one row. The same counts give the same rows.
///
/// Each row starts with a pair that is in no row yet. Every other option gets the value that adds
/// the most such pairs; the first one wins a tie.
pub(super) fn rows(counts: &[usize]) -> Vec<Vec<usize>> {
    // The two options with the most values determine the minimum number of rows.
    let mut options: Vec<usize> = (0..counts.len()).collect();
    options.sort_by_key(|option| Reverse(counts[*option]));
    // In this function an option is a place in `options`.
    let values = |place: usize| (0..counts[options[place]]).map(move |value| (place, value));
    let mut uncovered = BTreeSet::new();
    for other in 0..options.len() {
        for one in (0..other).flat_map(values) {
            uncovered.extend(values(other).map(|other| pair(one, other)));
        }
    }
    let mut rows = Vec::new();
    while let Some((one, other)) = uncovered.first() {
        let mut row = vec![*one, *other];
        for place in 0..options.len() {
            if row.iter().any(|(taken, _)| *taken == place) {
                continue;
            }
            let added = |chosen: &Chosen| {
                let pairs = row.iter().map(|there| pair(*there, *chosen));
                pairs.filter(|pair| uncovered.contains(pair)).count()
            };
            // In a tie `max_by_key` takes the last.
            let best = values(place).rev().max_by_key(added);
            row.extend(best);
        }
        uncovered.retain(|(one, other)| !(row.contains(one) && row.contains(other)));
        let mut indexes = vec![0; options.len()];
        for (place, value) in row {
            indexes[options[place]] = value;
        }
        rows.push(indexes);
    }
    rows
}

fn pair(one: Chosen, other: Chosen) -> (Chosen, Chosen) {
    (one.min(other), one.max(other))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_pair_of_values_is_in_a_row(counts in vec(1_usize..5, 0..9)) {
            let rows = rows(&counts);
            for row in &rows {
                prop_assert_eq!(row.len(), counts.len());
                prop_assert!(row.iter().zip(&counts).all(|(value, count)| value < count));
            }
            for (other, others) in counts.iter().enumerate() {
                for (one, ones) in counts[..other].iter().enumerate() {
                    let found: BTreeSet<_> = rows.iter().map(|row| (row[one], row[other])).collect();
                    prop_assert_eq!(found.len(), ones * others, "{} and {} in {:?}", one, other, &rows);
                }
            }
            let all: usize = counts.iter().product();
            prop_assert!(rows.len() <= all, "{} rows", rows.len());
            prop_assert_eq!(rows, super::rows(&counts));
        }
    }
}
