//! Declarations to calls: `names` expanded, global arguments read, own arguments
//! checked, sources resolved.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use halite_document::Problem;

use super::call::{Call, Draft, Provenance};
use super::declaration::{Argument, Declaration};
use super::globals::Order;
use super::input::Input;
use super::load::Loaded;
use super::memo::Memo;
use super::reference::{is_edge, references};
use super::{arguments, checks, globals, names, slots, sources};
use crate::low::{Chunk, Controls, Position, Requisites};
use crate::signature::RunsOn;
use crate::template::{Renderer, Rendering};

/// Global arguments that the host evaluates on which a state runs.
const ASKING_A_HOST: &[&str] = &["check_cmd", "creates", "onlyif", "unless"];

pub(super) fn expand(
    input: &Input,
    renderer: &Renderer,
    memo: Option<&Memo>,
    loaded: &Loaded,
    declarations: &[Rc<Declaration>],
    problems: &mut Vec<Problem>,
) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for (number, declaration) in declarations.iter().enumerate() {
        let calls = memo
            .and_then(|memo| memo.calls(declaration, renderer))
            .unwrap_or_else(|| {
                let before = problems.len();
                let mut renderings = Vec::new();
                let calls = calls(
                    input,
                    renderer,
                    loaded,
                    declaration,
                    &mut renderings,
                    problems,
                );
                if let Some(memo) = memo.filter(|_| problems.len() == before) {
                    memo.store_calls(declaration, renderings, &calls);
                }
                calls
            });
        drafts.extend(calls.into_iter().map(|call| Draft {
            call,
            declaration: number,
        }));
    }
    drafts
}

/// The calls of one declaration; the templates rendered for them are added to `renderings`.
fn calls(
    input: &Input,
    renderer: &Renderer,
    loaded: &Loaded,
    declaration: &Declaration,
    renderings: &mut Vec<Rendering>,
    problems: &mut Vec<Problem>,
) -> Vec<Rc<Call>> {
    let mut calls = Vec::new();
    slots::refuse(declaration, problems);
    for (name_order, name, arguments) in names::expand(declaration, problems) {
        let found = problems.len();
        let Some(mut call) = call(declaration, name, arguments, problems) else {
            continue;
        };
        call.name_order = name_order;
        if let Some(sls) = loaded.find(&declaration.sls) {
            call.provenance.files.clone_from(&sls.rendered.files);
            call.provenance.pillar.clone_from(&sls.rendered.pillar);
        }
        if problems.len() == found {
            checks::check(&call, problems);
        }
        sources::resolve(input, renderer, &mut call, renderings, problems);
        calls.push(Rc::new(call));
    }
    calls
}

fn call(
    declaration: &Declaration,
    name: String,
    arguments: Vec<Argument>,
    problems: &mut Vec<Problem>,
) -> Option<Call> {
    let signature = arguments::signature(declaration, problems);
    let mut controls = Controls::default();
    let mut order = Order::Auto;
    let mut found = Vec::new();
    let mut own = Vec::new();
    let mut source_argument = declaration.position.clone();
    let mut seen: HashMap<String, Position> = HashMap::new();
    for argument in arguments {
        if let Some(first) = seen.insert(argument.name.clone(), argument.position.clone()) {
            problems.push(
                Problem::at(
                    &argument.position,
                    format!(
                        "`{}` is given twice: first in line {}",
                        argument.name, first.line
                    ),
                )
                .hint("the second would silently replace the first"),
            );
            continue;
        }
        let is_own = signature.is_some_and(|signature| {
            signature
                .args
                .iter()
                .any(|known| known.name == argument.name)
        });
        if argument.name == "source" {
            source_argument = argument.value.position.clone();
        }
        if signature.is_some_and(|signature| signature.runs_on != RunsOn::Minion)
            && ASKING_A_HOST.contains(&argument.name.as_str())
            && !is_own
        {
            problems.push(
                Problem::at(
                    &argument.position,
                    format!(
                        "`{}` is evaluated on a host, but {}.{} runs on the master",
                        argument.name, declaration.state, declaration.fun
                    ),
                )
                .hint("decide in the template, by pillar and grains"),
            );
            continue;
        }
        if is_edge(&argument.name) {
            found.extend(
                references(&argument, problems)
                    .into_iter()
                    .map(|reference| (argument.name.clone(), reference)),
            );
        } else if matches!(argument.name.as_str(), "name" | "use" | "use_in") {
            // Read already, by `names` and `rewrite`.
        } else if is_own || !globals::read(&argument, &mut controls, &mut order, problems) {
            own.push(argument);
        }
    }
    let args = arguments::convert(declaration, signature?, &own, problems);
    Some(Call {
        chunk: Chunk {
            state: declaration.state.clone(),
            fun: declaration.fun.clone(),
            id: declaration.id.clone(),
            name,
            sls: declaration.sls.clone(),
            source: declaration.position.clone(),
            args,
            requisites: Requisites::default(),
            controls,
            sensitive: false,
        },
        name_order: 0,
        order,
        references: found,
        source_argument,
        provenance: Provenance {
            source: declaration.position.clone(),
            ..Provenance::default()
        },
        blobs: BTreeMap::new(),
    })
}

/// Puts the calls in order and converts edges to positions in that order.
pub(super) fn assemble(drafts: Vec<Draft>, edges: &[Requisites], order: &[usize]) -> Vec<Call> {
    let mut place = vec![0; drafts.len()];
    for (position, at) in order.iter().enumerate() {
        place[*at] = position;
    }
    let moved = |targets: &[usize]| {
        let mut targets: Vec<usize> = targets.iter().map(|target| place[*target]).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    };
    let mut slots: Vec<Option<Draft>> = drafts.into_iter().map(Some).collect();
    order
        .iter()
        .filter_map(|at| {
            let mut call = Rc::unwrap_or_clone(slots[*at].take()?.call);
            let edges = &edges[*at];
            call.chunk.requisites = Requisites {
                require: moved(&edges.require),
                require_any: moved(&edges.require_any),
                watch: moved(&edges.watch),
                watch_any: moved(&edges.watch_any),
                onchanges: moved(&edges.onchanges),
                onchanges_any: moved(&edges.onchanges_any),
                onfail: moved(&edges.onfail),
                onfail_any: moved(&edges.onfail_any),
                onfail_all: moved(&edges.onfail_all),
                prereq: moved(&edges.prereq),
                listen: moved(&edges.listen),
            };
            Some(call)
        })
        .collect()
}
