//! The order of calls, by Salt's rules. Requisites always win. Of the calls that may run next, the
//! first is the one with the lowest place: its own order number, or the number of a call that
//! directly waits for it if that is lower. So a requirement that is declared later is pulled
//! forward to the place of its first dependent. Ties are broken by the call's own number, then by
//! module, name and function.

mod cycles;
mod graph;

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};

use halite_document::Problem;

use self::graph::{Edge, Graph};
use super::call::Draft;
use super::globals::Order;
use crate::low::Requisites;

/// The first implicit order number.
const FIRST: i64 = 10_000;
/// The number from which `order: last` and negative numbers count.
const END: i64 = 1_000_000;

/// Positions of drafts in the order in which they run. A cycle is a problem, and the order is then
/// incomplete. `high_order` has the SLS files, each before the files that it includes.
pub(super) fn order(
    drafts: &[Draft],
    edges: &[Requisites],
    high_order: &[String],
    problems: &mut Vec<Problem>,
) -> Vec<usize> {
    let graph = Graph::new(edges, &in_high_order(drafts, high_order));
    let numbers = numbers(drafts);
    let mut waiting = graph.waiting();
    let key = |node: usize| {
        let draft = graph.drafts[node];
        let chunk = &drafts[draft].call.chunk;
        let own = numbers[draft].own;
        let pulled = dependent(&graph, &numbers, &graph.after[node]);
        Reverse(Key {
            place: pulled.map_or(own, |number| number.min(own)),
            own,
            text: format!("{}{}{}", chunk.state, chunk.name, chunk.fun),
            id: chunk.id.clone(),
            node,
        })
    };
    let mut heap: BinaryHeap<Reverse<Key>> = (0..waiting.len())
        .filter(|node| waiting[*node] == 0)
        .map(key)
        .collect();
    let mut order = Vec::with_capacity(drafts.len());
    while let Some(Reverse(Key { node, .. })) = heap.pop() {
        if node < drafts.len() {
            order.push(node);
        }
        for edge in &graph.after[node] {
            waiting[edge.to] -= 1;
            if waiting[edge.to] == 0 {
                heap.push(key(edge.to));
            }
        }
    }
    if order.len() < drafts.len() {
        cycles::report(drafts, edges, waiting, problems);
    }
    order
}

/// Positions of drafts as their calls are in Salt's high data: by file, then as declared.
fn in_high_order(drafts: &[Draft], high_order: &[String]) -> Vec<usize> {
    let ranks: HashMap<&str, usize> = high_order
        .iter()
        .enumerate()
        .map(|(rank, sls)| (sls.as_str(), rank))
        .collect();
    let mut positions: Vec<usize> = (0..drafts.len()).collect();
    positions.sort_by_key(|at| {
        let sls = drafts[*at].call.chunk.sls.as_str();
        ranks.get(sls).copied().unwrap_or(usize::MAX)
    });
    positions
}

/// The lowest number of the calls that directly wait for a node. As in Salt, a call does not count
/// if it waits by a lower ranking requisite than a call declared before it.
fn dependent(graph: &Graph, numbers: &[Number], after: &[Edge]) -> Option<f64> {
    let mut lowest: Option<f64> = None;
    let mut highest_rank = 0;
    for edge in after {
        if edge.rank >= highest_rank {
            highest_rank = edge.rank;
            let number = numbers[graph.drafts[edge.to]].given;
            lowest = Some(lowest.map_or(number, |lowest| lowest.min(number)));
        }
    }
    lowest
}

/// Sort key of a node that may come next.
struct Key {
    place: f64,
    own: f64,
    text: String,
    id: String,
    node: usize,
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place
            .total_cmp(&other.place)
            .then(self.own.total_cmp(&other.own))
            .then_with(|| self.text.cmp(&other.text))
            .then_with(|| self.id.cmp(&other.id))
            .then(self.node.cmp(&other.node))
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

/// Salt's order numbers of one call.
struct Number {
    /// The number as given: it pulls requirements, before each of `names` gets its own and negative
    /// numbers are counted from the end.
    given: f64,
    /// The number by which the call itself is ordered: `names` in steps of a ten-thousandth.
    own: f64,
}

/// The numbers of all calls: 10000 and up in the order of the files.
fn numbers(drafts: &[Draft]) -> Vec<Number> {
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
    let end = cap.saturating_add(END);
    drafts
        .iter()
        .enumerate()
        .map(|(at, draft)| {
            let given = match draft.call.order {
                Order::Auto => FIRST + at_number(draft, at),
                Order::Number(number) => number,
                Order::First => 0,
                Order::Last => end,
            } as f64;
            let own = given + draft.call.name_order as f64 / 10_000.0;
            Number {
                given,
                own: if own < 0.0 { end as f64 + own } else { own },
            }
        })
        .collect()
}

fn at_number(draft: &Draft, at: usize) -> i64 {
    i64::try_from(draft.declaration)
        .or_else(|_| i64::try_from(at))
        .unwrap_or(0)
}
