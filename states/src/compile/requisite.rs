//! Requisites resolved to edges between calls.

use std::collections::HashMap;
use std::rc::Rc;

use halite_document::{Problem, did_you_mean};

use super::call::Draft;
use super::declaration::Declaration;
use super::load::Loaded;
use super::reference::Reference;
use crate::low::{Chunk, Requisites};
use crate::signatures::has_mod_watch;
use crate::target::pattern::Glob;

/// The list of a requisite.
fn list<'a>(requisites: &'a mut Requisites, word: &str) -> &'a mut Vec<usize> {
    match word {
        "require_any" => &mut requisites.require_any,
        "watch" => &mut requisites.watch,
        "watch_any" => &mut requisites.watch_any,
        "onchanges" => &mut requisites.onchanges,
        "onchanges_any" => &mut requisites.onchanges_any,
        "onfail" => &mut requisites.onfail,
        "onfail_any" => &mut requisites.onfail_any,
        "onfail_all" => &mut requisites.onfail_all,
        "prereq" => &mut requisites.prereq,
        "listen" => &mut requisites.listen,
        _ => &mut requisites.require,
    }
}

/// Resolves all references; the result has an entry for each draft, with positions in `drafts`.
/// `declarations` are those of the drafts, and those that have none because of a problem.
pub(super) fn resolve(
    loaded: &Loaded,
    declarations: &[Rc<Declaration>],
    drafts: &[Draft],
    complete: bool,
    problems: &mut Vec<Problem>,
) -> Vec<Requisites> {
    let mut edges = vec![Requisites::default(); drafts.len()];
    let index = Index::new(loaded, drafts);
    for (at, draft) in drafts.iter().enumerate() {
        for (word, reference) in &draft.call.references {
            let Some(targets) = index.find(at, word, reference) else {
                // A declaration with a problem of its own has no call.
                let has_problem = !problems.is_empty()
                    && (declarations.iter())
                        .any(|declaration| reference.names_declaration(declaration));
                if complete && !has_problem {
                    problems.push(index.missing(word, draft, reference));
                }
                continue;
            };
            for target in targets {
                let (word, from, to) = match word.strip_suffix("_in") {
                    Some(word) => (word, target, at),
                    None => (word.as_str(), at, target),
                };
                if word == "listen" {
                    problems.extend(deaf(&drafts[from].call.chunk, reference));
                }
                list(&mut edges[from], word).push(to);
            }
        }
    }
    edges
}

/// The problem of a listener that would do nothing; Salt fails it when its target changes.
fn deaf(listener: &Chunk, reference: &Reference) -> Option<Problem> {
    let function = listener.function();
    let problem = Problem::at(
        &reference.position,
        format!(
            "`{}` cannot listen: {function} has no action that a change triggers",
            listener.id
        ),
    )
    .hint("`listen` is for service.running and cmd.run; to apply a state only after a change, use `onchanges`");
    (!has_mod_watch(&listener.state, &listener.fun)).then_some(problem)
}

/// Calls by the ids and names by which references find them.
struct Index<'a> {
    loaded: &'a Loaded,
    drafts: &'a [Draft],
    by_key: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Index<'a> {
    fn new(loaded: &'a Loaded, drafts: &'a [Draft]) -> Self {
        let mut by_key: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, draft) in drafts.iter().enumerate() {
            by_key.entry(&draft.call.chunk.id).or_default().push(at);
            if draft.call.chunk.name != draft.call.chunk.id {
                by_key.entry(&draft.call.chunk.name).or_default().push(at);
            }
        }
        Self {
            loaded,
            drafts,
            by_key,
        }
    }

    /// The targets of a reference of the call at `from`; `None` when no call has that name.
    fn find(&self, from: usize, word: &str, reference: &Reference) -> Option<Vec<usize>> {
        if reference.module == "sls" {
            return if word.ends_with("_in") {
                self.in_sls(from, &reference.key)
            } else {
                self.of_sls(from, &reference.key)
            };
        }
        let fits = |at: &usize| {
            reference.module.is_empty() || self.drafts[*at].call.chunk.state == reference.module
        };
        let exact: Vec<usize> = self
            .by_key
            .get(reference.key.as_str())
            .map(|found| found.iter().copied().filter(|at| fits(at)).collect())
            .unwrap_or_default();
        if !exact.is_empty() {
            return Some(exact);
        }
        let glob = Glob::is_pattern(&reference.key)
            .then(|| Glob::new(&reference.key).ok())
            .flatten()?;
        let found: Vec<usize> = (0..self.drafts.len())
            .filter(|at| {
                let chunk = &self.drafts[*at].call.chunk;
                *at != from && fits(at) && (glob.is_match(&chunk.id) || glob.is_match(&chunk.name))
            })
            .collect();
        (!found.is_empty()).then_some(found)
    }

    /// Every call of an SLS and of what it includes, except the caller's own SLS where that is
    /// included by it.
    fn of_sls(&self, from: usize, name: &str) -> Option<Vec<usize>> {
        let glob = Glob::new(name).ok()?;
        let named: Vec<&str> = self
            .loaded
            .sls
            .iter()
            .map(|sls| sls.name.as_str())
            .filter(|sls| *sls == name || glob.is_match(sls))
            .collect();
        if named.is_empty() {
            return None;
        }
        let own = self.drafts[from].call.chunk.sls.as_str();
        let through = |sls: &str| named.iter().any(|named| self.loaded.includes(named, sls));
        Some(
            (0..self.drafts.len())
                .filter(|at| {
                    let sls = self.drafts[*at].call.chunk.sls.as_str();
                    *at != from && (named.contains(&sls) || (sls != own && through(sls)))
                })
                .collect(),
        )
    }

    /// Every call that an SLS itself declares: as in Salt, an `_in` form reaches no others.
    fn in_sls(&self, from: usize, name: &str) -> Option<Vec<usize>> {
        self.loaded.find(name)?;
        let is_in = |at: &usize| *at != from && self.drafts[*at].call.chunk.sls == name;
        Some((0..self.drafts.len()).filter(is_in).collect())
    }

    fn missing(&self, word: &str, draft: &Draft, reference: &Reference) -> Problem {
        let problem = Problem::at(
            &reference.position,
            format!(
                "`{word}` of `{}` refers to {reference}, which does not exist",
                draft.call.chunk.id
            ),
        );
        if reference.module == "sls" {
            return problem.hint("that SLS is not part of this run; include it");
        }
        if let Some(other) = self
            .by_key
            .get(reference.key.as_str())
            .and_then(|found| found.first())
        {
            return problem.hint(format!(
                "there is `{}: {}`",
                self.drafts[*other].call.chunk.state, reference.key
            ));
        }
        match did_you_mean(&reference.key, self.by_key.keys().copied()) {
            Some(near) => problem.hint(format!("did you mean `{near}`?")),
            None => problem.hint("include or assign the SLS that declares it"),
        }
    }
}
