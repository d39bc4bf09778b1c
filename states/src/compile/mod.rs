//! The compiler: SLS files, pillar and grains of one minion become its low state.
//!
//! Everything is rendered and checked before anything is sent to a host, and every problem is
//! reported at once: what is wrong in one file does not hide what is wrong in the next.

mod arguments;
mod chunks;
mod declaration;
mod globals;
mod load;
mod memo;
mod order;
mod requisite;
mod rewrite;
mod sources;
mod top;

use std::collections::BTreeMap;
use std::rc::Rc;

use chunks::Draft;
use halite_document::Problem;
use load::Names;
use memo::Memo;
use serde_json::Value;

use crate::low::{FORMAT, LowState, Position, Requisites};
use crate::template::Renderer;
use crate::tree::Tree;

pub use chunks::Call;
pub use top::Assignment;

/// What a low state is compiled from.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The state tree.
    pub tree: &'a dyn Tree,
    /// The minion's id.
    pub minion: &'a str,
    /// Its pillar view; secrets are references (see [`halite_secrets::reference`]).
    pub pillar: &'a Value,
    /// Its grains.
    pub grains: &'a Value,
    /// SHA-256 (hex) of a file of the bundle, for `bundle://` sources.
    pub bundle: &'a dyn Fn(&str) -> Option<String>,
}

/// A compiled low state.
#[derive(Debug, Clone, PartialEq)]
pub struct Compiled {
    /// The ordered calls.
    pub low: LowState,
    /// Files of the state tree that calls refer to as `blob:SHA256`, by that hash (hex).
    pub blobs: BTreeMap<String, Vec<u8>>,
    /// Where each call comes from; as long as `low.chunks`.
    pub provenance: Vec<Provenance>,
}

/// Where a call comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The line of the SLS or macro.
    pub source: Position,
    /// Files of the state tree that were read for it: its SLS, what that imports, templates of its
    /// contents.
    pub files: Vec<String>,
    /// Pillar paths that its SLS and its templates read.
    pub pillar: Vec<String>,
}

/// Compiles everything that `top.sls` assigns to the minion.
///
/// # Errors
/// All problems, sorted by place.
pub fn highstate(input: &Input) -> Result<Compiled, Vec<Problem>> {
    Compiler::new(input.tree).highstate(input)
}

/// Compiles the named SLS files (dotted, `*` and `?` match) with what they include.
///
/// # Errors
/// All problems, sorted by place.
pub fn sls(input: &Input, names: &[String]) -> Result<Compiled, Vec<Problem>> {
    Compiler::new(input.tree).sls(input, names)
}

/// The SLS files that `top.sls` assigns to the minion, in order, each with the line that says so.
///
/// # Errors
/// All problems of `top.sls`.
pub fn top(input: &Input) -> Result<Vec<Assignment>, Vec<Problem>> {
    let mut compiler = Compiler::new(input.tree);
    compiler.about(input);
    compiler.assigned(input)
}

/// Compiles one tree for many minions. It reads each file once, and renders a template again only
/// for a minion of which the template sees something that it has not seen before; what comes out is
/// the same.
pub struct Compiler {
    renderer: Renderer,
    names: Names,
    memo: Memo,
}

impl Compiler {
    /// A compiler of a tree; what is changed in that afterwards it does not see.
    #[must_use]
    pub fn new(tree: &dyn Tree) -> Self {
        Self {
            renderer: Renderer::new(tree),
            names: load::names(tree),
            memo: Memo::default(),
        }
    }

    /// As [`highstate`]; the tree has to be the one that it was made for.
    ///
    /// # Errors
    /// All problems, sorted by place.
    pub fn highstate(&mut self, input: &Input) -> Result<Compiled, Vec<Problem>> {
        self.about(input);
        let ordered = self.ordered(input, None, self.assigned(input)?)?;
        Ok(ordered.compiled(input))
    }

