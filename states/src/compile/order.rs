//! The order of calls, by Salt's rules. Requisites always win. Of the calls that may run next, the
//! first is the one with the lowest order number; then the one for which lower numbered calls wait;
//! then the first by module, name and function.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use halite_document::Problem;

use super::call::Draft;
use super::globals::Order;
use crate::low::Requisites;

/// The first implicit order number.
const FIRST: i64 = 10_000;
/// The number from which `order: last` and negative numbers count.
const END: i64 = 1_000_000;

/// Positions of drafts in the order in which they run. A cycle is a problem, and the order is then
/// incomplete.
pub(super) fn order(
    drafts: &[Draft],
    edges: &[Requisites],
    problems: &mut Vec<Problem>,
) -> Vec<usize> {
    let after = successors(edges);
    let numbers = numbers(drafts);
    let mut waiting = vec![0usize; drafts.len()];
    for targets in &after {
        for target in targets {
            waiting[*target] += 1;
        }
    }
    let earliest = earliest(&after, &numbers, &waiting);
    let key = |at: usize| {
        let chunk = &drafts[at].call.chunk;
        Reverse(Key {
            number: numbers[at],
            earliest: earliest[at],
            text: format!("{}{}{}", chunk.state, chunk.name, chunk.fun),
            at,
        })
    };
    let mut heap: BinaryHeap<Reverse<Key>> = (0..drafts.len())
        .filter(|at| waiting[*at] == 0)
        .map(key)
        .collect();
    let mut order = Vec::with_capacity(drafts.len());
    while let Some(Reverse(Key { at, .. })) = heap.pop() {
        order.push(at);
        for target in &after[at] {
            waiting[*target] -= 1;
            if waiting[*target] == 0 {
                heap.push(key(*target));
            }
        }
    }
    if order.len() < drafts.len() {
        cycles(drafts, edges, waiting, problems);
    }
    order
}

