//! The graph of calls: which must come before which, by Salt's rules (`DependencyGraph` in
//! `salt/utils/requisite.py`).

use crate::low::Requisites;

/// The nodes: all drafts, and after them the checks of `prereq` targets. A check comes before the
/// call that has the `prereq`, and after everything that the target itself waits for.
pub(super) struct Graph {
    /// For each node the nodes that must come after it.
    pub after: Vec<Vec<Edge>>,
    /// The draft of each node.
    pub drafts: Vec<usize>,
}

/// A node that must come after another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub to: usize,
    /// The place of the requisite's kind in Salt's ranking.
    pub rank: u8,
}

/// Salt's rank of `require`.
const REQUIRE: u8 = 3;
/// Salt's rank of `prereq`, the highest.
const PREREQ: u8 = 9;

impl Graph {
    /// The graph of calls with these requisites. `positions` is the order in which their edges are
    /// added, which decides between edges of different rank.
    pub(super) fn new(edges: &[Requisites], positions: &[usize]) -> Self {
        let mut drafts: Vec<usize> = (0..edges.len()).collect();
        let mut checks: Vec<Option<usize>> = vec![None; edges.len()];
        for target in edges.iter().flat_map(|requisites| &requisites.prereq) {
            checks[*target].get_or_insert_with(|| {
                drafts.push(*target);
                drafts.len() - 1
            });
        }
        let mut after = vec![Vec::new(); drafts.len()];
        for at in positions.iter().copied() {
            let requisites = &edges[at];
            let nodes = [Some(at), checks[at]];
            for (word, target) in predecessors(requisites) {
                for to in nodes.into_iter().flatten() {
                    let rank = rank(word);
                    after[target].push(Edge { to, rank });
                }
            }
            for target in &requisites.prereq {
                after[at].push(Edge {
                    to: *target,
                    rank: REQUIRE,
                });
                // A target with a `prereq` of its own is checked after that one's target. Salt
                // forgets this where the target is declared before the call that checks it.
                for (check, to) in checks[*target]
                    .into_iter()
                    .flat_map(|check| nodes.into_iter().flatten().map(move |to| (check, to)))
                {
                    after[check].push(Edge { to, rank: PREREQ });
                }
            }
        }
        Self { after, drafts }
    }

    /// For each node the number of edges that lead to it.
    pub(super) fn waiting(&self) -> Vec<usize> {
        let mut waiting = vec![0usize; self.after.len()];
        for edge in self.after.iter().flatten() {
            waiting[edge.to] += 1;
        }
        waiting
    }
}

/// The positions for which a call waits, with the requisite by which it does.
pub(super) fn predecessors(
    requisites: &Requisites,
) -> impl Iterator<Item = (&'static str, usize)> + '_ {
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

fn rank(word: &str) -> u8 {
    match word {
        "onfail" => 0,
        "onfail_any" => 1,
        "onfail_all" => 2,
        "require_any" => 4,
        "onchanges" => 5,
        "onchanges_any" => 6,
        "watch" => 7,
        "watch_any" => 8,
        _ => REQUIRE,
    }
}