    /// As [`sls`]; the tree has to be the one that it was made for.
    ///
    /// # Errors
    /// All problems, sorted by place.
    pub fn sls(&mut self, input: &Input, names: &[String]) -> Result<Compiled, Vec<Problem>> {
        self.about(input);
        let ordered = self.ordered(input, None, named(names))?;
        Ok(ordered.compiled(input))
    }

    /// The calls of [`highstate`], or of [`sls`] with names, in their order, for whoever compiles
    /// for many minions and does not run them: a call that an earlier minion had too is the same
    /// object. `input.bundle` has to answer the same each time; of what it said once it is not
    /// asked again.
    ///
    /// # Errors
    /// All problems, sorted by place.
    pub fn calls(
        &mut self,
        input: &Input,
        names: Option<&[String]>,
    ) -> Result<Vec<Rc<Call>>, Vec<Problem>> {
        self.about(input);
        let assigned = names.map_or_else(|| self.assigned(input), |names| Ok(named(names)))?;
        let Ordered { drafts, order, .. } = self.ordered(input, Some(&self.memo), assigned)?;
        Ok(order
            .into_iter()
            .map(|at| drafts[at].call.clone())
            .collect())
    }

    fn about(&mut self, input: &Input) {
        self.renderer
            .about(input.minion, input.pillar, input.grains);
    }

    fn assigned(&self, input: &Input) -> Result<Vec<Assignment>, Vec<Problem>> {
        let mut problems = Vec::new();
        let assigned = top::assigned(input, &self.renderer, &mut problems);
        if problems.is_empty() {
            Ok(assigned)
        } else {
            Err(report(problems, &self.renderer))
        }
    }

    fn ordered(
        &self,
        input: &Input,
        memo: Option<&Memo>,
        assigned: Vec<Assignment>,
    ) -> Result<Ordered, Vec<Problem>> {
        let renderer = &self.renderer;
        let mut problems = Vec::new();
        let mut loaded = load::load(renderer, &self.names, memo, assigned, &mut problems);
        // With a file missing, what refers to it would only be noise.
        let complete = problems.is_empty();
        let declarations = rewrite::rewrite(&mut loaded, complete, &mut problems);
        let drafts = chunks::expand(input, renderer, memo, &loaded, &declarations, &mut problems);
        let edges = requisite::resolve(&loaded, &drafts, complete, &mut problems);
        let order = order::order(&drafts, &edges, &mut problems);
        if problems.is_empty() {
            Ok(Ordered {
                drafts,
                edges,
                order,
            })
        } else {
            Err(report(problems, renderer))
        }
    }
}

fn named(names: &[String]) -> Vec<Assignment> {
    names
        .iter()
        .map(|sls| Assignment {
            sls: sls.clone(),
            position: Position::default(),
        })
        .collect()
}

/// Calls without problems.
struct Ordered {
    drafts: Vec<Draft>,
    /// Of each draft, by places in `drafts`.
    edges: Vec<Requisites>,
    /// Places in `drafts`.
    order: Vec<usize>,
}

impl Ordered {
    fn compiled(self, input: &Input) -> Compiled {
        let mut blobs = BTreeMap::new();
        let calls = chunks::assemble(self.drafts, &self.edges, &self.order).into_iter();
        let (chunks, provenance) = calls
            .map(|call| {
                blobs.extend(call.blobs);
                (call.chunk, call.provenance)
            })
            .unzip();
        let low = LowState {
            format: FORMAT,
            minion: input.minion.to_owned(),
            chunks,
        };
        Compiled {
            low,
            blobs,
            provenance,
        }
    }
}

/// Sorts, drops repetitions and adds source lines.
fn report(mut problems: Vec<Problem>, renderer: &Renderer) -> Vec<Problem> {
    for problem in &mut problems {
        if let Some(text) = renderer.source(&problem.file) {
            *problem = std::mem::take(problem).excerpt_from(&text);
        }
    }
    problems.sort();
    problems.dedup();
    problems
}
