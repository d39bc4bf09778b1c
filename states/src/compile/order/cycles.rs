//! Cycles of requisites, described link by link.

use halite_document::Problem;

use super::graph::predecessors;
use crate::compile::call::Draft;
use crate::low::Requisites;

fn verb(word: &str) -> &str {
    match word.trim_end_matches("_any").trim_end_matches("_all") {
        "require" => "requires",
        "watch" => "watches",
        "onchanges" => "runs on changes of",
        "onfail" => "runs on failure of",
        other => other,
    }
}

/// Reports each cycle once. `waiting`: for each node the edges that were never removed.
pub(super) fn report(
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
        let requisites = predecessors(&edges[at]).map(|(word, to)| (verb(word).to_owned(), to));
        let checked_by = edges
            .iter()
            .enumerate()
            .filter(|(_, other)| other.prereq.contains(&at))
            .map(|(from, _)| ("is prereq of".to_owned(), from));
        requisites
            .chain(checked_by)
            .chain(through_checks(edges, at, &describe))
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
                    word
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

/// The calls for which a call waits because the targets of its `prereq` are checked first.
fn through_checks(
    edges: &[Requisites],
    at: usize,
    describe: &impl Fn(usize) -> String,
) -> Vec<(String, usize)> {
    let mut checked = edges[at].prereq.clone();
    let mut next = 0;
    let mut links = Vec::new();
    while let Some(target) = checked.get(next).copied() {
        next += 1;
        links.extend(predecessors(&edges[target]).map(|(word, to)| {
            let words = format!("checks {}, which {}", describe(target), verb(word));
            (words, to)
        }));
        for further in &edges[target].prereq {
            if !checked.contains(further) {
                checked.push(*further);
            }
        }
    }
    links
}