/// Sort key of a call that may run next.
struct Key {
    number: f64,
    earliest: f64,
    text: String,
    at: usize,
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number
            .total_cmp(&other.number)
            .then(self.earliest.total_cmp(&other.earliest))
            .then_with(|| self.text.cmp(&other.text))
            .then(self.at.cmp(&other.at))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

/// The positions for which a call waits, with the requisite by which it does.
fn predecessors(requisites: &Requisites) -> impl Iterator<Item = (&'static str, usize)> + '_ {
    [
        ("require", &requisites.require),
        ("require_any", &requisites.require_any),
        ("watch", &requisites.watch),
        ("watch_any", &requisites.watch_any),
        ("onchanges", &requisites.onchanges),
        ("onchanges_any", &requisites.onchanges_any),
        ("onfail", &requisites.onfail),
        ("onfail_any", &requisites.onfail_any),
        ("onfail_all", &requisites.onfail_all),
    ]
    .into_iter()
    .flat_map(|(word, targets)| targets.iter().map(move |target| (word, *target)))
}

/// For each call the calls that must come after it.
fn successors(edges: &[Requisites]) -> Vec<Vec<usize>> {
    let mut after = vec![Vec::new(); edges.len()];
    for (at, requisites) in edges.iter().enumerate() {
        for (_, target) in predecessors(requisites) {
            after[target].push(at);
        }
        after[at].extend(&requisites.prereq);
    }
    for targets in &mut after {
        targets.sort_unstable();
        targets.dedup();
    }
    after
}

/// Salt's order numbers: 10000 and up in the order of the files, `names` in steps of a
/// ten-thousandth.
fn numbers(drafts: &[Draft]) -> Vec<f64> {
    let mut cap = 1;
    for (at, draft) in drafts.iter().enumerate() {
        let number = match draft.call.order {
            Order::Auto => FIRST + at_number(draft, at),
            Order::Number(number) => number,
            Order::First | Order::Last => continue,
        };
        if number > cap - 1 && number > 0 {
            cap = number.saturating_add(100);
        }
    }
    drafts
        .iter()
        .enumerate()
        .map(|(at, draft)| {
            let number = match draft.call.order {
                Order::Auto => FIRST + at_number(draft, at),
                Order::Number(number) => number,
                Order::First => 0,
                Order::Last => cap.saturating_add(END),
            };
            let number = number as f64 + draft.call.name_order as f64 / 10_000.0;
            if number < 0.0 {
                (cap.saturating_add(END)) as f64 + number
            } else {
                number
            }
        })
        .collect()
}

fn at_number(draft: &Draft, at: usize) -> i64 {
    i64::try_from(draft.declaration)
        .or_else(|_| i64::try_from(at))
        .unwrap_or(0)
}

/// For each call the lowest order number of all calls that wait for it, directly or indirectly.
fn earliest(after: &[Vec<usize>], numbers: &[f64], waiting: &[usize]) -> Vec<f64> {
    let mut waiting = waiting.to_vec();
    let mut ready: Vec<usize> = (0..after.len()).filter(|at| waiting[*at] == 0).collect();
    let mut next = 0;
    while let Some(at) = ready.get(next).copied() {
        next += 1;
        for target in &after[at] {
            waiting[*target] -= 1;
            if waiting[*target] == 0 {
                ready.push(*target);
            }
        }
    }
    let mut earliest = vec![f64::INFINITY; after.len()];
    for at in ready.into_iter().rev() {
        for target in &after[at] {
            earliest[at] = earliest[at].min(numbers[*target]).min(earliest[*target]);
        }
    }
    earliest
}

fn verb(word: &str) -> &str {
    match word.trim_end_matches("_any").trim_end_matches("_all") {
        "require" => "requires",
        "watch" => "watches",
        "onchanges" => "runs on changes of",
        "onfail" => "runs on failure of",
        other => other,
    }
}

/// Reports each cycle once, link by link.
fn cycles(
    drafts: &[Draft],
    edges: &[Requisites],
    mut waiting: Vec<usize>,
    problems: &mut Vec<Problem>,
) {
    let describe = |at: usize| {
        format!(
            "`{}: {}`",
            drafts[at].call.chunk.state, drafts[at].call.chunk.id
        )
    };
    // For each stuck call a link to a stuck call for which it waits.
    let link = |at: usize, waiting: &[usize]| {
        predecessors(&edges[at])
            .chain(
                edges
                    .iter()
                    .enumerate()
                    .filter(|(_, other)| other.prereq.contains(&at))
                    .map(|(from, _)| ("is prereq of", from)),
            )
            .find(|(_, target)| waiting[*target] > 0)
    };
    for start in 0..drafts.len() {
        if waiting[start] == 0 {
            continue;
        }
        let mut path = vec![start];
        let mut words = Vec::new();
        let closed = loop {
            let Some((word, next)) = path.last().and_then(|at| link(*at, &waiting)) else {
                break None;
            };
            words.push(word);
            if let Some(first) = path.iter().position(|known| *known == next) {
                break Some(first);
            }
            path.push(next);
        };
        let Some(first) = closed else {
            path.iter().for_each(|at| waiting[*at] = 0);
            continue;
        };
        let circle = &path[first..];
        let links: Vec<String> = circle
            .iter()
            .zip(&words[first..])
            .map(|(at, word)| {
                let source = &drafts[*at].call.chunk.source;
                format!(
                    "{} ({}:{}) {}",
                    describe(*at),
                    source.file,
                    source.line,
                    verb(word)
                )
            })
            .collect();
        problems.push(
            Problem::at(
                &drafts[circle[0]].call.chunk.source,
                format!(
                    "requisites form a cycle: {} {}",
                    links.join(" "),
                    describe(circle[0])
                ),
            )
            .hint("remove one of them"),
        );
        path.iter().for_each(|at| waiting[*at] = 0);
    }
}
