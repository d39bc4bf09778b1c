//! `top.sls`, which assigns SLS files to minions. The default matcher is `compound`, as in Salt.

use std::collections::BTreeMap;

use halite_document::Problem;
use halite_document::yaml::{Node, NodeKind};
use halite_errors::chain;

use super::input::Input;
use crate::low::Position;
use crate::target::{Candidate, matches};
use crate::template::{Purpose, Renderer};

/// An SLS assigned to a minion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Dotted name.
    pub sls: String,
    /// Its line in `top.sls`; empty when the operator named the SLS.
    pub position: Position,
}

/// Path of the file.
const TOP: &str = "top.sls";

pub(super) fn assigned(
    input: &Input,
    renderer: &Renderer,
    problems: &mut Vec<Problem>,
) -> Vec<Assignment> {
    if renderer.source(TOP).is_none() && renderer.unusable(TOP).is_none() {
        problems.push(
            Problem::in_file(TOP, "the state tree has no top.sls")
                .hint("top.sls assigns SLS files to minions; apply single ones with `ctl apply`"),
        );
        return Vec::new();
    }
    let node = renderer
        .render(Purpose::Sls, TOP, &BTreeMap::new())
        .and_then(|rendered| rendered.node());
    let node = match node {
        Ok(node) => node,
        Err(problem) => {
            problems.push(problem);
            return Vec::new();
        }
    };
    let candidate = Candidate {
        id: input.minion,
        grains: input.grains,
        pillar: input.pillar,
    };
    let mut found: Vec<Assignment> = Vec::new();
    if !matches!(node.kind, NodeKind::Map(_) | NodeKind::Null) {
        problems.push(wrong(
            &node,
            "top.sls must be a mapping `base: {target: [sls, …]}`",
        ));
    }
    for (environment, targets) in node.entries() {
        if environment.raw != "base" {
            problems.push(
                Problem::at(
                    &environment.position,
                    format!("there is no environment `{}`", environment.raw),
                )
                .hint("the state tree is one environment, `base`"),
            );
            continue;
        }
        if !matches!(targets.kind, NodeKind::Map(_) | NodeKind::Null) {
            problems.push(wrong(
                targets,
                "`base` must be a mapping from targets to lists of SLS names",
            ));
        }
        for (target, listed) in targets.entries() {
            single(target, listed, &candidate, &mut found, problems);
        }
    }
    found
}

fn wrong(node: &Node, message: &str) -> Problem {
    Problem::at(
        &node.position,
        format!("{message}, but it is {}", node.kind_name()),
    )
}

fn single(
    target: &Node,
    listed: &Node,
    candidate: &Candidate,
    found: &mut Vec<Assignment>,
    problems: &mut Vec<Problem>,
) {
    if !matches!(listed.kind, NodeKind::List(_)) {
        problems.push(wrong(listed, "a target must have a list of SLS names"));
        return;
    }
    let mut kind = "compound";
    let mut names = Vec::new();
    for item in listed.items() {
        match &item.kind {
            NodeKind::Map(entries) => match entries.as_slice() {
                [(key, value)] if key.raw == "match" && value.is_scalar() => kind = &value.raw,
                _ => problems.push(
                    Problem::at(
                        &item.position,
                        "an entry is an SLS name, or `match: KIND` once",
                    )
                    .hint("states are declared in SLS files"),
                ),
            },
            NodeKind::List(_) | NodeKind::Null => {
                problems.push(wrong(item, "an entry must be an SLS name"))
            }
            _ => names.push(item),
        }
    }
    match matches(kind, &target.raw, candidate) {
        Ok(false) => {}
        Ok(true) => {
            for name in names {
                if !found.iter().any(|known| known.sls == name.raw) {
                    found.push(Assignment {
                        sls: name.raw.clone(),
                        position: name.position.clone(),
                    });
                }
            }
        }
        Err(error) => problems.push(Problem::at(&target.position, chain(&error))),
    }
}
