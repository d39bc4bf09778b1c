//! Combinations of options' values in which every pair of values occurs.

use super::covering;
use crate::options::{Choice, OptionValue};

/// The values that differ from their defaults, each with the index of its option.
pub(super) type Picked<'a> = Vec<(usize, &'a OptionValue)>;

/// The generated combinations. No part of the state tree depends on more than two options at once,
/// so either kind is enough to find everything that a cluster can request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Coverage {
    /// Each pair of values that differ from their defaults, with the defaults of all other options:
    /// a message names no option that is not involved.
    #[default]
    Pairs,
    /// Each such value alone, and for the pairs a covering array: a quarter of the combinations,
    /// and in the last ones many values differ.
    Covering,
}

impl Coverage {
    /// Combinations in which every pair of values of two options occurs.
    pub(super) fn with_every_pair(self, choices: &[Choice]) -> Vec<Picked<'_>> {
        match self {
            Self::Pairs => deviations(choices, 2),
            Self::Covering => {
                let mut out = deviations(choices, 1);
                for row in covering::rows(&counts(choices)) {
                    let picked = deviation(choices, &row);
                    if !out.contains(&picked) {
                        out.push(picked);
                    }
                }
                out
            }
        }
    }

    /// Combinations in which every value occurs.
    pub(super) fn with_every_value(self, choices: &[Choice]) -> Vec<Picked<'_>> {
        match self {
            Self::Pairs => deviations(choices, 1),
            Self::Covering => {
                let counts = counts(choices);
                let rows = counts.iter().copied().max().unwrap_or(1);
                let row = |at: usize| counts.iter().map(|count| at % count).collect::<Vec<_>>();
                (0..rows).map(|at| deviation(choices, &row(at))).collect()
            }
        }
    }
}

/// All combinations in which at most `depth` options differ from the default, and the one in which
/// all do.
fn deviations(choices: &[Choice], depth: usize) -> Vec<Picked<'_>> {
    let mut out: Vec<Picked> = vec![Vec::new()];
    let mut level: Vec<Picked> = vec![Vec::new()];
    for _ in 0..depth {
        let mut next = Vec::new();
        for picked in &level {
            let from = picked.last().map_or(0, |(at, _)| at + 1);
            for (at, choice) in choices.iter().enumerate().skip(from) {
                for way in choice.ways.iter().skip(1) {
                    let mut more = picked.clone();
                    more.push((at, way));
                    next.push(more);
                }
            }
        }
        out.extend(next.iter().cloned());
        level = next;
    }
    let all: Picked = choices
        .iter()
        .enumerate()
        .filter_map(|(at, choice)| Some((at, choice.ways.get(1)?)))
        .collect();
    if all.len() > depth {
        out.push(all);
    }
    out
}

/// The number of values of each option.
fn counts(choices: &[Choice]) -> Vec<usize> {
    choices.iter().map(|choice| choice.ways.len()).collect()
}

/// The combination of a row of indexes of values.
fn deviation<'a>(choices: &'a [Choice], row: &[usize]) -> Picked<'a> {
    let options = choices.iter().zip(row).enumerate();
    options
        .filter(|(_, (_, value))| **value > 0)
        .filter_map(|(at, (choice, value))| Some((at, choice.ways.get(*value)?)))
        .collect()
}
