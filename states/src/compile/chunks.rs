//! Declarations to calls: `names` expanded, global arguments read, own arguments
//! checked, sources resolved.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use halite_document::Problem;
use serde_json::{Map, Value};

use super::call::{Call, Draft, Provenance};
use super::declaration::{Argument, Declaration};
use super::formulas::FormulaRoots;
use super::globals::Order;
use super::input::Input;
use super::load::Loaded;
use super::memo::Memo;
use super::reference::{is_edge, references};
use super::requisite_words::INVERTED;
use super::{arguments, checks, globals, names, slots, sources};
use crate::low::{Chunk, Controls, Position, Requisites};
use crate::signature::{RunsOn, Signature};
use crate::signatures::salt;
use crate::signatures::salt::Surplus;
use crate::template::{Renderer, Rendering};

/// Global arguments that the host evaluates on which a state runs.
const ASKING_A_HOST: &[&str] = &["check_cmd", "creates", "onlyif", "unless"];

/// The surroundings of declarations.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub input: &'a Input<'a>,
    pub renderer: &'a Renderer,
    pub loaded: &'a Loaded,
    pub formulas: &'a FormulaRoots,
}

pub(super) fn expand(
    place: &Surroundings,
    memo: Option<&Memo>,
    declarations: &[Rc<Declaration>],
    problems: &mut Vec<Problem>,
) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for (number, declaration) in declarations.iter().enumerate() {
        let calls = memo
            .and_then(|memo| memo.calls(declaration, place.renderer))
            .unwrap_or_else(|| {
                let before = problems.len();
                let mut renderings = Vec::new();
                let calls = calls(place, declaration, &mut renderings, problems);
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
    place: &Surroundings,
    declaration: &Declaration,
    renderings: &mut Vec<Rendering>,
    problems: &mut Vec<Problem>,
) -> Vec<Rc<Call>> {
    let mut calls = Vec::new();
    slots::refuse(declaration, problems);
    for (name_order, name, arguments) in names::expand(declaration, problems) {
        let found = problems.len();
        let Some(mut call) = call(place, declaration, name, arguments, problems) else {
            continue;
        };
        call.name_order = name_order;
        if let Some(sls) = place.loaded.find(&declaration.sls) {
            call.provenance.files.clone_from(&sls.rendered.files);
            call.provenance.pillar.clone_from(&sls.rendered.pillar);
        }
        if problems.len() == found {
            checks::check(&call, problems);
        }
        sources::resolve(place.input, place.renderer, &mut call, renderings, problems);
        calls.push(Rc::new(call));
    }
    calls
}

fn call(
    place: &Surroundings,
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
    let (arguments, mut warnings) = last_given(arguments);
    for argument in arguments {
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
        } else {
            warnings.extend(globals::warning(&argument));
        }
    }
    let signature = signature?;
    let variables = surplus(place, signature, &mut own, &mut warnings);
    let args = arguments::convert(declaration, signature, &own, problems);
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
        variables,
        warnings,
    })
}

/// Takes out the arguments of a published formula that Salt ignores, and returns those that it
/// gives the file's template as variables.
fn surplus(
    place: &Surroundings,
    signature: &Signature,
    own: &mut Vec<Argument>,
    warnings: &mut Vec<Problem>,
) -> Map<String, Value> {
    let mut variables = Map::new();
    own.retain(|argument| {
        let is_known = signature
            .args
            .iter()
            .any(|known| known.name == argument.name);
        if is_known || !place.formulas.contain(&argument.position) {
            return true;
        }
        let Some(effect) = salt::surplus(signature.state, signature.fun, &argument.name) else {
            return true;
        };
        let hint = match effect {
            Surplus::Ignored => "Salt ignores it, and so does Halite below a formula root",
            Surplus::Variable => {
                let value = argument.value.to_json_with_key_types();
                variables.insert(argument.name.clone(), value);
                "as in Salt, it is only a variable of the file's template"
            }
        };
        let (state, fun) = (signature.state, signature.fun);
        let message = format!("{state}.{fun} has no argument `{}`", argument.name);
        warnings.push(Problem::at(&argument.position, message).hint(hint));
        false
    });
    variables
}

/// The arguments that count: of one that is given twice the last, as in Salt. All `_in` forms
/// count.
fn last_given(arguments: Vec<Argument>) -> (Vec<Argument>, Vec<Problem>) {
    let mut last: HashMap<String, (usize, Position)> = HashMap::new();
    let mut warnings = Vec::new();
    for (at, argument) in arguments.iter().enumerate() {
        let place = (at, argument.position.clone());
        if let Some((_, first)) = last.insert(argument.name.clone(), place)
            && !counts_always(&argument.name)
        {
            let message = format!(
                "`{}` is given twice: first in line {}",
                argument.name, first.line
            );
            warnings.push(
                Problem::at(&argument.position, message)
                    .hint("only the last one counts, as in Salt; remove the other"),
            );
        }
    }
    let counts = |(at, argument): (usize, Argument)| {
        let is_last = last
            .get(&argument.name)
            .is_some_and(|(last, _)| *last == at);
        (is_last || counts_always(&argument.name)).then_some(argument)
    };
    let counted = arguments.into_iter().enumerate().filter_map(counts);
    (counted.collect(), warnings)
}

/// Tests whether each of several arguments of this name has an effect. `names` and `use` are read
/// elsewhere.
fn counts_always(name: &str) -> bool {
    let is_inverted = INVERTED.contains(&name) && name != "listen_in";
    is_inverted || matches!(name, "use" | "use_in")
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
